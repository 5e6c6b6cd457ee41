package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

var asks = m("ask_user", nil, `"question": "How many?"`)

func TestQuestionParksAndAnotherWorkerResumes(t *testing.T) {
	r := newRig(t, converse(planned, asks, answered))
	first := r.start(r.config())
	r.submit("a", `{"goal": "Buy shares."}`)
	q := r.until("a", "question").Data.(loop.Question)
	r.eventually("the run is parked", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Status == loop.StatusWaiting && h.Owner == nil
	})
	first.stop()
	r.eventually("nothing is left in the queues", func() bool {
		info, err := r.bus.Backlog(r.ctx())
		return err == nil && info.Wakes == 0 && info.Inbox == 0
	})
	r.reply("a", fmt.Sprintf(`{"question": %q, "text": "200 shares", "by": "u-17"}`, q.Question))
	r.start(r.config())
	events := r.untilClosed("a")
	if got, want := types(events), "accepted facts plan thought question reply thought answer"; got != want {
		t.Fatalf("events are %s, want %s", got, want)
	}
	if events[1].Source == events[6].Source {
		t.Error("the run was resumed by the worker that was stopped")
	}
}

func TestSameTaskTwiceOnTwoWorkers(t *testing.T) {
	var calls atomic.Int64
	script := converse(planned, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply { calls.Add(1); return script(q) })
	r.start(r.config())
	r.start(r.config())
	const runs, copies = 20, 4
	var wg sync.WaitGroup
	for i := range runs {
		for range copies {
			wg.Go(func() { r.submit(fmt.Sprint("r", i), `{"goal": "go"}`) })
		}
	}
	wg.Wait()
	for i := range runs {
		if got, want := types(r.untilClosed(fmt.Sprint("r", i))), "accepted facts plan thought answer"; got != want {
			t.Fatalf("events are %s, want %s", got, want)
		}
	}
	if calls.Load() != 2*runs {
		t.Errorf("%d model calls for %d runs of 2 turns", calls.Load(), runs)
	}
}

func TestBadTasks(t *testing.T) {
	r := newRig(t, converse())
	r.start(r.config())
	deep := strings.Repeat(`{"a":`, 80) + "1" + strings.Repeat("}", 80)
	invalid := map[string]struct{ body, says string }{
		"noGoal":      {`{"id": "noGoal"}`, "goal is missing"},
		"blankGoal":   {`{"id": "blankGoal", "goal": "  "}`, "goal is missing"},
		"strategy":    {`{"id": "strategy", "goal": "g", "strategy": "tree"}`, "plan_react"},
		"notYet":      {`{"id": "notYet", "goal": "g", "strategy": "plan_act_reflect_twice"}`, "strategy"},
		"wrongType":   {`{"id": "wrongType", "goal": 7}`, "goal has the wrong type"},
		"longGoal":    {`{"id": "longGoal", "goal": "` + strings.Repeat("x", 70<<10) + `"}`, "at most 65536"},
		"timing":      {`{"id": "timing", "goal": "g", "not_before": "tomorrow"}`, "not_before"},
		"badDuration": {`{"id": "badDuration", "goal": "g", "limits": {"timeout": "soon"}}`, "duration"},
		"glob":        {`{"id": "glob", "goal": "g", "tools": ["["]}`, "pattern"},
		"vars":        {`{"id": "vars", "goal": "g", "vars": {"a": "` + strings.Repeat("x", 17<<10) + `"}}`, "vars have"},
	}
	for name, c := range invalid {
		t.Run(name, func(t *testing.T) {
			r.submit("", c.body)
			events := r.untilClosed(name)
			failed, ok := events[0].Data.(loop.Failed)
			if !ok || failed.Reason != loop.FailInvalidTask || !strings.Contains(failed.Message, c.says) {
				t.Errorf("the run is %s: %+v", types(events), events[0].Data)
			}
		})
	}
	r.eventually("their dead letters", func() bool { return r.dead() == uint64(len(invalid)) })
	for name, body := range map[string]string{
		"not JSON": "hello", "a list": `["goal"]`, "deep": deep, "invalid UTF-8": "{\"goal\": \"\xff\"}", "bad id": `{"id": "a.b", "goal": "g"}`,
		"a megabyte": `{"goal": "` + strings.Repeat("x", 900<<10) + `"}`, "id of _": `{"id": "_x", "goal": "g"}`,
	} {
		before := r.dead()
		if _, err := r.bus.PublishTask(r.ctx(), "default", []byte(body), "", ""); err != nil {
			t.Fatal(err)
		}
		r.eventually("a dead letter for "+name, func() bool { return r.dead() == before+1 })
	}
}

