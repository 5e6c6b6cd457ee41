package loop_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// summing answers runs by a script, and asks for summaries by another one.
func summing(script func(llmtest.Request) llmtest.Reply, sum func(summary string, messages []string) llmtest.Reply) func(llmtest.Request) llmtest.Reply {
	return func(q llmtest.Request) llmtest.Reply {
		if q.Header.Get("X-Ratchet-Purpose") != string(loop.PurposeSummarize) {
			return script(q)
		}
		var data struct {
			Summary  string
			Messages []loop.SessionMessage
		}
		if err := json.Unmarshal([]byte(q.Messages[1].Content), &data); err != nil {
			return llmtest.Raw(400, `{"error": {"message": "the data is no JSON"}}`)
		}
		var texts []string
		for _, m := range data.Messages {
			texts = append(texts, m.Role+": "+m.Text)
		}
		return sum(data.Summary, texts)
	}
}

// TestRollingSummary has a session outgrow what a run is shown: what came before is summed up, once, and the next run is
// shown the summary and every message that it does not stand for.
func TestRollingSummary(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all prompts
	asked := []string{}
	shown := map[string]string{}
	script := say(planned, answered)
	r := newRig(t, all.keep(summing(func(q llmtest.Request) llmtest.Reply {
		mu.Lock()
		defer mu.Unlock()
		shown[q.Header.Get("X-Ratchet-Run")] = q.Messages[1].Content
		return script(q)
	}, func(summary string, messages []string) llmtest.Reply {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, summary+" + "+strings.Join(messages, ", "))
		return llmtest.Text("<think>well</think>\nThe person has asked for goals, " + fmt.Sprint(len(asked)) + " times.")
	})))
	for range 2 {
		c := r.config()
		c.History, c.Summaries, c.SummaryModel = 4, true, "a-small-model"
		r.start(c)
	}
	summary := func() loop.SessionSummary {
		s, _, err := r.bus.LoadSession(r.ctx(), "default", "s")
		if err != nil || s.Summary == nil {
			return loop.SessionSummary{}
		}
		return *s.Summary
	}
	for i := range 5 { // two messages each: the third run makes two of them due, the fourth and fifth two more each
		r.submit(fmt.Sprint("r", i), fmt.Sprintf(`{"goal": "Goal %d", "session": "s"}`, i))
		r.untilClosed(fmt.Sprint("r", i))
		if i >= 2 {
			r.eventually("the summary", func() bool { return summary().Run == fmt.Sprint("r", i-2) })
		}
	}
	for _, q := range all.all() {
		if sums := q.Header.Get("X-Ratchet-Purpose") == string(loop.PurposeSummarize); sums != (q.Model == "a-small-model") {
			t.Errorf("%s was asked by %s to %s", q.Model, q.Header.Get("X-Ratchet-Run"), q.Header.Get("X-Ratchet-Purpose"))
		}
	}
	want := []string{
		" + user: Goal 0, assistant: It is 42.",
		"The person has asked for goals, 1 times. + user: Goal 1, assistant: It is 42.",
		"The person has asked for goals, 2 times. + user: Goal 2, assistant: It is 42.",
	}
	mu.Lock()
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the model was asked (-want +got):\n%s", diff)
	}
	mu.Unlock()
	facts := r.events("r4")[1].Data.(loop.Facts)
	if facts.Summary != "The person has asked for goals, 2 times." || len(facts.History) != 4 || facts.History[0].Text != "Goal 2" {
		t.Errorf("the last run was given %+v", facts)
	}
	mu.Lock()
	defer mu.Unlock()
	if prompt := shown["default/r4"]; !strings.Contains(prompt, facts.Summary) || strings.Contains(prompt, "Goal 1") || !strings.Contains(prompt, "Goal 2") {
		t.Errorf("the last run was shown %q", prompt)
	}
	s, _, err := r.bus.LoadSession(r.ctx(), "default", "s")
	if err != nil || len(s.Messages) != 10 {
		t.Errorf("the session has %d messages, %v; none is to be lost", len(s.Messages), err)
	}
}

// talk stores a session of n messages, as ended runs leave it.
func talk(t *testing.T, b *bus.Bus, session string, n int) {
	t.Helper()
	var s loop.Session
	for i := range n {
		s.Messages = append(s.Messages, loop.SessionMessage{Role: "user", Text: fmt.Sprint("m", i+1), Run: fmt.Sprint("r", i), N: 1, Time: time.Now()})
	}
	if err := b.SaveSession(bustest.Context(t), "default", session, s, 0); err != nil {
		t.Fatal(err)
	}
}

// sumJob queues the job that an ended run queues.
func sumJob(t *testing.T, b *bus.Bus, session, key string) {
	t.Helper()
	if err := b.Job(bustest.Context(t), "default", loop.JobSum, key, map[string]string{"session": session, "run": "r0"}); err != nil {
		t.Fatal(err)
	}
}

