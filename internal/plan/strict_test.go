package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

func TestStrictSchema(t *testing.T) {
	for name, c := range map[string]struct{ schema, want string }{
		"required in order": {
			`{"type":"object","properties":{"b":{"type":"string","minLength":1},"a":{"type":"integer","description":"how \"many\""}},"required":["a","b"]}`,
			`{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer","description":"how \"many\""}},"required":["b","a"],"additionalProperties":false}`,
		},
		"optional": {
			`{"type":"object","title":"t","properties":{"a":{"enum":[1,2],"default":1}},"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"anyOf":[{"enum":[1,2]},{"type":"null"}]}},"required":["a"],"additionalProperties":false}`,
		},
		"nothing": {
			`{"type":"object","properties":{}}`, `{"type":"object","properties":{},"required":[],"additionalProperties":false}`,
		},
		"nested": {
			`{"type":"object","required":["a"],"properties":{"a":{"type":["array","null"],"items":{"oneOf":[{"type":"null"},{"type":"object","properties":{"x":{"const":1}},"required":["x"]}]}}}}`,
			`{"type":"object","properties":{"a":{"type":["array","null"],"items":{"anyOf":[{"type":"null"},{"type":"object","properties":{"x":{"const":1}},"required":["x"],"additionalProperties":false}]}}},"required":["a"],"additionalProperties":false}`,
		},
		"free object":       {`{"type":"object"}`, ""},
		"free properties":   {`{"type":"object","properties":{},"additionalProperties":true}`, ""},
		"typed properties":  {`{"type":"object","properties":{},"additionalProperties":{"type":"string"}}`, ""},
		"anything":          {`{}`, ""},
		"described":         {`{"description":"anything"}`, ""},
		"true":              {`true`, ""},
		"reference":         {`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"],"$defs":{"a":{}}}`, ""},
		"optional inside":   {`{"type":"object","required":["a"],"properties":{"a":{"type":"object","properties":{"b":{"type":"string"}}}}}`, ""},
		"free items":        {`{"type":"array"}`, ""},
		"condition":         {`{"type":"object","properties":{},"if":{}}`, ""},
		"both choices":      {`{"anyOf":[{"type":"string"}],"oneOf":[{"type":"string"}]}`, ""},
		"no choice":         {`{"anyOf":[]}`, ""},
		"properties, alone": {`{"properties":{}}`, ""},
		"cut":               {`{"type":"object","properties":{`, ""},
		"deep": {
			`{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}}}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := plan.StrictSchema(json.RawMessage(c.schema))
			if ok != (c.want != "") {
				t.Fatalf("ok %v: %s", ok, got)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWithoutNulls(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["a"]}`)
	for args, want := range map[string]string{
		`{"a":null,"b":null,"c":0}`: `{"a":null,"c":0}`,
		`{"a":1,"b":{"c":null}}`:    "",
		`{"b":null}`:                `{}`,
		`[null]`:                    "",
		`null`:                      "",
	} {
		got, ok := plan.WithoutNulls(schema, json.RawMessage(args))
		if ok != (want != "") || ok && string(got) != want {
			t.Errorf("%s: %s, %v, want %s", args, got, ok, want)
		}
	}
}
