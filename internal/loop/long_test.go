package loop_test

import (
	"strings"
	"testing"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// TestReplyTooLongIsRejected: whatever is too long in a reply, the model is asked for a shorter one and the run goes on.
func TestReplyTooLongIsRejected(t *testing.T) {
	long := strings.Repeat("x", plan.MaxReply+1)
	native := llmtest.Reply{Calls: []llmtest.Call{{ID: "a", Name: "calculate", Arguments: `{"expression": "` + long + `"}`}}}
	body := func(more string) llmtest.Reply {
		return llmtest.Raw(200, `{"choices":[{"message":{`+more+strings.Repeat("x", 6<<20)+`"},"finish_reason":"stop"}]}`)
	}
	for name, c := range map[string]struct {
		task string
		odd  llmtest.Reply
		good []string
		want string
	}{
		"text":      {`{"goal": "g"}`, llmtest.Text(`{"type": "create_plan", "thought": "` + long), []string{planned, answered}, "plan thought answer"},
		"endless":   {`{"goal": "g"}`, body(`"content":"`), []string{planned, answered}, "plan thought answer"},
		"reasoning": {`{"goal": "g"}`, body(`"reasoning":"`), []string{planned, answered}, "plan thought answer"},
		"arguments": {
			`{"goal": "g", "strategy": "react", "model_options": {"native_tools": true}}`, native, []string{reacted}, "thought answer",
		},
		"planner": {
			`{"goal": "g", "strategy": "plan_act_reflect"}`, native, []string{finished, verdictYes}, "thought reflection answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p prompts
			after := say(c.good...)
			r := newRig(t, p.keep(func(q llmtest.Request) llmtest.Reply {
				if q.N == 1 {
					return c.odd
				}
				return after(q)
			}))
			r.start(r.config())
			r.submit("a", c.task)
			events := r.untilClosed("a")
			wantTypes(t, events, "accepted facts rejection "+c.want)
			d := events[2].Data.(loop.Rejection)
			if !strings.Contains(d.Error, "256 KiB") && !strings.Contains(d.Error, "262144") || len(d.Reply) > 3<<10 || d.Usage.Total() == 0 {
				t.Errorf("the rejection says %q of %d bytes, usage %+v", d.Error, len(d.Reply), d.Usage)
			}
			if last := p.all()[1].Last(); !strings.Contains(last, "shorter") {
				t.Errorf("the model is told %q", last)
			}
		})
	}
}