func (r *rig) dead() uint64 {
	r.t.Helper()
	b, err := r.bus.Backlog(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	return b.Dead
}

func TestUnknownToolIsHandedBackThenInvalid(t *testing.T) {
	r := newRig(t, converse())
	c := r.config()
	c.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	r.start(c)
	r.submit("a", `{"goal": "g", "tools": ["no_such_tool"]}`)
	failed := r.untilClosed("a")[0].Data.(loop.Failed)
	if !strings.Contains(failed.Message, "no_such_tool") || !strings.Contains(failed.Message, "calculate") {
		t.Errorf("message is %q", failed.Message)
	}
}

func TestTaskBodyCannotNameATenant(t *testing.T) {
	r := newRig(t, converse(planned, answered))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "tenant": "other"}`)
	for _, e := range r.untilClosed("a") {
		if e.Tenant != "default" {
			t.Errorf("event %d is of tenant %s", e.N, e.Tenant)
		}
	}
}

func TestRepliesToNothing(t *testing.T) {
	r := newRig(t, converse(planned, answered))
	r.start(r.config())
	r.reply("ghost", `{"text": "hello"}`)
	r.eventually("a dead letter", func() bool { return r.dead() == 1 })
	r.submit("a", `{"goal": "g"}`)
	n := len(r.untilClosed("a"))
	for _, c := range []struct{ body, status string }{
		{`{"text": "late"}`, loop.OutcomeStale},
		{`{"question": "q1", "text": "late"}`, loop.OutcomeStale},
	} {
		if got := r.ask("a", c.body); got != c.status {
			t.Errorf("%s is %s, want %s", c.body, got, c.status)
		}
	}
	if got := len(r.events("a")); got != n {
		t.Errorf("a reply to an ended run left %d events, want %d", got, n)
	}
}

// ask sends a reply and returns what the door made of it.
func (r *rig) ask(id, body string) string {
	r.t.Helper()
	o, err := r.bus.PublishAndAwait(r.ctx(), func(ctx context.Context, token string) error {
		_, err := r.bus.PublishReply(ctx, run(id), []byte(body), token)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return o.Status
}

func TestRepliesAreJudged(t *testing.T) {
	r := newRig(t, converse(planned, m("ask_user", nil, `"question": "How many?", "answer_schema": {"type": "integer"}`), asks, answered))
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	for _, c := range []struct{ body, status string }{
		{`not JSON`, loop.OutcomeInvalid},
		{`{"question": "q9", "text": "7"}`, loop.OutcomeUnknown},
		{`{"question": "q1", "text": "many"}`, loop.OutcomeInvalid},
		{`{"question": "q1", "approve": true}`, loop.OutcomeInvalid},
		{`{"question": "q1", "text": "200"}`, loop.OutcomeAccepted},
		{`{"question": "q1", "text": "201"}`, loop.OutcomeStale},
	} {
		if got := r.ask("a", c.body); got != c.status {
			t.Errorf("%s is %s, want %s", c.body, got, c.status)
		}
	}
	r.eventually("the second question", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Question != nil && h.Question.Question == "q2"
	})
	if got := r.ask("a", `{"text": "5"}`); got != loop.OutcomeAccepted {
		t.Errorf("a reply without a question is %s", got)
	}
	r.untilClosed("a")
	if got := r.ask("a", `{"question": "q2", "text": "5"}`); got != loop.OutcomeDuplicate {
		t.Errorf("the same reply again is %s", got)
	}
}

func TestQuestionTimeouts(t *testing.T) {
	for policy, want := range map[string]string{
		"fail":     "accepted facts plan thought question timeout failed",
		"continue": "accepted facts plan thought question timeout thought answer",
		"default":  "accepted facts plan thought question timeout thought answer",
	} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t, converse(planned, asks, answered))
			r.start(r.config())
			r.submit("a", fmt.Sprintf(`{"goal": "g", "ask": {"timeout": "50ms", "on_timeout": %q, "default": "twelve"}}`, policy))
			if got := types(r.untilClosed("a")); got != want {
				t.Errorf("events are %s, want %s", got, want)
			}
		})
	}
}

func TestRunTimeout(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	r := newRig(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Wait: never} })
	r.start(r.config())
	r.submit("a", `{"goal": "g", "limits": {"timeout": "100ms"}}`)
	if got, want := types(r.untilClosed("a")), "accepted facts timeout failed"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

func TestRejectionsEndTheRun(t *testing.T) {
	r := newRig(t, func(llmtest.Request) llmtest.Reply { return llmtest.Text("I would rather not.") })
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	events := r.untilClosed("a")
	if got, want := types(events), "accepted facts rejection rejection rejection rejection failed"; got != want {
		t.Fatalf("events are %s, want %s", got, want)
	}
	if f := events[6].Data.(loop.Failed); f.Reason != loop.FailRejectionsExhausted {
		t.Errorf("reason is %s", f.Reason)
	}
}

func TestStepsAreLimited(t *testing.T) {
	r := newRig(t, converse(planned, m("update_plan", nil, ""), m("update_plan", nil, ""), m("update_plan", nil, "")))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "limits": {"max_steps": 3}}`)
	events := r.untilClosed("a")
	if f := events[len(events)-1].Data.(loop.Failed); f.Reason != loop.FailStepsExhausted || len(events) != 6 {
		t.Errorf("events are %s, reason %s", types(events), f.Reason)
	}
}

