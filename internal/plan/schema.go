package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Properties returns the names of the properties in a JSON Schema of an object, sorted: the arguments that a tool has. Those
// that it only allows, by a pattern or because it refuses none, are not among them.
func Properties(schema json.RawMessage) ([]string, error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("read the properties of a schema: %w", err)
	}
	return slices.Sorted(maps.Keys(s.Properties)), nil
}

// partKeywords are the keywords of an object's schema that can be judged while properties are missing: each looks at one
// property by itself, or leads to a definition. Keywords that look at the object as a whole, such as oneOf, if, $ref or
// minProperties, wait until it is whole.
var partKeywords = map[string]bool{
	"$schema": true, "$id": true, "$defs": true, "definitions": true, "type": true, "properties": true,
	"patternProperties": true, "additionalProperties": true, "propertyNames": true, "required": true,
}

// PartialSchema returns the JSON Schema that an object must satisfy while the properties named in later are still missing from
// it: they are not required, and what can only be judged of the whole object is left out. So a problem that it finds
// is one of the whole object too.
func PartialSchema(schema json.RawMessage, later []string) (json.RawMessage, error) {
	var s map[string]json.RawMessage
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("read a schema to check a part of the arguments: %w", err)
	}
	maps.DeleteFunc(s, func(keyword string, _ json.RawMessage) bool { return !partKeywords[keyword] })
	if raw, ok := s["required"]; ok {
		var required []string
		if err := json.Unmarshal(raw, &required); err != nil {
			return nil, fmt.Errorf("read the required properties of a schema: %w", err)
		}
		required = slices.DeleteFunc(required, func(name string) bool { return slices.Contains(later, name) })
		if len(required) == 0 {
			delete(s, "required") // an empty list is an error in old drafts
		} else {
			s["required"], _ = json.Marshal(required) // strings always encode
		}
	}
	out, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write the schema of a part of the arguments: %w", err)
	}
	return out, nil
}
