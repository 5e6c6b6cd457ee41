package plan

import (
	"iter"
	"slices"
	"strings"
	"unicode"
)

// target says what a string in a step's args stands for.
type target int

const (
	toItself  target = iota // the text as it is
	toEscaped               // $$…: the text without its first $
	toStep                  // $<id> or $<id>.<path>
	toSession               // $session.<name>
	toNobody                // $ and digits alone, and no such step: surely meant as a reference
)

// reference is a string in a step's args, understood.
type reference struct {
	to   target
	step string // toStep
	path string // toStep: empty for the whole result; toSession: the name
}

// session is the word that references to the task's vars begin with; no step may have it as its id.
const session = "session"

// parseReference understands a string. It is a reference only as a whole: text in which one occurs, or that only looks
// similar, such as a price, stands for itself.
func parseReference(s string, isStep func(id string) bool) reference {
	if len(s) < 2 || s[0] != '$' {
		return reference{}
	}
	if s[1] == '$' {
		return reference{to: toEscaped}
	}
	id, path, dotted := strings.Cut(s[1:], ".")
	switch {
	case dotted && !isPath(path):
		return reference{}
	case dotted && id == session:
		return reference{to: toSession, path: path}
	case isStep(id):
		return reference{to: toStep, step: id, path: path}
	case !dotted && strings.Trim(id, "0123456789") == "":
		return reference{to: toNobody, step: id}
	}
	return reference{}
}

// isPath reports whether text can be a path: names or numbers between dots, without white space.
func isPath(path string) bool {
	return path != "" && path[0] != '.' && path[len(path)-1] != '.' && !strings.Contains(path, "..") &&
		strings.IndexFunc(path, unicode.IsSpace) < 0
}

// validID reports whether an id can be named by a reference: up to 64 letters, digits, _ and -.
func validID(id string) bool {
	odd := func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '-' }
	return id != "" && len(id) <= 64 && strings.IndexFunc(id, odd) < 0 && !strings.EqualFold(id, session)
}

// dollarStrings yields the strings in a JSON value, keys apart, that begin with a $, with the span of their literals. The
// value must be well-formed; its nesting does not matter, since a string before a colon is a key and no other is.
func dollarStrings(text string) iter.Seq2[span, string] {
	return func(yield func(span, string) bool) {
		s := scanner{text: text}
		for i := 0; ; {
			next := strings.IndexByte(text[i:], '"')
			if next < 0 {
				return
			}
			from := i + next
			to, v := s.str(from)
			if v != nil {
				return
			}
			if i = s.space(to); i < len(text) && text[i] == ':' {
				continue
			}
			if c := text[from+1]; c != '$' && c != '\\' {
				continue
			}
			if said := unquote(text[from:to]); strings.HasPrefix(said, "$") && !yield(span{from, to}, said) {
				return
			}
		}
	}
}

// start returns where the text's value begins.
func (r *reader) start() int { return (&scanner{text: r.text}).space(0) }

// members yields the members of a well-formed object: the literal of the key, and the value.
func (r *reader) members(object span) iter.Seq2[span, span] {
	return func(yield func(key, value span) bool) {
		s := scanner{text: r.text}
		for i := s.space(object.from + 1); i < object.to && r.text[i] != '}'; {
			to, v := s.str(i)
			if v != nil {
				return
			}
			key := span{i, to}
			from := s.space(s.space(to) + 1) // after the colon
			if to, v = s.value(from, 1); v != nil || !yield(key, span{from, to}) {
				return
			}
			if i = s.space(to); r.text[i] == ',' {
				i = s.space(i + 1)
			}
		}
	}
}

// link adds to the After of each step from the given one on the steps that its args refer to.
func (d DAG) link(from int) {
	at := d.positions()
	isStep := func(id string) bool { _, ok := at[id]; return ok }
	for i := range d[from:] {
		s := &d[from+i]
		var needs []string
		for _, said := range dollarStrings(string(s.Args)) {
			if ref := parseReference(said, isStep); ref.to == toStep {
				needs = append(needs, ref.step)
			}
		}
		if needs != nil {
			s.After = unique(slices.Concat(s.After, needs))
		}
	}
}