func TestFinalModelErrorEndsTheRun(t *testing.T) {
	r := newRig(t, func(llmtest.Request) llmtest.Reply {
		return llmtest.Raw(401, `{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}`)
	})
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	f := r.untilClosed("a")[2].Data.(loop.Failed)
	if f.Reason != loop.FailModelError || !strings.Contains(f.Message, "auth") {
		t.Errorf("failed with %+v", f)
	}
}

func TestProviderOutageParksTheRun(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	script := converse(planned, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		if down.Load() {
			return llmtest.Raw(503, `{"error": {"message": "overloaded"}}`)
		}
		return script(q)
	})
	c := r.config()
	r.start(c)
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "wait")
	r.eventually("parked", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Status == loop.StatusWaiting && h.Wait != nil
	})
	down.Store(false)
	r.start(func() loop.Config {
		c := r.config()
		c.Now = func() time.Time { return time.Now().Add(time.Minute) }
		return c
	}())
	// The clock of the second worker is ahead: any wake-up shows it that the wait is over.
	r.eventually("it goes on", func() bool {
		if err := r.bus.Wake(r.ctx(), run("a"), fmt.Sprint("test", time.Now()), loop.Wake{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		e := r.events("a")
		return e[len(e)-1].Final()
	})
	if got, want := types(r.untilClosed("a")), "accepted facts wait timeout plan thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

// A run that is told again and again that it is not its turn waits as long as it is told, and fails for none of it. What does
// fail in between is counted by itself.
func TestWaitingForATurnIsNoFailure(t *testing.T) {
	t.Parallel()
	const turns = 10 // more than a run waits for a model that fails
	asked := 0
	m := &talker{say: func(_ int, _ loop.ModelRequest) (string, error) {
		switch asked++; {
		case asked == 4:
			return "", &loop.ModelError{Cause: "server_error", Message: "down", Passing: true, After: time.Second}
		case asked <= turns:
			return "", &loop.ModelError{Cause: "rate_limit", Message: "not now", Passing: true, Unsent: true, After: time.Second}
		case asked == turns+1:
			return planned, nil
		default:
			return answered, nil
		}
	}}
	r := newTalk(t, m, nil)
	r.submit("a", `{"goal": "g"}`)
	var attempts []int
	var waited time.Duration
	events := r.untilClosed("a")
	for _, e := range events {
		if d, ok := e.Data.(loop.Wait); ok {
			attempts, waited = append(attempts, d.Attempt), waited+d.Until.Sub(e.Time)
		}
	}
	if want := []int{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}; !slices.Equal(attempts, want) || events[len(events)-1].Type() != "answer" {
		t.Errorf("attempts %v, want %v, events %s", attempts, want, types(events))
	}
	if most := (turns-1)*1100*time.Millisecond + 5*time.Second; waited > most {
		t.Errorf("it was to wait for %s, want less than %s", waited, most)
	}
}

func slowTool(name string, effect loop.Effect, started chan<- string, release <-chan struct{}) tools.Tool {
	return tools.Tool{
		Spec: loop.ToolSpec{Name: name, Description: "waits", Schema: json.RawMessage(`{"type":"object"}`), Effect: effect},
		Run: func(ctx context.Context, c loop.Invocation) (any, error) {
			started <- c.Key()
			select {
			case <-release:
				return "released", nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	}
}

func TestCancel(t *testing.T) {
	started := make(chan string, 10)
	for name, c := range map[string]struct {
		texts []string
		event string // cancelled once this event is there
		want  string
	}{
		"parked":        {[]string{planned, asks}, "question", "accepted facts plan thought question control cancelled"},
		"in a tool":     {[]string{planned, call("slow", "{}")}, "call", "accepted facts plan call control observation cancelled"},
		"in a once one": {[]string{planned, call("slow_once", "{}")}, "started", "accepted facts plan call started control observation cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, converse(c.texts...), slowTool("slow", loop.EffectRead, started, nil), slowTool("slow_once", loop.EffectOnce, started, nil))
			r.start(r.config())
			r.submit("a", `{"goal": "g"}`)
			r.until("a", c.event)
			if strings.HasPrefix(name, "in") {
				<-started
			}
			began := time.Now()
			r.control("a", "cancel")
			r.control("a", "cancel")
			events := r.untilClosed("a")
			if took := time.Since(began); took > 20*time.Second { // a tool that is not cut off goes on for 30 s
				t.Errorf("it took %s", took)
			}
			if got := types(events); got != c.want {
				t.Errorf("events are %s, want %s", got, c.want)
			}
		})
	}
}

func TestCancelOvertakesTheTask(t *testing.T) {
	r := newRig(t, converse())
	r.start(r.config())
	r.control("a", "cancel")
	r.untilClosed("a")
	r.submit("a", `{"goal": "g"}`)
	r.submit("b", `{"goal": ""}`)
	r.untilClosed("b")
	if got, want := types(r.events("a")), "control cancelled"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

func TestPauseAndResume(t *testing.T) {
	gate := make(chan struct{})
	script := converse(planned, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		reply := script(q)
		reply.Wait = gate
		return reply
	})
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "facts")
	r.control("a", "pause")
	r.until("a", "control")
	close(gate)
	r.until("a", "plan") // what was in hand is not thrown away
	r.eventually("paused", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Status == loop.StatusPaused && h.Owner == nil
	})
	r.control("a", "resume")
	if got, want := types(r.untilClosed("a")), "accepted facts control plan control thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

func TestNoteReachesTheNextTurn(t *testing.T) {
	gate := make(chan struct{})
	script := converse(planned, m("update_plan", nil, ""), answered)
	var saw atomic.Bool
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		if strings.Contains(q.Last(), "Mind the budget") {
			saw.Store(true)
		}
		reply := script(q)
		reply.Wait = gate
		return reply
	})
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "facts")
	r.reply("a", `{"text": "Mind the budget", "by": "u"}`)
	r.until("a", "note")
	close(gate)
	r.untilClosed("a")
	if !saw.Load() {
		t.Error("the model never saw the note")
	}
}

