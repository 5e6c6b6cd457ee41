package loop

import (
	"encoding/json"
	"testing"

	"ratchet/internal/plan"
)

// sameAsJSON fails where an event writes itself otherwise than encoding/json would, and returns whether it does at all.
func sameAsJSON(t *testing.T, d Data) bool {
	t.Helper()
	got, ok := appendData(nil, d)
	if !ok {
		return false
	}
	want, err := encodeJSON(d)
	if err != nil {
		t.Fatalf("%#v writes itself, and encoding/json says: %v", d, err)
	}
	if string(got) != string(want) {
		t.Errorf("%T:\n got %s\nwant %s", d, got, want)
	}
	return true
}

func TestEventsWriteThemselvesAsJSON(t *testing.T) {
	usage := &Usage{PromptTokens: 900, CompletionTokens: 90, CostUSD: 0.00125}
	made := Made{Model: `m "1"`, Usage: usage, Seen: 3, Asked: 4, Room: 5, Lost: 6, MS: 7}
	steps := plan.Plan{{Step: "Add <b> & \"c\"", Status: "done", Result: "é <42> \u2028"}, {Step: "Say", Status: "pending"}}
	answer := "all\nis\tsaid"
	for _, d := range []Data{
		Call{Calls: []ToolCall{
			{Call: "c1", Tool: "add", Arguments: json.RawMessage(`{ "a" : "<1>", "b": [1, 2] }`), Effect: EffectRead, Step: "s", Written: json.RawMessage(`{"a": 1 }`)},
			{Call: "c2", Tool: "add", Effect: EffectOnce},
		}, Thought: "t", Plan: steps, Made: made},
		Call{Calls: []ToolCall{}},
		Observation{Call: "c1", Step: "s", Tool: "add", Status: ObservedOK, Result: json.RawMessage(` {"x": "\u003c"} `), Truncated: true, Blob: "b", MS: 12},
		Observation{Tool: "add", Status: ObservedError, Result: json.RawMessage(`"no"`)},
		Observation{},
		Thought{Thought: "t", Plan: steps, Answer: &answer, Made: made},
		Thought{Made: Made{Usage: &Usage{}}},
		Thought{Plan: plan.Plan{}, Thought: "half \xff of it"},
	} {
		if !sameAsJSON(t, d) {
			t.Errorf("%#v does not write itself", d)
		}
	}
	for _, d := range []Data{
		Call{},
		Thought{Ask: &Asking{Question: "Which?"}},
		Observation{Result: json.RawMessage(`{"broken"`)},
		Note{Text: "x"},
		Call{Calls: []ToolCall{{Arguments: json.RawMessage(`]`)}}},
	} {
		if got, ok := appendData(nil, d); ok {
			t.Errorf("%#v writes itself: %s", d, got)
		}
	}
}

func FuzzEventsWriteThemselvesAsJSON(f *testing.F) {
	f.Add("c1", "add", `{"a": 1}`, "Because.", "Add", "42", "m", int64(3), uint64(2), 0.5)
	f.Fuzz(func(t *testing.T, call, tool, raw, thought, step, result, model string, n int64, seen uint64, cost float64) {
		made := Made{Model: model, Usage: &Usage{PromptTokens: int(n), CostUSD: cost}, Seen: seen, Room: int(n), MS: n}
		steps := plan.Plan{{Step: step, Status: "done", Result: plan.Result(result)}}
		sameAsJSON(t, Call{Calls: []ToolCall{{Call: call, Tool: tool, Arguments: json.RawMessage(raw), Step: step}}, Thought: thought, Plan: steps, Made: made})
		sameAsJSON(t, Observation{Call: call, Tool: tool, Status: ObservedOK, Result: json.RawMessage(raw), MS: n})
		sameAsJSON(t, Thought{Thought: thought, Plan: steps, Answer: &result, Made: made})
	})
}
