package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ratchet/internal/demo"
	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

// sent keeps the requests that a model has answered, by run.
type sent struct {
	loop.Model
	mu       sync.Mutex
	requests map[string][]loop.ModelRequest
}

func (s *sent) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	reply, err := s.Model.Complete(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string][]loop.ModelRequest{}
	}
	if err == nil {
		s.requests[r.Run.Run] = append(s.requests[r.Run.Run], r)
	}
	return reply, err
}

// to are the answered requests of a run.
func (s *sent) to(run string) []loop.ModelRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests[run])
}

// madeAgain compares each turn of a run, made again from its journal, with what was sent.
func madeAgain(t *testing.T, w worker, s *sent, id string) {
	t.Helper()
	requests := s.to(id)
	last, err := w.Prompt(t.Context(), run(id), 0)
	if err != nil {
		t.Fatal(err)
	}
	if last.Turn != last.Turns || last.Turns != len(requests) {
		t.Fatalf("run %s has %d turns, the last is %d, and %d requests were answered", id, last.Turns, last.Turn, len(requests))
	}
	for turn := 1; turn <= last.Turns; turn++ {
		v, err := w.Prompt(t.Context(), run(id), turn)
		if err != nil {
			t.Fatal(err)
		}
		same := func(r loop.ModelRequest) bool {
			return cmp.Equal(v.Messages, r.Messages) && v.JSON == r.JSON && v.Purpose == r.Purpose && slices.Equal(v.Stop, r.Stop) && len(v.Tools) == len(r.Tools)
		}
		i := slices.IndexFunc(requests, same) // of requests side by side, any reply may be stored first
		if i < 0 {
			t.Errorf("turn %d of run %s, %s, was never sent; the next that was is (-made +sent):\n%s", turn, id, v.Purpose, cmp.Diff(v.Messages, requests[0].Messages))
			continue
		}
		requests = slices.Delete(requests, i, i+1)
	}
}

