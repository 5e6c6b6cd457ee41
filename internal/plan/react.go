package plan

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
)

// Reaction is what a model said in one turn of the text contract: a call, or the final answer.
type Reaction struct {
	Thought string // on one line
	Call    *Call  // nil: this is the final answer
	Answer  string
}

// ReactRules are what a turn of the text contract is checked against.
type ReactRules struct {
	Tools []string // names of the tools the run may use, for corrections
	// Arguments is as in [Rules]. It must be set.
	Arguments func(tool string, args json.RawMessage) (checked json.RawMessage, problems []string, known bool)
	// Single returns the name of a tool's one required property, and false where the tool requires none or several. Then a
	// bracket can hold only an object. It must be set.
	Single func(tool string) (property string, ok bool)
}

// Pause is the word at which generation stops: a stop sequence for the model, and cut by [ReadReact] where that is ignored.
const Pause = "PAUSE"

const reactClosing = "Write Thought, then either Action, Action Input and PAUSE, or Final Answer."

// The labels of the text contract, as they are compared.
const (
	labelThought     = "thought"
	labelAction      = "action"
	labelInput       = "action input"
	labelFinal       = "final answer"
	labelObservation = "observation"
)

var (
	// labelLine is a line that begins with a label. Emphasis around it, a heading's marks, a number behind it (Thought 1:) and
	// letter case are forgiven.
	labelLine = regexp.MustCompile(`(?i)^[ \t#>]*([*_]*)(thought|action input|action|observation|final answer|question)(?: \d+)?([*_]*)[ \t]*:(.*)$`)
	// bracketed is a tool with its input on one line, or over several.
	bracketed = regexp.MustCompile(`(?s)^([\pL\pN_./:-]+)[ \t]*\[(.*)\]$`)
	toolName  = regexp.MustCompile(`^[\pL\pN_./:-]+$`)
)

// ReadReact understands a model's reply in the text contract: Thought, then Action with Action Input, or the form
// tool[input], or Final Answer. Text before the first label counts as thought. Everything from a line PAUSE or an
// Observation on is dropped: what follows would rest on an observation that the model made up. A final answer goes on to
// the end. Arguments are as the rules gave them back.
//
// The error is a *[Violation], whose text is the next observation.
func ReadReact(text string, r ReactRules) (Reaction, error) {
	said, v := readReact(text, r)
	if v != nil {
		text := strings.TrimRight(strings.TrimSuffix(v.Text, closing), " ")
		return Reaction{}, &Violation{Rule: v.Rule, Text: text + " " + reactClosing}
	}
	return said, nil
}

func readReact(text string, r ReactRules) (Reaction, *Violation) {
	if v := readable(text, advice{}); v != nil {
		return Reaction{}, v
	}
	from, v := skipReasoning(text)
	if v != nil {
		return Reaction{}, v
	}
	t := splitReact(unfence(text[from:]))
	said := Reaction{Thought: strings.Join(strings.Fields(strings.Join(t.thoughts, " ")), " ")}
	switch {
	case len(t.actions) == 0 && t.final == nil:
		return Reaction{}, violate(RuleNoMove, "There is no Action and no Final Answer.")
	case len(t.actions) > 1 || len(t.inputs) > 1:
		return Reaction{}, violate(RuleTwoMoves, "There is more than one Action, and nothing was called. Take one at a time and "+
			"wait for its Observation.")
	case len(t.actions) > 0 && t.final != nil:
		return Reaction{}, violate(RuleTwoMoves, "There is an Action and a Final Answer, and neither was used. If the tool's "+
			"outcome is needed, wait for it.")
	case t.final != nil && isBlank(*t.final):
		return Reaction{}, violate(RuleBlankAnswer, "The Final Answer is empty.")
	case t.final != nil:
		said.Answer = trimUnseen(*t.final)
		return said, nil
	}
	c, v := r.action(t.actions[0], t.inputs)
	if v != nil {
		return Reaction{}, v
	}
	said.Call = &c
	return said, nil
}

// Encode returns the turn in the form that the contract asks for. [ReadReact] takes it back to the same turn.
func (r Reaction) Encode() string {
	var b strings.Builder
	if r.Thought != "" {
		b.WriteString("Thought: " + r.Thought + "\n")
	}
	if r.Call == nil {
		b.WriteString("Final Answer: " + r.Answer)
		return b.String()
	}
	b.WriteString("Action: " + r.Call.Name + "\nAction Input: " + string(r.Call.Arguments) + "\n" + Pause)
	return b.String()
}

// CutReact returns a reply up to where it pauses or makes up an observation: what the model may be shown again as its own
// words.
func CutReact(text string) string {
	kept := 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		if label, _ := splitLabel(strings.TrimRight(line, "\r\n")); label == labelObservation || isPause(line) {
			break
		}
		kept += len(line)
	}
	return strings.TrimSpace(text[:kept])
}

// turn is a reply, taken apart at its labels.
type turn struct {
	thoughts, actions, inputs []string
	final                     *string
}

// splitReact takes a reply apart, up to where it pauses or makes up an observation.
func splitReact(text string) turn {
	t := turn{}
	label := labelThought
	var section []string
	end := func() {
		body := strings.Join(section, "\n")
		switch label {
		case labelThought:
			t.thoughts = append(t.thoughts, body)
		case labelAction:
			t.actions = append(t.actions, strings.TrimSpace(body))
		case labelInput:
			t.inputs = append(t.inputs, strings.TrimSpace(body))
		case labelFinal:
			t.final = &body
		}
		section = nil
	}
	for line := range strings.SplitSeq(trimUnseen(text), "\n") {
		line = strings.TrimRight(line, "\r")
		next, rest := splitLabel(line)
		if next == labelObservation || isPause(line) {
			break
		}
		if next == "" || label == labelFinal {
			rest = line
		} else {
			end()
			label = next
		}
		rest, paused := cutPause(label, rest)
		section = append(section, rest)
		if paused {
			break
		}
	}
	end()
	return t
}

// splitLabel returns the label that a line begins with, in lower case, and what follows it.
func splitLabel(line string) (label, rest string) {
	m := labelLine.FindStringSubmatch(line)
	if m == nil {
		return "", line
	}
	rest = m[4]
	if m[1] != "" && m[3] == "" {
		rest = strings.TrimPrefix(rest, m[1]) // emphasis that ends behind the colon
	}
	return strings.ToLower(m[2]), rest
}

// isPause reports whether a line says nothing but PAUSE.
func isPause(line string) bool { return strings.Trim(trimUnseen(line), "*_`.") == Pause }

// trimUnseen takes white space and zero-width characters off both ends.
func trimUnseen(text string) string {
	return strings.TrimFunc(text, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(zeroWidth, c) })
}

// cutPause cuts an action or its input at a PAUSE that ends or begins the line; elsewhere the word may be a part of it.
func cutPause(label, line string) (rest string, paused bool) {
	trimmed := strings.TrimRight(line, " \t*_.")
	switch {
	case isPause(line):
		return "", true
	case label != labelAction && label != labelInput:
		return line, false
	case strings.HasSuffix(trimmed, " "+Pause), strings.HasSuffix(trimmed, "]"+Pause), strings.HasSuffix(trimmed, "}"+Pause):
		return strings.TrimSuffix(trimmed, Pause), true
	case strings.HasPrefix(strings.TrimLeft(line, " \t"), Pause+" "):
		return "", true
	}
	return line, false
}
