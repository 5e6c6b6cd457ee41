package plan

import (
	"encoding/json"
	"slices"
	"strings"
)

// Fill is the type of a reply that sets a step's open fields. It has no place in plan_react.
const Fill Type = "fill"

const fillShape = `{"type": "fill", "fields": {…}}`

// oneFill is the advice for replies that must be a fill.
var oneFill = advice{
	send:   "Send " + fillShape + " with exactly the fields that were asked for.",
	unlist: "send " + fillShape + ".",
	single: "Send one " + fillShape + ".",
}

// ReadFill understands a model's reply as {"type": "fill", "fields": {…}} and returns the fields, which are exactly the
// open ones. What may stand around the object is as for [Read]. A thought beside them is ignored; any other field is refused,
// since a fill decides about nothing but values. Values are kept as written. The error is a *[Violation] that lists every
// field that is missing or that nobody asked for.
func ReadFill(text string, open []string) (map[string]json.RawMessage, error) {
	text, object, v := find(text, oneFill)
	if v != nil {
		return nil, v
	}
	fields, v := (&reader{text}).fill(object, open)
	if v != nil {
		return nil, v
	}
	return fields, nil
}

func (r *reader) fill(object span, open []string) (map[string]json.RawMessage, *Violation) {
	f, v := r.fields(object, []string{"type", "fields", "thought"})
	if v != nil {
		return nil, v
	}
	kind, v := r.str(f.get("type"), "type")
	if v != nil {
		return nil, v
	}
	if Type(strings.ToLower(strings.TrimSpace(kind))) != Fill {
		return nil, violate(RuleUnknownType, "The type is %s, but only fill has a place here. %s", quote(kind), oneFill.send)
	}
	var found problems
	for key := range r.members(object) {
		if name := unquote(r.text[key.from:key.to]); indexFold(f.names, name) < 0 {
			found.add(RuleForeignField, "The object has a field %s: a fill has only type and fields.", quote(name))
		}
	}
	values := f.get("fields")
	if r.absent(values) || kindAt(r.text, values.from) != "an object" {
		found.add(RuleWrongType, "fields must be an object with %s.", fieldList(open))
		return nil, found.violation()
	}
	fields := map[string]json.RawMessage{}
	for key, value := range r.members(values) {
		name := unquote(r.text[key.from:key.to])
		if fields[name], v = r.raw(value); v != nil {
			found.take(name, v)
		}
		fields[name] = orNull(fields[name])
	}
	found = append(found, exactly(open, fields)...)
	if v := found.violation(); v != nil {
		return nil, v
	}
	return fields, nil
}

// exactly lists how fields differ from the open ones.
func exactly(open []string, fields map[string]json.RawMessage) (found problems) {
	for _, name := range open {
		if _, ok := fields[name]; !ok {
			found.add(RuleFillField, "The open field %s is missing.", quote(name))
		}
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		if !slices.Contains(open, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		found.add(RuleFillField, "The field %s is not open; open are %s.", quote(name), fieldList(open))
	}
	return found
}
