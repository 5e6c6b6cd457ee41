package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// Form asks one question of a person, line by line. It knows neither keyboard nor network.
type Form struct {
	question loop.Question
	refusing bool // asks for the reason of a no
}

// NewForm returns the form of a question.
func NewForm(q loop.Question) *Form { return &Form{question: q} }

// Question returns what is asked.
func (f *Form) Question() loop.Question { return f.question }

// Lines shows the question, in lines of at most width cells. The arguments of an approval are shown whole: a person
// answers for them.
func (f *Form) Lines(width int, s Style) []string {
	q := f.question
	width = max(width, minWidth)
	var lines []string
	for paragraph := range strings.SplitSeq(CleanBlock(q.Text), "\n") {
		for _, line := range wrap(paragraph, width-2, 0) {
			lines = append(lines, "  "+s.Bold(line))
		}
	}
	if len(lines) > 0 {
		lines[0] = s.Wait("?") + lines[0][1:]
	}
	if len(q.Chain) > 0 {
		for _, line := range wrap("asked by a child run, below "+Clean(strings.Join(q.Chain, " > ")), width-2, 0) {
			lines = append(lines, "  "+s.Dim(line))
		}
	}
	if q.Tool != "" {
		lines = append(lines, "  tool: "+Clean(q.Tool))
		lines = append(lines, jsonLines("arguments", q.Arguments, width)...)
	}
	if len(q.AnswerSchema) > 0 {
		lines = append(lines, jsonLines("answer schema", q.AnswerSchema, width)...)
	}
	return lines
}

// jsonLines shows a JSON value, indented and broken where it is too wide.
func jsonLines(title string, value json.RawMessage, width int) []string {
	if len(value) == 0 {
		return nil
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, value, "", "  ") != nil {
		pretty.Reset()
		pretty.Write(value)
	}
	lines := []string{"  " + title + ":"}
	for line := range strings.SplitSeq(CleanBlock(pretty.String()), "\n") {
		for _, part := range wrap(line, width-4, 0) {
			lines = append(lines, "    "+part)
		}
	}
	return lines
}

// Prompt is what stands before the line that is asked for.
func (f *Form) Prompt() string {
	switch {
	case f.refusing:
		return "Reason (optional): "
	case f.question.Kind == loop.KindApproval:
		return "Approve? [y/N] "
	default:
		return "> "
	}
}

// Enter takes a line. ready reports whether the reply is complete; otherwise the form asks on, and complaint says why
// where there is a reason.
func (f *Form) Enter(line string) (reply loop.Reply, complaint string, ready bool) {
	reply.Question = f.question.Question
	line = strings.TrimSpace(line)
	if f.question.Kind == loop.KindApproval {
		return f.decide(reply, line)
	}
	if line == "" {
		return reply, "An empty answer says nothing; type one, or press Ctrl-C to leave the question open.", false
	}
	if value, ok := onlyProperty(f.question.AnswerSchema, line); ok {
		reply.Value = value
	} else {
		reply.Text = line
	}
	return reply, "", true
}

// decide takes the yes or no of an approval, and after a no the reason. Only a clear yes is one.
func (f *Form) decide(reply loop.Reply, line string) (loop.Reply, string, bool) {
	yes := !f.refusing && (strings.EqualFold(line, "y") || strings.EqualFold(line, "yes"))
	switch {
	case yes:
		reply.Approve = &yes
		return reply, "", true
	case !f.refusing && line != "" && !strings.EqualFold(line, "n") && !strings.EqualFold(line, "no"):
		return reply, fmt.Sprintf("%q is neither y nor n.", clip(Clean(line), 40)), false
	case !f.refusing:
		f.refusing = true
		return reply, "", false
	default:
		no := false
		reply.Approve, reply.Reason = &no, line
		return reply, "", true
	}
}

// Again puts the form back to its beginning, after a reply that was not accepted.
func (f *Form) Again() { f.refusing = false }

// onlyProperty puts a line in the place of the one property that an object schema requires, so that nobody has to type
// {"outcome": "done"}. ok is false where the line is JSON itself or the schema asks for more.
func onlyProperty(schema json.RawMessage, line string) (value json.RawMessage, ok bool) {
	var s struct {
		Type       string                     `json:"type"`
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil || s.Type != "object" || json.Valid([]byte(line)) && line[0] == '{' {
		return nil, false
	}
	name := ""
	switch {
	case len(s.Required) == 1:
		name = s.Required[0]
	case len(s.Required) == 0 && len(s.Properties) == 1:
		for only := range s.Properties {
			name = only
		}
	default:
		return nil, false
	}
	value, err := json.Marshal(map[string]json.RawMessage{name: typed(s.Properties[name], line)})
	return value, err == nil
}

// typed reads a line as the JSON value that its schema wants: text as it is, all else as JSON where it is that.
func typed(schema json.RawMessage, line string) json.RawMessage {
	var s struct {
		Type string `json:"type"`
		Enum []any  `json:"enum"`
	}
	_ = json.Unmarshal(schema, &s) // a schema of another form says nothing about the type
	text, err := json.Marshal(line)
	if err != nil || s.Type != "string" && !slices.Contains(s.Enum, any(line)) && json.Valid([]byte(line)) {
		return json.RawMessage(line)
	}
	return text
}

// Exchange shows a question and the event that closed it, for the record above the live view.
func Exchange(q loop.Question, closing loop.Event, width int, s Style) []string {
	width = max(width, minWidth)
	text := q.Text
	if q.Kind == loop.KindApproval {
		text = "May I call " + q.Tool + " " + string(q.Arguments) + "?"
	}
	lines := indented("? ", Clean(text), width, 0)
	lines[0] = s.Wait("?") + lines[0][1:]
	switch d := closing.Data.(type) {
	case loop.Reply:
		answer := replyText(d)
		if d.By != "" {
			answer += " (" + d.By + ")"
		}
		lines = append(lines, indented("> ", Clean(answer), width, 0)...)
	case loop.Timeout:
		lines = append(lines, "> nobody answered in time")
	default:
		lines = append(lines, "> not answered")
	}
	return append(lines, "")
}

// indented breaks a text into lines under a mark.
func indented(mark, text string, width, limit int) []string {
	lines := wrap(text, width-2, limit)
	for i := range lines {
		if i > 0 {
			mark = "  "
		}
		lines[i] = mark + lines[i]
	}
	return lines
}