// TestSummaryIsMadeOnce does the work at the same instant on two workers, and once more afterwards.
func TestSummaryIsMadeOnce(t *testing.T) {
	t.Parallel()
	var arrived sync.WaitGroup
	arrived.Add(2)
	var mu sync.Mutex
	asked := 0
	r := newRig(t, summing(nil, func(summary string, _ []string) llmtest.Reply {
		mu.Lock()
		asked++
		n := asked
		mu.Unlock()
		if n <= 2 { // both have read the session before either stores a summary
			arrived.Done()
			arrived.Wait()
		}
		return llmtest.Text(fmt.Sprintf("%s[summary %d]", summary, n))
	}))
	for range 2 {
		c := r.config()
		c.History, c.Summaries, c.Concurrency = 4, true, 1
		r.start(c)
	}
	talk(t, r.bus, "s", 12)
	idle := func(what string) {
		r.eventually(what, func() bool {
			backlog, err := r.bus.Backlog(r.ctx())
			return err == nil && backlog.Wakes == 0
		})
	}
	sumJob(t, r.bus, "s", "one")
	sumJob(t, r.bus, "s", "two")
	idle("both jobs are done")
	s, _, err := r.bus.LoadSession(r.ctx(), "default", "s")
	if err != nil || s.Summary == nil || strings.Count(s.Summary.Text, "[summary") != 1 || s.Summary.Run != "r7" || len(s.Messages) != 12 {
		t.Fatalf("the session is %+v, %v", s, err)
	}
	first := *s.Summary
	sumJob(t, r.bus, "s", "three")
	idle("the third job is done")
	s, _, err = r.bus.LoadSession(r.ctx(), "default", "s")
	if diff := cmp.Diff(&first, s.Summary); diff != "" || err != nil || asked != 2 {
		t.Errorf("done again: asked %d times, %v (-first +now):\n%s", asked, err, diff)
	}
}

// TestSummaryFails: a run does not depend on the summary, nor does what the next one is shown.
func TestSummaryFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, summing(say(planned, answered), func(string, []string) llmtest.Reply {
		return llmtest.Raw(401, `{"error": {"message": "no key"}}`)
	}))
	c := r.config()
	c.History, c.Summaries = 4, true
	r.start(c)
	talk(t, r.bus, "s", 12)
	r.submit("a", `{"goal": "g", "session": "s"}`)
	facts := r.untilClosed("a")[1].Data.(loop.Facts)
	if len(facts.History) != 8 || facts.Summary != "" {
		t.Errorf("the run was given %+v", facts)
	}
	r.eventually("the job is dropped", func() bool {
		backlog, err := r.bus.Backlog(r.ctx())
		return err == nil && backlog.Wakes == 0
	})
	s, _, err := r.bus.LoadSession(r.ctx(), "default", "s")
	if err != nil || s.Summary != nil || len(s.Messages) != 14 {
		t.Errorf("the session is %+v, %v", s, err)
	}
}

// TestSummaryTooLong: one that is too long is asked for again, and then cut.
func TestSummaryTooLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 4000)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		if len(q.Messages) == 4 && !strings.Contains(q.Last(), "8000 bytes") {
			t.Errorf("it is asked for again with %q", q.Last())
		}
		return llmtest.Text(long)
	})
	c := r.config()
	c.History, c.Summaries = 4, true
	r.start(c)
	talk(t, r.bus, "s", 12)
	sumJob(t, r.bus, "s", "one")
	r.eventually("the summary", func() bool {
		s, _, err := r.bus.LoadSession(r.ctx(), "default", "s")
		if err != nil || s.Summary == nil {
			return false
		}
		if n := len(s.Summary.Text); n < 4000 || n > 4100 {
			t.Errorf("it has %d bytes", n)
		}
		return true
	})
}

// TestKilledWhileSummingUp kills a worker before and after each thing it does for a summary; another makes it.
func TestKilledWhileSummingUp(t *testing.T) {
	for at, name := range []string{"model", "session", "ack"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%v", name, after), func(t *testing.T) {
				t.Parallel()
				nc := bustest.Connect(t, bustest.Server(t))
				b := bustest.Open(t, nc, bus.Options{Lease: crashLease, Log: slog.New(slog.DiscardHandler)})
				r := &rig{t: t, nc: nc, bus: b}
				registry, err := tools.New(tools.Config{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				model := &byTurn{texts: []string{"what was said"}}
				config := func(name string, c *crash) loop.Config {
					cb := crashBus{b, c}
					return loop.Config{
						Name: name, Journal: cb, Heads: cb, Wakes: cb, Sessions: cb, Blobs: b, Graveyard: b, Outcomes: b, Orders: b,
						Inbox: crashSource{b.Inbox(), c}, WakeQueue: crashSource{b.Wakes(), c}, Model: crashModel{model, c}, Tools: registry,
						Lease: crashLease, Grace: time.Millisecond, Sweep: time.Hour, History: 4, Summaries: true, Log: slog.New(slog.DiscardHandler),
					}
				}
				talk(t, b, "s", 12)
				sumJob(t, b, "s", "one")
				c := newCrash(at+1, after)
				first := r.start(config("first", c))
				r.eventually("the crash", func() bool {
					select {
					case <-c.dead:
						return true
					default:
						return false
					}
				})
				first.stop()
				if !strings.HasPrefix(c.names[at], name) {
					t.Errorf("killed at %v", c.names)
				}
				r.start(config("second", newCrash(0, false)))
				r.eventually("the job is done", func() bool {
					backlog, err := b.Backlog(r.ctx())
					return err == nil && backlog.Wakes == 0
				})
				s, _, err := b.LoadSession(r.ctx(), "default", "s")
				if err != nil || s.Summary == nil || s.Summary.Text != "what was said" || s.Summary.Run != "r7" || len(s.Messages) != 12 {
					t.Errorf("the session is %+v, %v", s, err)
				}
				if model.calls > 2 {
					t.Errorf("the model was asked %d times", model.calls)
				}
			})
		}
	}
}
