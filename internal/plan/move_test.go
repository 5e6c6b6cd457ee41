package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

func TestReadMove(t *testing.T) {
	for _, c := range []struct {
		text  string
		types []plan.Type
		rule  string // empty: it is accepted
	}{
		{`{"type": "final_answer", "answer": "42"}`, []plan.Type{plan.FinalAnswer}, ""},
		{"Here you are:\n```json\n{\"type\": \" Final_Answer \", \"thought\": \"t\", \"answer\": \"42\", \"plan\": []}\n```", []plan.Type{plan.FinalAnswer}, ""},
		{`{"type": "tool_call", "calls": [{"name": "a", "arguments": {}}]}`, []plan.Type{plan.FinalAnswer, plan.ToolCall}, ""},
		{`{"type": "tool_call", "calls": [{"name": "a", "arguments": {}}]}`, []plan.Type{plan.FinalAnswer}, plan.RuleUnknownType},
		{`{"type": "final_answer", "answer": "42", "calls": [{"name": "a"}]}`, []plan.Type{plan.FinalAnswer}, plan.RuleForeignField},
		{`{"type": "final_answer", "answer": " "}`, []plan.Type{plan.FinalAnswer}, plan.RuleBlankAnswer},
		{`{"type": "create_plan", "plan": []}`, []plan.Type{plan.FinalAnswer}, plan.RuleUnknownType},
		{`{"answer": "42"}`, []plan.Type{plan.FinalAnswer}, plan.RuleUnknownType},
		{`It is 42.`, []plan.Type{plan.FinalAnswer}, plan.RuleNoObject},
		{`{"type": "final_answer", "answer": `, []plan.Type{plan.FinalAnswer}, plan.RuleTruncated},
	} {
		m, err := plan.ReadMove(c.text, c.types...)
		var v *plan.Violation
		switch {
		case c.rule == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.rule != "" && (!errors.As(err, &v) || v.Rule != c.rule || !strings.Contains(v.Text, "Return exactly one JSON object")):
			t.Errorf("%s: %v, want %s", c.text, err, c.rule)
		case c.rule == "":
			again, err := plan.ReadMove(m.EncodeMove(), c.types...)
			if diff := cmp.Diff(m, again); diff != "" || err != nil {
				t.Errorf("%s: %v, %s", c.text, err, diff)
			}
		}
	}
}

func TestCheckCalls(t *testing.T) {
	rules := plan.Rules{Tools: []string{"a"}, Arguments: func(tool string, args json.RawMessage) (json.RawMessage, []string, bool) {
		return args, nil, tool == "a"
	}}
	for calls, want := range map[string]string{`{}`: "", `[]`: plan.RuleArguments, `{"a":`: plan.RuleArguments, ``: ""} {
		_, err := plan.CheckCalls([]plan.Call{{Name: "a", Arguments: json.RawMessage(calls)}}, rules)
		if calls == "" {
			_, err = plan.CheckCalls([]plan.Call{{Name: "a"}}, rules)
		}
		var v *plan.Violation
		if (err != nil) != (want != "") || err != nil && (!errors.As(err, &v) || v.Rule != want) {
			t.Errorf("%s: %v", calls, err)
		}
	}
	var v *plan.Violation
	if _, err := plan.CheckCalls([]plan.Call{{Name: "b"}}, rules); !errors.As(err, &v) || v.Rule != plan.RuleUnknownTool {
		t.Errorf("an unknown tool: %v", err)
	}
}

func TestCutReact(t *testing.T) {
	for text, want := range map[string]string{
		"Thought: a\nAction: b[1]":                                 "Thought: a\nAction: b[1]",
		"Thought: a\nAction: b[1]\nPAUSE\nObservation: made up":    "Thought: a\nAction: b[1]",
		"Thought: a\r\n**Observation:** made up\nFinal Answer: c":  "Thought: a",
		"Observation: made up":                                     "",
		"An Observation: in the middle of a line\nFinal Answer: c": "An Observation: in the middle of a line\nFinal Answer: c",
	} {
		if got := plan.CutReact(text); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
