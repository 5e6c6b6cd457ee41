package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// messageFields are the fields that mean something in a message; others are ignored.
var messageFields = []string{"type", "thought", "plan", "name", "arguments", "calls", "question", "answer_schema", "answer"}

// ownFields says which fields a type has besides type, thought and plan.
var ownFields = map[Type][]string{
	CreatePlan:    nil,
	UpdatePlan:    nil,
	ToolCall:      {"name", "arguments", "calls"},
	ReasoningStep: nil,
	AskUser:       {"question", "answer_schema"},
	FinalAnswer:   {"answer"},
}

var (
	stepFields = []string{"step", "status", "result"}
	callFields = []string{"name", "arguments"}
)

// values are the values of an object's known fields, in the order of their names; an absent one is the zero span.
type values struct {
	names []string
	spans [9]span // as many as a message has fields
}

func (f *values) get(name string) span { return f.spans[slices.Index(f.names, name)] }

// reader turns text that was scanned before into a message. Its spans are of well-formed JSON values.
type reader struct{ text string }

func (r *reader) message(object span) (Message, *Violation) {
	f, v := r.fields(object, messageFields)
	if v != nil {
		return Message{}, v
	}
	var missing []string
	for _, name := range []string{"type", "plan"} {
		if r.absent(f.get(name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return Message{}, violate(RuleMissingField, "The object has no %s. Every message has a type, one of %s, a thought, and the "+
			"whole current plan: a list of %s.", strings.Join(missing, " and no "), typeList(), stepShape)
	}
	var m Message
	kind, v := r.str(f.get("type"), "type")
	if v != nil {
		return Message{}, v
	}
	m.Type = Type(strings.ToLower(strings.TrimSpace(kind)))
	if _, known := ownFields[m.Type]; !known {
		return Message{}, unknownType(m.Type)
	}
	if m.Thought, v = r.str(f.get("thought"), "thought"); v != nil {
		return Message{}, v
	}
	if m.Plan, v = r.plan(f.get("plan")); v != nil {
		return Message{}, v
	}
	if v = r.foreign(m.Type, f); v != nil {
		return Message{}, v
	}
	if v = r.own(&m, f); v != nil {
		return Message{}, v
	}
	return m, nil
}

// own reads the fields that the message's type has for itself.
func (r *reader) own(m *Message, f values) (v *Violation) {
	switch m.Type {
	case ToolCall:
		m.Calls, v = r.calls(f)
	case AskUser:
		if m.Question, v = r.str(f.get("question"), "question"); v == nil {
			m.AnswerSchema, v = r.raw(f.get("answer_schema"))
		}
	case FinalAnswer:
		m.Answer, v = r.str(f.get("answer"), "answer")
	case CreatePlan, UpdatePlan, ReasoningStep:
	}
	return v
}

// foreign refuses fields of other types that are not blank: following the type would drop what they say.
func (r *reader) foreign(t Type, f values) *Violation {
	for _, name := range messageFields[3:] {
		if slices.Contains(ownFields[t], name) || !r.says(f.get(name)) {
			continue
		}
		return violate(RuleForeignField, "The field %s has no place in a message of type %s. Leave it out, or send it in a message of "+
			"its own type.", name, t)
	}
	return nil
}

func (r *reader) calls(f values) ([]Call, *Violation) {
	single, several := r.says(f.get("name")), r.says(f.get("calls"))
	switch {
	case several && (single || r.says(f.get("arguments"))):
		return nil, violate(RuleNameAndCalls, "The tool_call has both calls and name or arguments. Send name and arguments for one "+
			"call, or only calls for several.")
	case several:
		return r.callList(f.get("calls"))
	case single:
		c, v := r.call(f, "")
		return []Call{c}, v
	default:
		return nil, nil
	}
}

func (r *reader) callList(list span) ([]Call, *Violation) {
	items, v := r.list(list, "calls", `a list of {"name": "…", "arguments": {…}}`)
	if v != nil {
		return nil, v
	}
	calls := make([]Call, 0, len(items))
	for n, item := range items {
		where := fmt.Sprintf("calls[%d]", n)
		if k := kindAt(r.text, item.from); k != "an object" {
			return nil, violate(RuleWrongType, `%s is %s. Each call is {"name": "…", "arguments": {…}}.`, where, k)
		}
		f, v := r.fields(item, callFields)
		if v != nil {
			return nil, v
		}
		c, v := r.call(f, where+".")
		if v != nil {
			return nil, v
		}
		if isBlank(c.Name) {
			return nil, violate(RuleNoCall, `%s names no tool. Each call is {"name": "…", "arguments": {…}}.`, where)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

func (r *reader) call(f values, where string) (c Call, v *Violation) {
	if c.Name, v = r.str(f.get("name"), where+"name"); v != nil {
		return c, v
	}
	c.Arguments, v = r.raw(f.get("arguments"))
	if c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	return c, v
}

func (r *reader) plan(list span) (Plan, *Violation) {
	items, v := r.list(list, "plan", "a list of "+stepShape)
	if v != nil {
		return nil, v
	}
	p := make(Plan, 0, len(items))
	for n, item := range items {
		if k := kindAt(r.text, item.from); k != "an object" {
			return nil, violate(RuleWrongType, "Step %d of the plan is %s. Each step is %s.", n+1, k, stepShape)
		}
		s, v := r.step(item)
		if v != nil {
			return nil, &Violation{Rule: v.Rule, Text: fmt.Sprintf("In step %d of the plan: %s", n+1, v.Text)}
		}
		p = append(p, s)
	}
	return p, nil
}

func (r *reader) step(object span) (s Step, v *Violation) {
	f, v := r.fields(object, stepFields)
	if v != nil {
		return s, v
	}
	if s.Step, v = r.str(f.get("step"), "step"); v != nil {
		return s, v
	}
	status, v := r.str(f.get("status"), "status")
	if v != nil {
		return s, v
	}
	s.Status = Status(strings.ToLower(strings.TrimSpace(status)))
	result := f.get("result")
	if r.absent(result) {
		return s, nil
	}
	if r.text[result.from] == '"' {
		s.Result = Result(unquote(r.text[result.from:result.to]))
		return s, nil
	}
	raw, v := r.raw(result)
	s.Result = Result(raw)
	return s, v
}

// fields returns the values of an object's known fields. Letter case of keys is forgiven, unless two of them differ in
// nothing else.
func (r *reader) fields(object span, known []string) (values, *Violation) {
	s := scanner{text: r.text, again: true}
	f := values{names: known}
	for i := s.space(object.from + 1); r.text[i] != '}'; {
		keyFrom := i
		keyTo, v := s.str(i)
		if v != nil {
			return f, v
		}
		from := s.space(s.space(keyTo) + 1) // after the colon
		to, v := s.value(from, 1)
		if v != nil {
			return f, v
		}
		key := unquote(r.text[keyFrom:keyTo])
		if at := indexFold(known, key); at >= 0 {
			if f.spans[at].to > 0 {
				return f, violate(RuleDuplicateKey, "The key %s %s is in its object a second time, in other letter case. Send each key "+
					"once, in lower case.", quote(key), place(r.text, keyFrom))
			}
			f.spans[at] = span{from, to}
		}
		if i = s.space(to); r.text[i] == ',' {
			i = s.space(i + 1)
		}
	}
	return f, nil
}

// indexFold finds a key among names, as written or in other letter case.
func indexFold(names []string, key string) int {
	if at := slices.Index(names, key); at >= 0 {
		return at
	}
	return slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key) })
}

// list returns the elements of a list.
func (r *reader) list(list span, name, want string) ([]span, *Violation) {
	if k := kindAt(r.text, list.from); k != "a list" {
		return nil, violate(RuleWrongType, "%s is %s. It must be %s.", name, k, want)
	}
	s := scanner{text: r.text, again: true}
	items := make([]span, 0, 16)
	for i := s.space(list.from + 1); r.text[i] != ']'; {
		to, v := s.value(i, 1)
		if v != nil {
			return nil, v
		}
		items = append(items, span{i, to})
		if i = s.space(to); r.text[i] == ',' {
			i = s.space(i + 1)
		}
	}
	return items, nil
}

// str returns the text of a string; an absent one is empty.
func (r *reader) str(value span, name string) (string, *Violation) {
	if r.absent(value) {
		return "", nil
	}
	if k := kindAt(r.text, value.from); k != "a string" {
		return "", violate(RuleWrongType, "%s is %s. It must be a string.", name, k)
	}
	return unquote(r.text[value.from:value.to]), nil
}

// raw returns a value as compact JSON with numbers as written; an absent one is nil. It goes to other programs, and half
// of a surrogate pair would be read differently by each of them, so that is refused.
func (r *reader) raw(value span) (json.RawMessage, *Violation) {
	if r.absent(value) {
		return nil, nil
	}
	s := scanner{text: r.text, pairs: true, again: true}
	if _, v := s.value(value.from, 1); v != nil {
		return nil, v
	}
	var compact bytes.Buffer
	compact.Grow(value.to - value.from)
	if err := json.Compact(&compact, []byte(r.text[value.from:value.to])); err != nil {
		panic("plan: a scanned value is not JSON: " + err.Error())
	}
	return compact.Bytes(), nil
}

// absent reports whether a field is missing or null.
func (r *reader) absent(value span) bool { return value.to == 0 || r.text[value.from] == 'n' }

// says reports whether a field says anything: it is there, and no empty object or list, and no string of white space.
func (r *reader) says(value span) bool {
	if r.absent(value) {
		return false
	}
	text := r.text[value.from:value.to]
	switch text[0] {
	case '"':
		return !isBlank(unquote(text))
	case '{', '[':
		return !isBlank(text[1 : len(text)-1])
	default:
		return true
	}
}

func unknownType(t Type) *Violation {
	return violate(RuleUnknownType, "There is no type %s. The types are %s.", quote(string(t)), typeList())
}
