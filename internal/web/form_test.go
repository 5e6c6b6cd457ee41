package web

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

func TestFieldsOfASchema(t *testing.T) {
	type seen struct {
		Name, Kind string
		Required   bool
	}
	for name, c := range map[string]struct {
		schema string
		want   []seen
	}{
		"text":    {`{"type": "string"}`, []seen{{"value", kindText, true}}},
		"number":  {`{"type": "number"}`, []seen{{"value", kindNumber, true}}},
		"choice":  {`{"enum": ["a", 2, null]}`, []seen{{"value", kindEnum, true}}},
		"list":    {`{"type": "array", "items": {"type": "string"}}`, []seen{{"value", kindJSON, true}}},
		"nothing": {`{}`, []seen{{"value", kindJSON, true}}},
		"broken":  {`7`, []seen{{"value", kindJSON, true}}},
		"object": {
			`{"type": "object", "required": ["z", "deep"], "properties": {"z": {"type": "integer"}, "a": {"type": "boolean"},
			"deep": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}, "y": {"anyOf": []}}}}}`,
			[]seen{{"value.z", kindInteger, true}, {"value.a", kindBool, false}, {"value.deep.x", kindText, true}, {"value.deep.y", kindJSON, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []seen
			for _, f := range fieldsOf(json.RawMessage(c.schema)) {
				got = append(got, seen{f.Name, f.Kind, f.Required})
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFillAForm(t *testing.T) {
	const object = `{"type": "object", "required": ["n"], "properties": {"n": {"type": "number"}, "ok": {"type": "boolean"},
		"kind": {"enum": ["a", 2]}, "in": {"type": "object", "properties": {"x": {"type": "string"}}}, "any": {}}}`
	for name, c := range map[string]struct {
		schema string
		form   url.Values
		want   string // empty: there is a problem
	}{
		"text":              {`{"type": "string"}`, url.Values{"value": {"a\r\nb"}}, `"a\nb"`},
		"digits stay":       {`{"type": "number"}`, url.Values{"value": {"12345678901234567890.10"}}, `12345678901234567890.10`},
		"no number":         {`{"type": "number"}`, url.Values{"value": {"many"}}, ``},
		"no whole number":   {`{"type": "integer"}`, url.Values{"value": {"1.5"}}, ``},
		"empty":             {`{"type": "string"}`, url.Values{"value": {" "}}, ``},
		"no":                {`{"type": "boolean"}`, url.Values{"value": {"false"}}, `false`},
		"not on offer":      {`{"enum": ["a"]}`, url.Values{"value": {`"b"`}}, ``},
		"all of an object":  {object, url.Values{"value.n": {"1"}, "value.ok": {"true"}, "value.kind": {"2"}, "value.in.x": {"y"}, "value.any": {`[1]`}}, `{"any":[1],"in":{"x":"y"},"kind":2,"n":1,"ok":true}`},
		"the least of it":   {object, url.Values{"value.n": {"1"}}, `{"n":1}`},
		"what is needed":    {object, url.Values{"value.ok": {"true"}}, ``},
		"any value as text": {object, url.Values{"value.n": {"1"}, "value.any": {"plain words"}}, `{"any":"plain words","n":1}`},
		"broken JSON":       {object, url.Values{"value.n": {"1"}, "value.any": {`{"a":`}}, ``},
		"raw":               {object, url.Values{"raw": {`{"n": 2}`}}, `{"n": 2}`},
		"broken raw":        {object, url.Values{"raw": {`{n}`}}, ``},
	} {
		t.Run(name, func(t *testing.T) {
			fields, value := fill(fieldsOf(json.RawMessage(c.schema)), c.form)
			if string(value) != c.want {
				t.Errorf("the value is %s, want %s", value, c.want)
			}
			problems := 0
			for _, f := range fields {
				if f.Problem != "" {
					problems++
				}
			}
			if (problems > 0) != (c.want == "") {
				t.Errorf("%d problems in %+v", problems, fields)
			}
		})
	}
}

func TestDecideAnApproval(t *testing.T) {
	yes, no := true, false
	question := loop.Question{Question: "q1", Kind: loop.KindApproval, Tool: "pay", Arguments: json.RawMessage(`{"eur":1.10}`), ArgumentsSHA256: "abc"}
	for name, c := range map[string]struct {
		form url.Values
		want *loop.Reply
	}{
		"nothing chosen": {url.Values{}, nil},
		"no":             {url.Values{"decision": {"refuse"}, "reason": {"too dear"}, "arguments_sha256": {"abc"}}, &loop.Reply{Question: "q1", Approve: &no, Reason: "too dear", By: "ada"}},
		"yes":            {url.Values{"decision": {"approve"}, "arguments": {`{"eur":1.10}`}, "arguments_sha256": {"abc"}}, &loop.Reply{Question: "q1", Approve: &yes, ArgumentsSHA256: "abc", By: "ada"}},
		"yes to what was shown, not to what is asked now": {url.Values{"decision": {"approve"}, "arguments_sha256": {"old"}}, &loop.Reply{Question: "q1", Approve: &yes, ArgumentsSHA256: "old", By: "ada"}},
		"yes, always": {url.Values{"decision": {"approve"}, "remember": {"1"}, "arguments_sha256": {"abc"}}, &loop.Reply{Question: "q1", Approve: &yes, ArgumentsSHA256: "abc", Remember: "pay", By: "ada"}},
		"edited":      {url.Values{"decision": {"approve"}, "arguments": {`{"eur":1}`}, "arguments_sha256": {"abc"}}, &loop.Reply{Question: "q1", Approve: &yes, ArgumentsSHA256: "abc", Arguments: json.RawMessage(`{"eur":1}`), By: "ada"}},
		"broken":      {url.Values{"decision": {"approve"}, "arguments": {`{`}, "arguments_sha256": {"abc"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			view := questionOf(loop.RunID{Tenant: "acme", Run: "r1"}, "", question, "/inbox")
			got, ok := view.answerFrom(c.form, "ada")
			switch {
			case ok != (c.want != nil) || ok != (view.Problem == ""):
				t.Errorf("accepted %v: %s", ok, view.Problem)
			case ok:
				if diff := cmp.Diff(*c.want, got); diff != "" {
					t.Errorf("reply (-want +got):\n%s", diff)
				}
			}
		})
	}
}
