package plan

import (
	"fmt"
	"strings"
)

// Bounds of a correction that sums up several problems.
const (
	maxListed      = 30   // problems that are spelt out
	maxProblemText = 300  // characters of one of them
	maxListedText  = 4000 // bytes of all of them
)

// problems collects everything that is wrong with a reply, for a correction that names all of it at once.
type problems []Problem

func (p *problems) add(rule, format string, args ...any) {
	*p = append(*p, Problem{Rule: rule, Text: clip(fmt.Sprintf(format, args...), maxProblemText)})
}

// take adds a violation that was found in a part of the reply.
func (p *problems) take(where string, v *Violation) {
	text := strings.TrimSuffix(v.Text, " "+closing)
	if where != "" {
		text = where + ": " + text
	}
	p.add(v.Rule, "%s", text)
}

// violation sums up; it is nil where nothing is wrong.
func (p problems) violation() *Violation {
	if len(p) == 0 {
		return nil
	}
	v := violate(p[0].Rule, "%s", p[0].Text)
	if len(p) > 1 {
		v = violate(p[0].Rule, "%s", p.list())
	}
	v.Problems = p
	return v
}

// list spells out as many problems as are of use to a model.
func (p problems) list() string {
	var b strings.Builder
	fmt.Fprintf(&b, "There are %d problems, and nothing of this was used.", len(p))
	for i, problem := range p {
		if i == maxListed || b.Len() > maxListedText {
			fmt.Fprintf(&b, " And %d more.", len(p)-i)
			break
		}
		fmt.Fprintf(&b, " (%d) %s", i+1, problem.Text)
	}
	return b.String()
}
