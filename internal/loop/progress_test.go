package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// TestNoProgress: the third outcome that is the same says so, the fourth call is not run, the fifth ends the run, under every
// strategy in which the model calls tools one after the other.
func TestNoProgress(t *testing.T) {
	t.Parallel()
	const args = `{"expression": "1+1"}`
	acted := `{"type": "tool_call", "name": "calculate", "arguments": ` + args + `}`
	notYet := `{"done": false, "guidance": "Call it again."}`
	for strategy, c := range map[string]struct {
		texts []string
		want  string
	}{
		"plan_react": {
			[]string{planned, call("calculate", args)},
			"accepted facts plan call observation call observation call observation rejection rejection failed",
		},
		"react": {
			[]string{"Action: calculate\nAction Input: " + args},
			"accepted facts call observation call observation call observation rejection rejection failed",
		},
		"plan_act_reflect": {
			[]string{acted, notYet, acted, notYet, acted, notYet, acted},
			"accepted facts call observation reflection call observation reflection call observation reflection rejection rejection failed",
		},
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			var turn atomic.Int64
			var p prompts
			r := newRig(t, p.keep(func(llmtest.Request) llmtest.Reply {
				return llmtest.Text(c.texts[min(int(turn.Add(1)), len(c.texts))-1]) // the last one again and again
			}))
			r.start(r.config())
			r.submit("a", fmt.Sprintf(`{"goal": "g", "strategy": %q, "limits": {"max_iterations": 9}}`, strategy))
			events := r.untilClosed("a")
			wantTypes(t, events, c.want)
			if f := events[len(events)-1].Data.(loop.Failed); f.Reason != loop.FailNoProgress {
				t.Errorf("reason is %s", f.Reason)
			}
			warned := 0
			for _, q := range p.all() {
				if strings.Contains(string(q.Body["messages"]), "the third time that this call gave this result") {
					warned++
				}
			}
			if diff := cmp.Diff(2, warned); diff != "" { // before the fourth call and before the fifth
				t.Errorf("prompts that say so (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPollingIsProgress: a result that changes starts the count anew.
func TestPollingIsProgress(t *testing.T) {
	t.Parallel()
	acted := `{"type": "tool_call", "name": "poll", "arguments": {}}`
	texts := []string{}
	for range 6 {
		texts = append(texts, acted, `{"done": false, "guidance": "Look again."}`)
	}
	var polls atomic.Int64
	poll := tools.Tool{
		Spec: loop.ToolSpec{Name: "poll", Description: "Polls.", Schema: json.RawMessage(`{"type": "object"}`), Effect: loop.EffectRead},
		Run:  func(context.Context, loop.Invocation) (any, error) { return polls.Add(1) / 2, nil },
	}
	r := newRig(t, say(append(texts, "It is 42.", verdictYes)...), poll)
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_act_reflect", "limits": {"max_iterations": 9, "max_steps": 30}}`)
	events := r.untilClosed("a")
	if last := events[len(events)-1]; last.Type() != "answer" || polls.Load() != 6 {
		t.Errorf("it ended as %s after %d polls: %s", last.Type(), polls.Load(), types(events))
	}
}
