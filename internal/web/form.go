package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// maxDeep is how many objects within objects a form shows as fields; what lies deeper is asked for as JSON.
const maxDeep = 3

// maxFields is how many fields a form has at most; a larger schema is answered with JSON.
const maxFields = 40

// kinds of field.
const (
	kindText    = "text"
	kindNumber  = "number"
	kindInteger = "integer"
	kindBool    = "boolean"
	kindEnum    = "enum"
	kindJSON    = "json"
)

// field is one input of a form that asks for a JSON value.
type field struct {
	Name     string   // of the input
	Path     []string // of the property within the value; empty: the whole value
	Label    string
	Hint     string
	Kind     string
	Required bool
	Options  []option
	Value    string // what was typed
	Problem  string // what is wrong with it
}

type option struct{ Value, Label string }

// schema is what a form understands of a JSON Schema. The worker checks answers against all of it.
type schema struct {
	Type        any               `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Required    []string          `json:"required"`
	Properties  members           `json:"properties"`
}

// members are the properties of an object in the order in which they are written.
type members []member

type member struct {
	Name  string
	Value json.RawMessage
}

// UnmarshalJSON keeps the order, which a map would lose.
func (m *members) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if opening, err := dec.Token(); err != nil || opening != json.Delim('{') {
		return errors.New("properties is no object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		next := member{Name: fmt.Sprint(name)}
		if err := dec.Decode(&next.Value); err != nil {
			return err
		}
		*m = append(*m, next)
	}
	return nil
}

// fieldsOf makes a form of a schema. What it can't show as fields is asked for as JSON.
func fieldsOf(answerSchema json.RawMessage) []field {
	fields := collect(answerSchema, nil, "Answer", true)
	if len(fields) > maxFields {
		return []field{{Name: "value", Label: "Answer", Kind: kindJSON, Required: true}}
	}
	return fields
}

func collect(raw json.RawMessage, path []string, label string, required bool) []field {
	f := field{Name: strings.Join(append([]string{"value"}, path...), "."), Path: path, Label: label, Kind: kindJSON, Required: required}
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return []field{f}
	}
	if len(s.Const) > 0 {
		s.Enum = []json.RawMessage{s.Const}
	}
	if s.Title != "" {
		f.Label = s.Title
	}
	f.Hint = s.Description
	switch {
	case len(s.Enum) > 0:
		f.Kind = kindEnum
		for _, value := range s.Enum {
			f.Options = append(f.Options, option{string(value), enumLabel(value)})
		}
	case s.Type == "string":
		f.Kind = kindText
	case s.Type == "number" || s.Type == "integer" || s.Type == "boolean":
		f.Kind = fmt.Sprint(s.Type)
	case s.Type == "object" && len(s.Properties) > 0 && len(path) < maxDeep:
		var all []field
		for _, p := range s.Properties {
			inner := slices.Concat(path, []string{p.Name})
			all = append(all, collect(p.Value, inner, strings.Join(inner, " · "), required && slices.Contains(s.Required, p.Name))...)
		}
		return all
	}
	return []field{f}
}

func enumLabel(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// fill reads what was typed into a form and makes the value. Fields with problems say so; the value is nil then.
func fill(fields []field, form url.Values) (filled []field, value json.RawMessage) {
	if raw := strings.TrimSpace(form.Get("raw")); raw != "" {
		if json.Valid([]byte(raw)) {
			return fields, json.RawMessage(raw)
		}
		return []field{{Name: "raw", Label: "Answer as JSON", Kind: kindJSON, Value: raw, Problem: "This is not valid JSON."}}, nil
	}
	filled = slices.Clone(fields)
	object, sound := map[string]any{}, true
	for i := range filled {
		f := &filled[i]
		f.Value = form.Get(f.Name)
		v, problem := f.read()
		f.Problem = problem
		switch {
		case problem != "":
			sound = false
		case v == nil:
		case len(f.Path) == 0:
			value = v
		default:
			put(object, f.Path, v)
		}
	}
	if !sound {
		return filled, nil
	}
	if value == nil {
		encoded, err := json.Marshal(object)
		if err != nil {
			return filled, nil
		}
		value = encoded
	}
	return filled, value
}

// read makes the JSON value of one field; nil where nothing was said.
func (f *field) read() (value json.RawMessage, problem string) {
	typed := strings.TrimSpace(f.Value)
	if typed == "" {
		if f.Required {
			return nil, "This is needed."
		}
		return nil, ""
	}
	switch f.Kind {
	case kindText:
		return asText(strings.ReplaceAll(f.Value, "\r\n", "\n")), ""
	case kindEnum:
		if !slices.ContainsFunc(f.Options, func(o option) bool { return o.Value == f.Value }) {
			return nil, "Choose one of the options."
		}
		return json.RawMessage(f.Value), ""
	case kindBool:
		if typed != "true" && typed != "false" {
			return nil, "Choose yes or no."
		}
		return json.RawMessage(typed), ""
	case kindNumber, kindInteger:
		var n json.Number
		if json.Unmarshal([]byte(typed), &n) != nil || f.Kind == kindInteger && strings.ContainsAny(typed, ".eE") {
			return nil, "This is not " + map[string]string{kindNumber: "a number, such as 12.5.", kindInteger: "a whole number, such as 12."}[f.Kind]
		}
		return json.RawMessage(typed), ""
	default:
		if json.Valid([]byte(typed)) {
			return json.RawMessage(typed), ""
		}
		if strings.ContainsAny(typed[:1], "{[\"") {
			return nil, "This is not valid JSON."
		}
		return asText(f.Value), ""
	}
}

func asText(text string) json.RawMessage {
	encoded, err := json.Marshal(text)
	if err != nil { // a string can always be encoded
		panic(err)
	}
	return encoded
}

func put(object map[string]any, path []string, value json.RawMessage) {
	for _, name := range path[:len(path)-1] {
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[name] = inner
		}
		object = inner
	}
	object[path[len(path)-1]] = value
}

// questionView is an open question as a page asks it.
type questionView struct {
	Run       loop.RunID
	Goal      string
	Q         loop.Question
	Arguments string // of an approval, as they would go out
	Fields    []field
	Text      string // what was typed where there is no schema
	Reason    string // for a no
	Edited    string // arguments as they were edited
	Remember  bool
	Problem   string // what is wrong with the answer
	Back      string // where to go afterwards
}

func questionOf(id loop.RunID, goal string, q loop.Question, back string) questionView {
	v := questionView{Run: id, Goal: goal, Q: q, Back: back}
	if len(q.AnswerSchema) > 0 && string(q.AnswerSchema) != "null" && q.Kind != loop.KindApproval {
		v.Fields = fieldsOf(q.AnswerSchema)
	}
	if len(q.Arguments) > 0 {
		v.Arguments = indented(q.Arguments)
	}
	return v
}

// Key names the question's card, unique on a page.
func (v questionView) Key() string { return key(v.Run) + "." + v.Q.Question }

// Approval reports whether a yes or no is wanted.
func (v questionView) Approval() bool { return v.Q.Kind == loop.KindApproval }

// errNoDecision says that an approval came without one.
var errNoDecision = errors.New("choose Approve or Refuse")

// answerFrom reads the reply from a form. Where there is none, the view says why.
func (v *questionView) answerFrom(form url.Values, by string) (reply loop.Reply, ok bool) {
	reply = loop.Reply{Question: v.Q.Question, By: by}
	if v.Approval() {
		if err := v.decide(form, &reply); err != nil {
			v.Problem = "Your answer was not sent: " + err.Error() + "."
			return reply, false
		}
		return reply, true
	}
	if len(v.Fields) == 0 {
		v.Text = form.Get("text")
		if reply.Text = strings.TrimSpace(strings.ReplaceAll(v.Text, "\r\n", "\n")); reply.Text == "" {
			v.Problem = "Your answer was not sent: it is empty."
			return reply, false
		}
		return reply, true
	}
	if v.Fields, reply.Value = fill(v.Fields, form); reply.Value == nil {
		v.Problem = "Your answer was not sent: look at the fields below."
		return reply, false
	}
	return reply, true
}

// decide reads the yes or no of an approval. A yes echoes the hash of the arguments that were shown.
func (v *questionView) decide(form url.Values, reply *loop.Reply) error {
	v.Reason, v.Edited, v.Remember = form.Get("reason"), form.Get("arguments"), form.Get("remember") != ""
	switch form.Get("decision") {
	case "refuse":
		no := false
		reply.Approve, reply.Reason = &no, strings.TrimSpace(strings.ReplaceAll(v.Reason, "\r\n", "\n"))
		return nil
	case "approve":
	default:
		return errNoDecision
	}
	yes := true
	reply.Approve, reply.ArgumentsSHA256 = &yes, form.Get("arguments_sha256")
	if v.Remember {
		reply.Remember = v.Q.Tool
	}
	edited := strings.ReplaceAll(v.Edited, "\r\n", "\n")
	if strings.TrimSpace(edited) == "" || edited == v.Arguments {
		return nil
	}
	if !json.Valid([]byte(edited)) {
		return errors.New("the edited arguments are not valid JSON")
	}
	reply.Arguments = json.RawMessage(edited)
	return nil
}