// TestPromptsAreMadeAgain runs every strategy with the demo model, then makes each prompt again on another worker.
func TestPromptsAreMadeAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(demo.Handler())
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := llm.New(llm.Config{BaseURL: server.URL + "/v1", Model: demo.Model, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, say())
	s := &sent{Model: client}
	r.model = s
	first := r.start(r.config())
	report := "Write the sales report for March and mail it to ada@example.com."
	tasks := map[string]string{
		"react":   `{"strategy": "react", "goal": "Is it warmer in Singapore, Jakarta or Paris?"}`,
		"plan":    `{"goal": "Write the sales report for August and mail it to ada@example.com."}`,
		"execute": `{"strategy": "plan_execute", "goal": "` + report + `"}`,
		"replan":  `{"strategy": "plan_execute", "locked": false, "goal": "Write the sales report for August and mail it to ada@example.com."}`,
		"courier": `{"strategy": "plan_execute", "goal": "Where is my order 4418?", "vars": {"email": "ada@example.com"}}`,
		"reflect": `{"strategy": "plan_act_reflect", "goal": "` + report + `", "limits": {"max_iterations": 5}}`,
		"written": `{"strategy": "plan_act_reflect", "goal": "` + report + `", "model_options": {"native_tools": false}}`,
	}
	for id, task := range tasks {
		r.submit(id, task)
	}
	for id := range tasks {
		r.untilClosed(id)
	}
	first.stop()
	other := r.start(r.config())
	for id := range tasks {
		madeAgain(t, other, s, id)
	}
	v, err := other.Prompt(t.Context(), run("courier"), 0)
	if err != nil || strings.Contains(string(mustJSON(t, v)), "ada@example.com") {
		t.Errorf("the prompt holds a value that models never see: %s, %v", mustJSON(t, v), err)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPromptsOfTroubledRunsAreMadeAgain: refused messages, questions, a second attempt, what the session has said, and notes
// that came while the model was writing.
func TestPromptsOfTroubledRunsAreMadeAgain(t *testing.T) {
	t.Parallel()
	no := "I would rather not."
	script := say(planned, no, asks, no, no, "Write JSON.", planned, answered)
	fills := say(steps(step("1", "calculate", `{}`, `"open": ["expression"]`)), no, `{"type": "fill", "fields": {"expression": "6*7"}}`, finished)
	critic := say("Six.", "Looks good to me.", `{"done": false, "guidance": "Again."}`, "It is 42.", verdictYes, "It is 43.", verdictYes)
	second := say(planned, answered)
	gate := make(chan struct{})
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		var reply llmtest.Reply
		switch q.Header.Get("X-Ratchet-Run") {
		case "default/fills":
			reply = fills(q)
		case "default/critic":
			reply = critic(q)
		case "default/second":
			return second(q)
		default:
			return script(q)
		}
		if p := q.Header.Get("X-Ratchet-Purpose"); p == "fill" || p == "reflect" {
			reply.Wait = gate
		}
		return reply
	})
	s := &sent{Model: r.model}
	r.model = s
	w := r.start(r.config())
	r.submit("first", `{"goal": "Say something.", "session": "s", "retry_with_reflection": 1, "limits": {"max_rejections": 1}}`)
	r.until("first", "question")
	r.reply("first", `{"text": "200"}`)
	r.untilClosed("first")
	r.submit("second", `{"goal": "Go on.", "session": "s"}`)
	r.untilClosed("second")
	r.submit("fills", `{"goal": "g", "strategy": "plan_execute"}`)
	r.submit("critic", `{"goal": "g", "strategy": "plan_act_reflect"}`)
	for id, before := range map[string]string{"fills": "plan", "critic": "thought"} {
		r.until(id, before)
		r.eventually("the model is asked", func() bool {
			v, err := w.Prompt(t.Context(), run(id), 0)
			return err == nil && v.Turn == 2 && v.N == 0
		})
		r.reply(id, `{"text": "Mind the budget"}`)
		r.until(id, "note")
	}
	close(gate)
	for _, id := range []string{"fills", "critic"} {
		r.untilClosed(id)
	}
	other := r.start(r.config())
	for _, id := range []string{"first", "second", "fills", "critic"} {
		madeAgain(t, other, s, id)
	}
	_, err := other.Prompt(t.Context(), run("first"), 9)
	var none *loop.NoTurnError
	if !errors.As(err, &none) || none.Error() != "run first has the turns 1 to 8; there is no turn 9" {
		t.Errorf("the error for turn 9 is %v", err)
	}
	if _, err := other.Prompt(t.Context(), run("nobody"), 0); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("the error for a run that does not exist is %v", err)
	}
	v, err := other.Prompt(t.Context(), run("second"), 1)
	if err != nil || !strings.Contains(string(mustJSON(t, v)), "Say something.") {
		t.Errorf("the second run was not shown what was said before: %+v, %v", v, err)
	}
}

// TestLongRunsPromptsAreMadeAgain: what was compacted is compacted in the same way.
func TestLongRunsPromptsAreMadeAgain(t *testing.T) {
	t.Parallel()
	m := &talker{say: pages(30)}
	r := newRig(t, say(), loadTool(6<<10))
	s := &sent{Model: m}
	r.model = s
	c := r.config()
	c.Window = 8000
	w := r.start(c)
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500}}`)
	if !strings.Contains(types(r.untilClosed("a")), "summary") {
		t.Error("nothing was compacted")
	}
	c = r.config() // whose window is the usual one
	madeAgain(t, r.start(c), s, "a")
	v, err := w.Prompt(t.Context(), run("a"), 7)
	if err != nil {
		t.Fatal(err)
	}
	request := s.to("a")[6]
	if diff := cmp.Diff(request.Messages, v.Messages, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("turn 7 (-sent +made):\n%s", diff)
	}
}
