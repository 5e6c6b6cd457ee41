package demo

import (
	"fmt"
	"regexp"
	"strings"

	"ratchet/internal/plan"
)

var sentence = regexp.MustCompile(`(?s)(.+?[.?!])(?:\s+|$)`)

// maxParts is how many parts of a goal get a run of their own.
const maxParts = 8

// partsOf splits a goal into sentences. Nil: it has only one, or not each of them is an example.
func partsOf(c *conversation) []string {
	var parts []string
	for _, m := range sentence.FindAllStringSubmatch(c.goal, -1) {
		parts = append(parts, strings.TrimSpace(m[1]))
	}
	if len(parts) < 2 || len(parts) > maxParts || strings.TrimSpace(sentence.ReplaceAllString(c.goal, "")) != "" {
		return nil
	}
	for _, p := range parts {
		one := *c
		one.goal = p
		if find(&one) == nil {
			return nil
		}
	}
	return parts
}

// manyParts is the scene for a goal of several examples, "Is it warmer in Singapore or Paris? What is 17 plus 25?": each
// of them goes to a run of its own.
func manyParts(c *conversation) *scene {
	parts := partsOf(c)
	if parts == nil {
		return nil
	}
	return &scene{
		steps: []string{fmt.Sprintf("Hand the %d parts to runs of their own", len(parts)), "Put the answers together"},
		tools: []string{"delegate"},
		play:  func(t *turn) plan.Message { return playParts(t, parts) },
	}
}

// delegation are the arguments of delegate for a part. Only a part that needs nobody's answer can be done in react.
func delegation(part string) map[string]any {
	if aboutShares.MatchString(part) {
		return map[string]any{"goal": part}
	}
	return map[string]any{"goal": part, "strategy": "react"}
}

func playParts(t *turn, parts []string) plan.Message {
	done := t.of("delegate")
	if len(done) == 0 {
		calls := make([]plan.Call, len(parts))
		for i, p := range parts {
			calls[i] = toolCall("delegate", delegation(p))
		}
		return t.call("The parts do not depend on each other, so they can be done side by side.", calls...)
	}
	answers := make([]string, 0, len(parts))
	for i, k := range done[:min(len(done), len(parts))] {
		if k.ok() {
			answers = append(answers, plainText(k.result))
		} else {
			answers = append(answers, fmt.Sprintf("For %q there is no answer: %s.", parts[i], k.failure()))
		}
	}
	t.done(0, fmt.Sprintf("%d answers.", len(answers)))
	t.done(1, "Put together.")
	return t.answer("All parts are done.", strings.Join(answers, "\n"))
}

// partsGraph is the plan for such a goal.
func partsGraph(parts []string) plan.DAG {
	d := make(plan.DAG, len(parts))
	for i, p := range parts {
		d[i] = node(i+1, "delegate", delegation(p))
	}
	return d
}
