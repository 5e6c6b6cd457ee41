package main

import (
	"encoding/json"
	"strings"
	"testing"

	"ratchet/internal/loop"
)

// TestShowPrompt looks at what the model was sent, as text and as JSON.
func TestShowPrompt(t *testing.T) {
	url := server(t)
	submit(t, "", "--nats", url, "--quiet", "--id", "sum-1", sum).want(t, codeAnswered)
	first := submit(t, "", "show", "--nats", url, "sum-1", "--prompt", "1")
	first.want(t, codeAnswered)
	contains(t, first.stdout, "turn 1 of ", "prompt plan_react/2", "── system ──", "- add_numbers: Adds two numbers exactly", "── user ──", sum)
	if strings.Contains(first.stdout, "── assistant ──") {
		t.Errorf("the first turn shows what came later:\n%s", first.stdout)
	}
	last := submit(t, "", "show", "--nats", url, "sum-1", "--prompt")
	last.want(t, codeAnswered)
	contains(t, last.stdout, "── assistant ──", "Observation of call c1", `"create_plan"`)

	whole := submit(t, "", "show", "--nats", url, "sum-1", "--prompt", "2", "--json")
	whole.want(t, codeAnswered)
	var v loop.PromptView
	if err := json.Unmarshal([]byte(whole.stdout), &v); err != nil || strings.Count(whole.stdout, "\n") != 1 {
		t.Fatalf("%v: %s", err, whole.stdout)
	}
	if v.Run != "sum-1" || v.Turn != 2 || v.N == 0 || v.Purpose != loop.PurposeStep || len(v.Messages) != 4 || v.Note != "" || !v.JSON {
		t.Errorf("turn 2 is %s", whole.stdout)
	}

	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"sum-1 --prompt 99", codeUsage, "there is no turn 99"},
		{"sum-1 --prompt -- -1", codeUsage, "counted from 1"},
		{"sum-1 2", codeUsage, "submit show sum-1 --prompt 2"},
		{"nothing --prompt", codeFailed, "There is no run nothing"},
	} {
		o := submit(t, "", append([]string{"show", "--nats", url}, strings.Fields(c.args)...)...)
		o.want(t, c.code)
		contains(t, o.stderr, c.want)
	}
}
