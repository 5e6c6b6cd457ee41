package plan

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Encode returns the message as a model should have written it: one line of JSON with type, thought and plan first, then
// what the type has for itself. [Read] takes it back to the same message.
func (m Message) Encode() string {
	var b strings.Builder
	b.Grow(m.size())
	b.WriteString(`{"type":` + encodeString(string(m.Type)) + `,"thought":` + encodeString(m.Thought) + `,"plan":[`)
	for i, s := range m.Plan {
		if i > 0 {
			b.WriteByte(',')
		}
		result := "null"
		if s.Result != "" {
			result = encodeString(string(s.Result))
		}
		b.WriteString(`{"step":` + encodeString(s.Step) + `,"status":` + encodeString(string(s.Status)) + `,"result":` + result + `}`)
	}
	b.WriteByte(']')
	m.encodeOwn(&b)
	return b.String()
}

// EncodeMove is Encode without the plan. [ReadMove] takes it back to the same message.
func (m Message) EncodeMove() string {
	var b strings.Builder
	b.WriteString(`{"type":` + encodeString(string(m.Type)) + `,"thought":` + encodeString(m.Thought))
	m.encodeOwn(&b)
	return b.String()
}

// encodeOwn writes what the message's type has for itself, and the end.
func (m Message) encodeOwn(b *strings.Builder) {
	switch m.Type {
	case ToolCall:
		encodeCalls(b, m.Calls)
	case AskUser:
		b.WriteString(`,"question":` + encodeString(m.Question))
		if m.AnswerSchema != nil {
			b.WriteString(`,"answer_schema":` + string(m.AnswerSchema))
		}
	case FinalAnswer:
		b.WriteString(`,"answer":` + encodeString(m.Answer))
	case CreatePlan, UpdatePlan, ReasoningStep:
	}
	b.WriteByte('}')
}

func encodeCalls(b *strings.Builder, calls []Call) {
	if len(calls) == 1 {
		b.WriteByte(',')
		encodeCall(b, calls[0])
		return
	}
	b.WriteString(`,"calls":[`)
	for i, c := range calls {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		encodeCall(b, c)
		b.WriteByte('}')
	}
	b.WriteByte(']')
}

func encodeCall(b *strings.Builder, c Call) {
	arguments := string(c.Arguments)
	if c.Arguments == nil {
		arguments = "{}"
	}
	b.WriteString(`"name":` + encodeString(c.Name) + `,"arguments":` + arguments)
}

// size is about how many bytes the message takes.
func (m Message) size() int {
	n := 128 + len(m.Thought) + len(m.Question) + len(m.AnswerSchema) + len(m.Answer)
	for _, s := range m.Plan {
		n += 64 + len(s.Step) + len(s.Result)
	}
	for _, c := range m.Calls {
		n += 64 + len(c.Name) + len(c.Arguments)
	}
	return n
}

// encodeString writes a JSON string without the HTML escapes of json.Marshal, which cost a model tokens.
func encodeString(s string) string {
	if needsNoEscape(s) {
		return `"` + s + `"`
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("plan: a string does not encode: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// needsNoEscape reports whether a string can be written to JSON as it is. Letters beyond ASCII are left to the encoder, which knows what
// is valid.
func needsNoEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