func TestApproval(t *testing.T) {
	buy := call("buy_shares", `{"company": "Microsoft", "amount": 200, "price": 56.3}`)
	for name, c := range map[string]struct {
		reply func(sha string) string
		want  string
	}{
		"yes": {func(sha string) string { return `{"approve": true, "arguments_sha256": "` + sha + `"}` }, "accepted facts plan call question reply started observation thought answer"},
		"no":  {func(string) string { return `{"approve": false, "reason": "too dear"}` }, "accepted facts plan call question reply observation thought answer"},
		"edited": {func(sha string) string {
			return `{"approve": true, "arguments": {"company": "Microsoft", "amount": 100, "price": 56.3}, "arguments_sha256": "` + sha + `"}`
		}, "accepted facts plan call question reply started observation thought answer"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, converse(planned, buy, answered))
			r.start(r.config())
			r.submit("a", `{"goal": "g", "approve": ["buy_*"]}`)
			q := r.until("a", "question").Data.(loop.Question)
			if q.Kind != loop.KindApproval || q.Tool != "buy_shares" || q.ArgumentsSHA256 == "" {
				t.Fatalf("question is %+v", q)
			}
			if got := r.ask("a", `{"approve": true, "arguments_sha256": "0000"}`); got != loop.OutcomeInvalid {
				t.Errorf("a yes to other arguments is %s", got)
			}
			if got := r.ask("a", c.reply(q.ArgumentsSHA256)); got != loop.OutcomeAccepted {
				t.Fatalf("the reply is %s", got)
			}
			events := r.untilClosed("a")
			if got := types(events); got != c.want {
				t.Errorf("events are %s, want %s", got, c.want)
			}
			for _, e := range events {
				o, ok := e.Data.(loop.Observation)
				if ok && name == "edited" && !strings.Contains(string(o.Result), "100") {
					t.Errorf("the edited amount was not used: %s", o.Result)
				}
			}
		})
	}
}

