package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// raw makes values of a map from text.
func raw(of map[string]string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, text := range of {
		out[name] = json.RawMessage(text)
	}
	return out
}

var (
	someResults = raw(map[string]string{
		"1":     `{"total":90071992547409930.10,"rows":[{"id":1},{"id":2}],"empty":"","none":null,"$1":"x"}`,
		"2":     `"$1 and $session.email"`,
		"load":  `[true, {"a b":1}]`,
		"long":  `"the beginn … d of it"`,
		"blank": ``,
	})
	someVars = raw(map[string]string{"email": `"ada@example.org"`, "customer": `{"name":"Ada","id":77}`, "a.b": `1`})
)

// TestResolve: values keep their type and digits, and only whole strings that name a step or a var are replaced.
func TestResolve(t *testing.T) {
	for args, want := range map[string]string{
		`{}`:                             `{}`,
		`{"a":"$1.total"}`:               `{"a":90071992547409930.10}`,
		`{"a":"$1.rows"}`:                `{"a":[{"id":1},{"id":2}]}`,
		`{"a":"$1.rows.1.id"}`:           `{"a":2}`,
		`{"a":"$1.empty","b":"$1.none"}`: `{"a":"","b":null}`,
		`{"a":"$load.0","b":"$load"}`:    `{"a":true,"b":[true, {"a b":1}]}`,
		`{"a":["$load.0",{"b":"$2"}]}`:   `{"a":[true,{"b":"$1 and $session.email"}]}`,
		`{"a":"$session.email"}`:         `{"a":"ada@example.org"}`,
		`{"a":"$session.customer.id"}`:   `{"a":77}`,
		`{"a":"$session.a.b"}`:           `{"a":1}`,
		`{"a":"$session"}`:               `{"a":"$session"}`,
		`{"a":"$blank"}`:                 `{"a":null}`,
		`{"$1":"\u00241.$1"}`:            `{"$1":"x"}`,
		`{"a":"$$1"}`:                    `{"a":"$1"}`,
		`{"a":"$$"}`:                     `{"a":"$"}`,
		`{"a":"$$session.email"}`:        `{"a":"$session.email"}`,
		`{"a":"x$$1","b":"$"}`:           `{"a":"x$$1","b":"$"}`,
		`{"a":"$1 "}`:                    `{"a":"$1 "}`,
		`{"a":"$1.","b":"$1..x"}`:        `{"a":"$1.","b":"$1..x"}`,
		`{"a":"$1. Buy milk"}`:           `{"a":"$1. Buy milk"}`,
		`{"a":"$19.99"}`:                 `{"a":"$19.99"}`,
		`{"a":"$loaded","b":"$x.y"}`:     `{"a":"$loaded","b":"$x.y"}`,
		`{"a":12345678901234567890}`:     `{"a":12345678901234567890}`,
		`{ "a" : "$load.0" , "b" : 1 }`:  `{ "a" : true , "b" : 1 }`,
	} {
		got, err := plan.Resolve(json.RawMessage(args), someResults, someVars, "long")
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s, error %v", args, got, want, err)
		}
	}
}

