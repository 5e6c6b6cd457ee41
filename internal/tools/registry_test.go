package tools

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ratchet/internal/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anyObject is a schema that takes every object.
const anyObject = `{"type":"object"}`

// fake returns a tool that answers ok, changed by the functions.
func fake(name string, change ...func(*Tool)) Tool {
	t := Tool{
		Spec: loop.ToolSpec{Name: name, Description: "does " + name, Schema: json.RawMessage(anyObject), Effect: loop.EffectRead},
		Run:  func(context.Context, loop.Invocation) (any, error) { return "ok", nil },
	}
	for _, f := range change {
		f(&t)
	}
	return t
}

func registry(t *testing.T, tools ...Tool) *Registry {
	t.Helper()
	r, err := New(Config{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNewRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"clash": {
			Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Source = "file.yaml" }), fake("a", func(t *Tool) { t.Spec.Source = "nats" })}},
			"a is offered by file.yaml and by nats",
		},
		"name":             {Config{Tools: []Tool{fake("a b")}}, `"a b"`},
		"long name":        {Config{Tools: []Tool{fake(strings.Repeat("a", 65))}}, "1 to 64"},
		"no name":          {Config{Tools: []Tool{fake("")}}, "1 to 64"},
		"no description":   {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Description = " " })}}, "no description"},
		"no function":      {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Run = nil })}}, "no function"},
		"effect":           {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Effect = "twice" })}}, `effect is "twice"`},
		"no schema":        {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = nil })}}, "no JSON Schema"},
		"schema no JSON":   {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage("{") })}}, "read the JSON Schema"},
		"schema wrong":     {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage(`{"type":"text"}`) })}}, "JSON Schema"},
		"remote ref":       {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage(`{"$ref":"https://example.org/s.json"}`) })}}, "only references within"},
		"file ref":         {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage(`{"$ref":"file:///etc/hostname"}`) })}}, "only references within"},
		"example":          {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Example = json.RawMessage(`[]`) })}}, "its example does not satisfy"},
		"guard missing":    {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Guard = "b" })}}, `guard tool "b"`},
		"own guard":        {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Guard = "a" })}}, `guard tool "a"`},
		"reconcile":        {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Reconcile = "b" })}}, `reconcile tool "b"`},
		"timeout":          {Config{Timeout: -1}, "timeout"},
		"tool timeout":     {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Timeout = -1 })}}, "timeout"},
		"max result":       {Config{MaxResult: 1}, "max result"},
		"tool max result":  {Config{Tools: []Tool{fake("a", func(t *Tool) { t.MaxResult = 1 })}}, "max result"},
		"max full":         {Config{MaxFull: 300}, "max full"},
		"duplicate schema": {Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage(`{"type":"object","type":"object"}`) })}}, "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.config)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestNewFillsIn(t *testing.T) {
	r := registry(t, fake("a", func(t *Tool) { t.Spec.Effect = ""; t.Sample = true }))
	specs, _ := r.Offer(nil)
	got := specs[0]
	if got.Check == nil || got.CheckPart == nil || len(got.Digest) != 64 {
		t.Errorf("check %p, digest %q", got.Check, got.Digest)
	}
	got.Check, got.CheckPart, got.Digest = nil, nil, ""
	want := loop.ToolSpec{Name: "a", Description: "[sample data] does a", Schema: json.RawMessage(anyObject), Effect: loop.EffectOnce, Timeout: 30 * time.Second, Source: "builtin"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOffer(t *testing.T) {
	r := registry(t, fake("get_b"), fake("buy"), fake("get_a"), fake("check", func(t *Tool) { t.Internal = true }))
	for name, test := range map[string]struct{ globs, want, unknown []string }{
		"nil means all":   {nil, []string{"buy", "get_a", "get_b"}, nil},
		"empty is none":   {[]string{}, nil, nil},
		"glob":            {[]string{"get_*"}, []string{"get_a", "get_b"}, nil},
		"overlap":         {[]string{"get_*", "get_a", "*"}, []string{"buy", "get_a", "get_b"}, nil},
		"unknown name":    {[]string{"get_a", "sell"}, []string{"get_a"}, []string{"sell"}},
		"glob of nothing": {[]string{"sell_*"}, nil, nil},
		"malformed":       {[]string{"[", "buy"}, []string{"buy"}, []string{"["}},
		"internal":        {[]string{"check"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			specs, unknown := r.Offer(test.globs)
			var got []string
			for _, s := range specs {
				got = append(got, s.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.unknown, unknown); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTyped(t *testing.T) {
	type place struct {
		City string `json:"city"`
	}
	type arguments struct {
		Name   string                     `json:"name" jsonschema:"who"`
		Count  int                        `json:"count,omitempty"`
		Price  json.Number                `json:"price,omitempty"`
		Places []place                    `json:"places,omitempty"`
		Any    json.RawMessage            `json:"any,omitempty"`
		Named  map[string]json.RawMessage `json:"named,omitempty"`
	}
	var got arguments
	tool := Typed(fake("typed"), func(_ context.Context, _ loop.Invocation, a arguments) (any, error) { got = a; return nil, nil })
	wantSchema := `{"type":"object","properties":{"name":{"type":"string","description":"who"},"count":{"type":"integer"},"price":{"type":"number"},` +
		`"places":{"type":"array","items":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}},` +
		`"any":true,"named":{"type":"object","additionalProperties":true}},"required":["name"],"additionalProperties":false}`
	var want, have any
	if err := json.Unmarshal([]byte(wantSchema), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(tool.Spec.Schema, &have); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	r := registry(t, tool)
	out := r.Call(t.Context(), loop.Invocation{Tool: "typed", Arguments: json.RawMessage(
		`{"name":"n","count":"3","price":9007199254740993.5,"places":[{"city":"Oslo"}],"any":[1,"x"],"named":{"k":null}}`)})
	if out.Status != loop.ObservedOK || string(out.Result) != "null" {
		t.Fatalf("%s %s", out.Status, out.Result)
	}
	wantArgs := arguments{
		Name: "n", Count: 3, Price: "9007199254740993.5", Places: []place{{"Oslo"}},
		Any: json.RawMessage(`[1,"x"]`), Named: map[string]json.RawMessage{"k": json.RawMessage("null")},
	}
	if diff := cmp.Diff(wantArgs, got); diff != "" {
		t.Error(diff)
	}
}

func TestTypedPanics(t *testing.T) {
	for name, make := range map[string]func(){
		"no struct": func() {
			Typed(fake("a"), func(context.Context, loop.Invocation, string) (any, error) { return nil, nil })
		},
		"channel": func() {
			Typed(fake("a"), func(context.Context, loop.Invocation, struct{ C chan int }) (any, error) { return nil, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			make()
		})
	}
}
