package plan

import (
	"slices"
	"strings"
)

// ReadMove understands a model's reply as one message of the given types without a plan: an object with type, thought and
// what the type has for itself, as in [Read]. A plan in it is ignored. What may stand around the object is as for [Read].
// Whether calls may be made is for [CheckCalls] to say. The error is a *[Violation].
func ReadMove(text string, types ...Type) (Message, error) {
	shapes := make([]string, len(types))
	for i, t := range types {
		shapes[i] = moveShapes[t]
	}
	send := "Send " + strings.Join(shapes, " or ") + "."
	text, object, v := find(text, advice{send: send, unlist: "send it without the list.", single: "Send one of them."})
	if v != nil {
		return Message{}, v
	}
	m, v := (&reader{text}).move(object, types, send)
	if v != nil {
		return Message{}, v
	}
	return m, nil
}

// moveShapes are how corrections show the messages.
var moveShapes = map[Type]string{
	ToolCall:    `{"type": "tool_call", "thought": "…", "calls": [{"name": "…", "arguments": {…}}, …]}`,
	FinalAnswer: `{"type": "final_answer", "thought": "…", "answer": "…"}`,
}

func (r *reader) move(object span, types []Type, send string) (m Message, v *Violation) {
	f, v := r.fields(object, messageFields)
	if v != nil {
		return m, v
	}
	kind, v := r.str(f.get("type"), "type")
	if v != nil {
		return m, v
	}
	m.Type = Type(strings.ToLower(strings.TrimSpace(kind)))
	if !slices.Contains(types, m.Type) {
		return m, violate(RuleUnknownType, "The type is %s, and that has no place here. %s", quote(kind), send)
	}
	if m.Thought, v = r.str(f.get("thought"), "thought"); v != nil {
		return m, v
	}
	if v = r.foreign(m.Type, f); v != nil {
		return m, v
	}
	if v = r.own(&m, f); v != nil {
		return m, v
	}
	if m.Type == FinalAnswer && isBlank(m.Answer) {
		return m, violate(RuleBlankAnswer, "The answer is empty. %s", send)
	}
	return m, nil
}

// CheckCalls says whether calls may be made, and returns them with their arguments as they are to be used. The error is a
// *[Violation].
func CheckCalls(calls []Call, r Rules) ([]Call, error) {
	checked, v := checkCalls(calls, r)
	if v != nil {
		return nil, v
	}
	return checked, nil
}