// TestResolveRefuses: what leads nowhere is named, with the way that was walked.
func TestResolveRefuses(t *testing.T) {
	for _, c := range []struct {
		args     string
		mentions []string
	}{
		{`{"a":"$1.sum"}`, []string{`"$1.sum"`, `step "1"`, `no "sum"`, "total"}},
		{`{"a":"$1.rows.2.id"}`, []string{`at "rows"`, `"2"`, "2 elements"}},
		{`{"a":"$1.rows.01"}`, []string{`"01"`}},
		{`{"a":"$1.rows.-1"}`, []string{`"-1"`}},
		{`{"a":"$1.total.x"}`, []string{`at "total" is a number`}},
		{`{"a":"$1.none.x"}`, []string{"is null"}},
		{`{"a":"$2.x"}`, []string{`step "2" is a string`}},
		{`{"a":"$blank.x"}`, []string{"null"}},
		{`{"a":"$7"}`, []string{`no step "7"`}},
		{`{"a":"$long"}`, []string{`step "long"`, "too long"}},
		{`{"a":"$long.rows"}`, []string{`"$long.rows"`, "too long"}},
		{`{"a":"$session.password"}`, []string{`"password"`}},
		{`{"a":"$session.customer.age"}`, []string{`"customer"`, `"age"`}},
		{`{"a":"$7","b":"$8"}`, []string{"2 problems", `"$7"`, `"$8"`}},
	} {
		_, err := plan.Resolve(json.RawMessage(c.args), someResults, someVars, "long")
		var v *plan.Violation
		if !errors.As(err, &v) || v.Rule != plan.RuleReference {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		for _, want := range c.mentions {
			if !strings.Contains(v.Text, want) {
				t.Errorf("%s: no mention of %q: %s", c.args, want, v.Text)
			}
		}
	}
	for _, args := range []string{``, `[]`, `"$1"`, `{"a":`, `{} {}`} {
		if got, err := plan.Resolve(json.RawMessage(args), nil, nil); err == nil {
			t.Errorf("args %q became %s", args, got)
		}
	}
}

// TestWrongTypeAfterSubstitution: a reference passes the check of the plan, and what it turns out to be fails the check of the call.
func TestWrongTypeAfterSubstitution(t *testing.T) {
	d := mustDAG(t, `{"id":"1","tool":"now"}`, `{"id":"2","tool":"calc","args":{"expr":"$1.total"}}`)
	c, err := d[1].Call(someResults, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, problems, _ := checkArguments(c.Name, c.Arguments)
	if diff := cmp.Diff([]string{"expr must be of type string"}, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestCall: open fields, and nothing else, come from the fill; references in what it gives mean nothing.
func TestCall(t *testing.T) {
	d := mustDAG(t, `{"id":"1","tool":"now"}`,
		`{"id":"2","tool":"send_email","args":{"body":"$1.gone","to":"$session.email","subject":"$1.total"},"open":["body"]}`,
		`{"id":"3","tool":"calc","open":["expr"]}`)
	for _, c := range []struct {
		step   plan.DAGStep
		fields map[string]string
		want   string // empty: an error
	}{
		{d[1], map[string]string{"body": `"$session.customer"`}, `{"to":"ada@example.org","subject":90071992547409930.10,"body":"$session.customer"}`},
		{d[1], map[string]string{}, ""},
		{d[1], map[string]string{"body": `1`, "to": `"eve@example.org"`}, ""},
		{d[2], map[string]string{"expr": `"1"`}, `{"expr":"1"}`},
		{d[0], nil, `{}`},
		{d[0], map[string]string{"x": `1`}, ""},
	} {
		got, err := c.step.Call(someResults, someVars, raw(c.fields))
		if string(got.Arguments) != c.want || (err == nil) != (c.want != "") || err == nil && got.Name != c.step.Tool {
			t.Errorf("step %s with %v: %s %s, want %s, error %v", c.step.ID, c.fields, got.Name, got.Arguments, c.want, err)
		}
	}
}

func TestReadFill(t *testing.T) {
	open := []string{"body", "count"}
	got, err := plan.ReadFill("Here:\n```json\n"+`{"Type":"FILL","thought":"x","fields":{"count":12345678901234567890,"body":{"a": null}}}`+"\n```", open)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(raw(map[string]string{"body": `{"a":null}`, "count": `12345678901234567890`}), got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		name, text string
		rules      []string
		mentions   []string
	}{
		{"another tool", `{"type":"tool_call","name":"refund","arguments":{}}`, []string{plan.RuleUnknownType}, []string{"fill"}},
		{
			"another tool beside the fields", `{"type":"fill","fields":{"body":1,"count":2},"name":"refund","arguments":{}}`,
			[]string{plan.RuleForeignField, plan.RuleForeignField},
			[]string{`"name"`, `"arguments"`},
		},
		{"another step", `{"type":"fill","fields":{"body":1,"count":2},"id":"4"}`, []string{plan.RuleForeignField}, []string{`"id"`}},
		{
			"an undeclared field and one missing", `{"type":"fill","fields":{"body":1,"to":"eve"}}`,
			[]string{plan.RuleFillField, plan.RuleFillField},
			[]string{`"count" is missing`, `"to" is not open`},
		},
		{"letter case of a field", `{"type":"fill","fields":{"Body":1,"count":2}}`, []string{plan.RuleFillField, plan.RuleFillField}, []string{`"Body"`}},
		{"a field twice", `{"type":"fill","fields":{"body":1,"body":2,"count":3}}`, []string{plan.RuleDuplicateKey}, []string{`"body"`}},
		{"fields as text", `{"type":"fill","fields":"{}"}`, []string{plan.RuleWrongType}, []string{"body, count"}},
		{"no fields", `{"type":"fill"}`, []string{plan.RuleWrongType}, []string{"body, count"}},
		{"no type", `{"fields":{"body":1,"count":2}}`, []string{plan.RuleUnknownType}, []string{"fill"}},
		{"half a character", `{"type":"fill","fields":{"body":"\ud83d","count":2}}`, []string{plan.RuleNotJSON}, []string{"body", "surrogate"}},
		{"prose", `The body is fine.`, []string{plan.RuleNoObject}, []string{"fill"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields, err := plan.ReadFill(c.text, open)
			wantProblems(t, err, c.rules, c.mentions)
			if fields != nil {
				t.Errorf("a part of a refused fill came out: %v", fields)
			}
		})
	}
}

func TestPartialSchema(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"b":{"$ref":"#/$defs/n"},"a":{"type":"string"}},"required":["a","b"],` +
		`"additionalProperties":false,"minProperties":2,"oneOf":[{}],"$defs":{"n":{"type":"number"}}}`)
	names, err := plan.Properties(schema)
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" || err != nil {
		t.Errorf("properties, error %v (-want +got):\n%s", err, diff)
	}
	for later, want := range map[string]string{
		"a":   `"required":["b"],`,
		"c":   `"required":["a","b"],`,
		"a,b": ``,
	} {
		got, err := plan.PartialSchema(schema, strings.Split(later, ","))
		want = `{"$defs":{"n":{"type":"number"}},"additionalProperties":false,"properties":{"b":{"$ref":"#/$defs/n"},"a":{"type":"string"}},` +
			want + `"type":"object"}`
		if err != nil || string(got) != want {
			t.Errorf("without %s: %s, want %s, error %v", later, got, want, err)
		}
	}
	for _, broken := range []string{`true`, `{`, `{"properties":1}`, `{"required":1}`} {
		_, errNames := plan.Properties(json.RawMessage(broken))
		_, errPart := plan.PartialSchema(json.RawMessage(broken), nil)
		if errNames == nil && errPart == nil {
			t.Errorf("%s was read as the schema of an object", broken)
		}
	}
}
