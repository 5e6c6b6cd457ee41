package loop_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

// TestFallbackModelIsInTheEvent: the models of a task are asked in their order at each turn, and the event says which one
// answered.
func TestFallbackModelIsInTheEvent(t *testing.T) {
	script := []string{planned, answered}
	turn := 0
	var asked []string
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		asked = append(asked, q.Model)
		switch {
		case q.Model == "first":
			return llmtest.Raw(404, `{"error":{"message":"The model first does not exist","code":"model_not_found"}}`)
		case q.Model == "second" && turn == 1:
			return llmtest.Raw(401, `{"error":{"message":"not with this key"}}`)
		}
		text := script[turn]
		turn++
		return llmtest.Raw(200, fmt.Sprintf(`{"model":"%s-2026","choices":[{"message":{"content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":7}}`, q.Model, text))
	})
	r.start(r.config())
	r.submit("a", `{"goal": "g", "model": "first", "fallback_models": ["second", "third"]}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts plan thought answer")
	if diff := cmp.Diff([]string{"first", "second", "first", "second", "third"}, asked); diff != "" {
		t.Error(diff)
	}
	if got := events[2].Data.(loop.Plan); got.Model != "second-2026" || got.Usage.Total() != 12 {
		t.Errorf("the plan is by %q, usage %+v", got.Model, got.Usage)
	}
	if got := events[3].Data.(loop.Thought).Model; got != "third-2026" {
		t.Errorf("the answer is by %q", got)
	}
}
