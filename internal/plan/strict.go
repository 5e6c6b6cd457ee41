package plan

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Endpoints that hold a model to a JSON Schema strictly want every property required and all others forbidden, and know a few
// keywords only: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas.

// keptKeywords are carried over as they are; loosened ones are left out, since whoever checks the value knows them too.
var (
	keptKeywords = []string{"type", "description", "enum", "const"}
	loosened     = []string{
		"title", "default", "examples", "example", "$schema", "$comment", "$id", "deprecated", "readOnly", "writeOnly", "format",
		"pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
	}
)

// StrictSchema returns a JSON Schema in the form in which endpoints hold models to one strictly. What satisfies it may break
// a bound of the original, and properties of the outermost object that are not required may be null in place of absent. ok is
// false where there is no such form: for an object with free properties, a reference, optional properties further inside.
func StrictSchema(schema json.RawMessage) (strict json.RawMessage, ok bool) {
	var b bytes.Buffer
	if !writeStrict(&b, schema, 0) {
		return nil, false
	}
	return b.Bytes(), true
}

// maxStrictDepth is how deep a strict schema may nest; it goes into another one, and endpoints allow ten levels.
const maxStrictDepth = 5

type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a JSON object in their order; nil for anything else.
func members(object json.RawMessage) []member {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	out := []member{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		out = append(out, member{name.(string), value})
	}
	return out
}

func writeStrict(b *bytes.Buffer, schema json.RawMessage, depth int) bool {
	list := members(schema)
	if list == nil || depth > maxStrictDepth {
		return false
	}
	var kind string
	var properties, items, choices json.RawMessage
	var required []string
	var kept []member
	closed, shaped := true, false
	for _, m := range list {
		switch {
		case m.name == "properties":
			properties = m.value
		case m.name == "items":
			items = m.value
		case m.name == "anyOf" || m.name == "oneOf":
			if choices != nil {
				return false
			}
			choices = m.value
		case m.name == "required":
			if json.Unmarshal(m.value, &required) != nil {
				return false
			}
		case m.name == "additionalProperties":
			closed = string(bytes.TrimSpace(m.value)) == "false"
		case slices.Contains(keptKeywords, m.name):
			kept = append(kept, m)
			shaped = shaped || m.name != "description"
			if m.name == "type" {
				kind = string(m.value)
			}
		case !slices.Contains(loosened, m.name):
			return false
		}
	}
	isObject, isArray := strings.Contains(kind, `"object"`), strings.Contains(kind, `"array"`)
	switch {
	case !closed, isObject != (properties != nil), isArray != (items != nil), !shaped && choices == nil:
		return false
	case choices != nil && (properties != nil || items != nil):
		return false
	}
	b.WriteByte('{')
	for _, m := range kept {
		writeName(b, m.name)
		b.Write(bytes.TrimSpace(m.value))
	}
	switch {
	case isObject && !writeProperties(b, properties, required, depth):
		return false
	case isArray:
		writeName(b, "items")
		if !writeStrict(b, items, depth+1) {
			return false
		}
	}
	if choices != nil && !writeChoices(b, choices, depth) {
		return false
	}
	b.WriteByte('}')
	return true
}

// writeName begins a member.
func writeName(b *bytes.Buffer, name string) {
	if last := b.Bytes()[b.Len()-1]; last != '{' {
		b.WriteByte(',')
	}
	b.Write(encodeName(name))
	b.WriteByte(':')
}

func encodeName(name string) []byte {
	text, err := json.Marshal(name)
	if err != nil {
		panic(err) // a string always encodes
	}
	return text
}

func writeProperties(b *bytes.Buffer, properties json.RawMessage, required []string, depth int) bool {
	list := members(properties)
	if list == nil {
		return false
	}
	names := make([]string, len(list))
	writeName(b, "properties")
	b.WriteByte('{')
	for i, p := range list {
		names[i] = p.name
		writeName(b, p.name)
		optional := !slices.Contains(required, p.name)
		if optional && depth > 0 {
			return false
		}
		if optional {
			b.WriteString(`{"anyOf":[`)
		}
		if !writeStrict(b, p.value, depth+1) {
			return false
		}
		if optional {
			b.WriteString(`,{"type":"null"}]}`)
		}
	}
	b.WriteByte('}')
	writeName(b, "required")
	all, err := json.Marshal(names)
	if err != nil {
		panic(err) // strings always encode
	}
	b.Write(all)
	b.WriteString(`,"additionalProperties":false`)
	return true
}

func writeChoices(b *bytes.Buffer, choices json.RawMessage, depth int) bool {
	var list []json.RawMessage
	if json.Unmarshal(choices, &list) != nil || len(list) == 0 {
		return false
	}
	writeName(b, "anyOf")
	for i, c := range list {
		b.WriteByte("[,"[min(i, 1)])
		if !writeStrict(b, c, depth+1) {
			return false
		}
	}
	b.WriteByte(']')
	return true
}

// WithoutNulls returns arguments without their members that are null, where the schema does not require them: a model that is
// held to a strict schema has no other way to leave them out. ok is false where there are none.
func WithoutNulls(schema, args json.RawMessage) (out json.RawMessage, ok bool) {
	var s struct {
		Required []string `json:"required"`
	}
	list := members(args)
	if list == nil || json.Unmarshal(schema, &s) != nil {
		return nil, false
	}
	b := bytes.NewBufferString("{")
	for _, m := range list {
		if string(m.value) == "null" && !slices.Contains(s.Required, m.name) {
			ok = true
			continue
		}
		writeName(b, m.name)
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes(), ok
}