func TestParallelCallsOverlap(t *testing.T) {
	started, release := make(chan string, 4), make(chan struct{})
	calls := m("tool_call", nil, `"calls": [{"name": "slow", "arguments": {"a":1}}, {"name": "slow", "arguments": {"a":2}}, {"name": "slow", "arguments": {"a":3}}]`)
	r := newRig(t, converse(planned, calls, answered), slowTool("slow", loop.EffectRead, started, release))
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	for range 3 {
		<-started // all three are under way before the first returns
	}
	close(release)
	if got, want := types(r.untilClosed("a")), "accepted facts plan call observation observation observation thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

func TestSessionsTakeTurns(t *testing.T) {
	var mu sync.Mutex
	prompts := map[string]string{}
	script := converse(planned, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		mu.Lock()
		prompts[q.Header.Get("X-Ratchet-Run")] = q.Messages[1].Content
		mu.Unlock()
		return script(q)
	})
	r.start(r.config())
	r.start(r.config())
	for i := range 5 {
		r.submit(fmt.Sprint("s", i), fmt.Sprintf(`{"goal": "Goal %d", "session": "chat-9"}`, i))
		r.eventually("its place in the session", func() bool {
			s, _, err := r.bus.LoadSession(r.ctx(), "default", "chat-9")
			return err == nil && slices.ContainsFunc(s.Messages, func(m loop.SessionMessage) bool { return m.Run == fmt.Sprint("s", i) })
		})
	}
	var last time.Time
	for i := range 5 {
		events := r.untilClosed(fmt.Sprint("s", i))
		for _, e := range events {
			if e.Type() == "facts" {
				if e.Time.Before(last) {
					t.Errorf("run %d began before the one before it had ended", i)
				}
			}
		}
		last = events[len(events)-1].Time
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(prompts["default/s4"], `{"role":"user","text":"Goal 3"}`) || !strings.Contains(prompts["default/s4"], `{"role":"assistant","text":"It is 42."}`) {
		t.Errorf("the last run was shown %q", prompts["default/s4"])
	}
	s, _, err := r.bus.LoadSession(r.ctx(), "default", "chat-9")
	if err != nil || len(s.Messages) != 10 || len(s.Runs) != 0 {
		t.Errorf("the session is %+v, %v", s, err)
	}
}

func TestShutdownHandsOver(t *testing.T) {
	started := make(chan string, 2)
	script := converse(planned, call("slow", "{}"), answered)
	release := make(chan struct{})
	r := newRig(t, script, slowTool("slow", loop.EffectRead, started, release))
	c := r.config()
	c.Grace = 50 * time.Millisecond
	c.Lease = time.Minute
	first := r.start(c)
	r.submit("a", `{"goal": "g"}`)
	<-started
	first.stop()
	h, _, err := r.bus.Load(r.ctx(), run("a"))
	if err != nil || h.Owner != nil || !h.Claim.Resting {
		t.Fatalf("after the hand-over the state is %+v, %v", h, err)
	}
	close(release)
	began := time.Now()
	r.start(r.config())
	if key := <-started; key != "default/a/c1" {
		t.Errorf("the call was repeated under the key %s", key)
	}
	if took := time.Since(began); took > 20*time.Second { // the lease is a minute
		t.Errorf("the next worker went on after %s", took)
	}
	if got, want := types(r.untilClosed("a")), "accepted facts plan call observation thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

func TestForeignMessagesInTheJournal(t *testing.T) {
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	for _, body := range []string{"not JSON", `{"specversion": "1.0"}`, `{"specversion":"1.0","type":"agent.note","id":"x","subject":"b","tenant":"default","n":1,"data":{}}`} {
		if err := r.nc.Publish("agent.event.default.a.step", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	r.reply("a", `{"text": "200"}`)
	if got, want := types(r.untilClosed("a")), "accepted facts plan thought question reply thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

func TestStateThatIsNotJSONIsMadeAnew(t *testing.T) {
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	r.eventually("parked", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Owner == nil
	})
	if err := r.nc.Publish("$KV.AGENT_RUNS.default.a", []byte("no state")); err != nil {
		t.Fatal(err)
	}
	r.reply("a", `{"text": "200"}`)
	r.untilClosed("a")
}

func TestGapInTheJournalIsADeadLetter(t *testing.T) {
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	e := r.until("a", "facts")
	r.until("a", "question")
	r.eventually("parked", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Owner == nil
	})
	r.loseEvent(e)
	if err := r.bus.Wake(r.ctx(), run("a"), "test", loop.Wake{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("a dead letter", func() bool { return r.dead() == 1 })
	r.eventually("the queue is empty", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Wakes == 0
	})
}

func TestExpiry(t *testing.T) {
	r := newRig(t, converse(planned, answered, planned, answered))
	c := r.config()
	c.Keep = 300 * time.Millisecond
	r.start(c)
	r.submit("a", `{"goal": "g", "session": "s"}`)
	r.until("a", "answer")
	r.eventually("the run is gone", func() bool {
		_, _, err := r.bus.Load(r.ctx(), run("a"))
		return errors.Is(err, loop.ErrNotFound) && len(r.events("a")) == 0
	})
	if s, _, err := r.bus.LoadSession(r.ctx(), "default", "s"); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("the session is still there: %+v, %v", s, err)
	}
	r.submit("a", `{"goal": "again"}`)
	accepted := r.until("a", "accepted").Data.(loop.Accepted)
	if accepted.Task.Goal != "again" {
		t.Errorf("the id was not free: %q", accepted.Task.Goal)
	}
	r.until("a", "answer")
}

// Only runs that have ended, and long enough ago, expire; the others lie before and behind them.
func TestExpiryLeavesOthersAlone(t *testing.T) {
	asks, answers := converse(planned, m("ask_user", nil, `"question": "Which one?"`)), converse(planned, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		if strings.Contains(q.Messages[1].Content, "wait for me") {
			return asks(q)
		}
		return answers(q)
	})
	var later atomic.Int64
	c := r.config()
	c.Keep, c.Sweep = time.Hour, time.Second
	c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	r.start(c)
	r.submit("waits-1", `{"goal": "wait for me", "ask": {"timeout": "24h"}}`)
	r.until("waits-1", "question")
	for _, id := range []string{"old-1", "old-2", "old-3"} {
		r.submit(id, `{"goal": "g"}`)
		r.untilClosed(id)
	}
	r.submit("waits-2", `{"goal": "wait for me", "ask": {"timeout": "24h"}}`)
	r.until("waits-2", "question")
	later.Store(int64(2 * time.Hour))
	r.submit("new", `{"goal": "g"}`)
	r.untilClosed("new")
	for _, id := range []string{"old-1", "old-2", "old-3"} {
		r.eventually(id+" is gone", func() bool {
			_, _, err := r.bus.Load(r.ctx(), run(id))
			return errors.Is(err, loop.ErrNotFound) && len(r.events(id)) == 0
		})
	}
	for id, want := range map[string]loop.Status{"waits-1": loop.StatusWaiting, "waits-2": loop.StatusWaiting, "new": loop.StatusDone} {
		head, _, err := r.bus.Load(r.ctx(), run(id))
		if err != nil || head.Status != want || len(r.events(id)) == 0 {
			t.Errorf("%s is %s with %d events, %v", id, head.Status, len(r.events(id)), err)
		}
	}
	r.eventually("no wake-up is left", func() bool { // the sweep's own may be in hand
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Wakes == 0
	})
}

// A schedule that a worker of before left for a run is no harm: early it does nothing, and later the run goes with it.
func TestOldScheduleForAnExpiry(t *testing.T) {
	r := newRig(t, converse(planned, answered))
	var later atomic.Int64
	c := r.config()
	c.Keep, c.Sweep = time.Hour, time.Hour
	c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	r.start(c)
	r.submit("a", `{"goal": "g"}`)
	r.untilClosed("a")
	fire := func() {
		t.Helper()
		if err := r.bus.Schedule(r.ctx(), run("a"), "expire", time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	fire()
	r.eventually("the early one is settled", func() bool { return r.wakes() == 1 }) // the sweep's own
	if _, _, err := r.bus.Load(r.ctx(), run("a")); err != nil {
		t.Errorf("the run is gone too early: %v", err)
	}
	later.Store(int64(2 * time.Hour))
	fire()
	r.eventually("the run is gone", func() bool {
		_, _, err := r.bus.Load(r.ctx(), run("a"))
		return errors.Is(err, loop.ErrNotFound) && len(r.events("a")) == 0
	})
}

func TestPanicPoisonsTheRunAndNotTheWorker(t *testing.T) {
	r := newRig(t, converse(planned, answered))
	var panics atomic.Int64
	model := r.model
	r.model = modelFunc(func(ctx context.Context, q loop.ModelRequest) (loop.ModelReply, error) {
		if q.Run.Run == "bad" {
			panics.Add(1)
			panic("planted")
		}
		return model.Complete(ctx, q)
	})
	r.start(r.config())
	r.submit("bad", `{"goal": "g"}`)
	r.submit("good", `{"goal": "g"}`)
	r.untilClosed("good")
	r.eventuallyLong("poisoned", func() bool {
		e := r.events("bad")
		return len(e) > 0 && e[len(e)-1].Final()
	})
	events := r.untilClosed("bad")
	f, ok := events[len(events)-1].Data.(loop.Failed)
	if !ok || f.Reason != loop.FailPoisoned {
		t.Errorf("the run is %s: %+v", types(events), events[len(events)-1].Data)
	}
	if panics.Load() != 5 {
		t.Errorf("it was tried %d times", panics.Load())
	}
}

type modelFunc func(context.Context, loop.ModelRequest) (loop.ModelReply, error)

func (f modelFunc) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	return f(ctx, r)
}

func (r *rig) eventuallyLong(what string, check func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !check() {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within two minutes", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
