package loop_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

func TestOnBusyReject(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	script := converse(planned, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		reply := script(q)
		reply.Wait = gate
		return reply
	})
	r.start(r.config())
	r.start(r.config())
	const tasks = 6
	var wg sync.WaitGroup
	for i := range tasks { // at the same instant, on two workers
		wg.Go(func() {
			r.submit(fmt.Sprint("r", i), `{"goal": "g", "session": "s", "on_busy": "reject"}`)
		})
	}
	wg.Wait()
	var began, refused atomic.Int64
	for i := range tasks {
		id := fmt.Sprint("r", i)
		r.eventually("the second event", func() bool { return len(r.events(id)) > 1 })
		switch d := r.events(id)[1].Data.(type) {
		case loop.Facts:
			began.Add(1)
		case loop.Failed:
			refused.Add(1)
			if !strings.Contains(d.Message, "busy") {
				t.Errorf("refused with %q", d.Message)
			}
		}
	}
	if began.Load() != 1 || refused.Load() != tasks-1 {
		t.Errorf("%d began and %d were refused", began.Load(), refused.Load())
	}
	close(gate)
	for i := range tasks {
		r.untilClosed(fmt.Sprint("r", i))
	}
	r.submit("later", `{"goal": "g", "session": "s", "on_busy": "reject"}`)
	if got, want := types(r.untilClosed("later")), "accepted facts plan thought answer"; got != want {
		t.Errorf("once the session is free: %s, want %s", got, want)
	}
}

func TestOnBusyInterrupt(t *testing.T) {
	t.Parallel()
	var shown atomic.Value
	script := converse(planned, asks, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		if q.Header.Get("X-Ratchet-Run") == "default/second" {
			shown.Store(q.Messages[1].Content)
			switch n := len(q.Messages); {
			case n <= 2:
				return llmtest.Text(planned)
			default:
				return llmtest.Text(answered)
			}
		}
		return script(q)
	})
	r.start(r.config())
	r.start(r.config())
	r.submit("first", `{"goal": "the first goal", "session": "s"}`)
	r.until("first", "question")
	r.submit("second", `{"goal": "the second goal", "session": "s", "on_busy": "interrupt"}`)
	first := r.untilClosed("first")
	if c, ok := first[len(first)-1].Data.(loop.Cancelled); !ok || !strings.Contains(c.Reason, "second") {
		t.Errorf("the first run ended as %+v", first[len(first)-1].Data)
	}
	r.untilClosed("second")
	prompt, _ := shown.Load().(string)
	if !strings.Contains(prompt, "the first goal") || !strings.Contains(prompt, "interrupted") {
		t.Errorf("the second run was shown %q", prompt)
	}
}

// atOnce submits that many tasks of one session at the same instant, to two workers.
func (r *rig) atOnce(tasks int, onBusy string) {
	r.t.Helper()
	r.start(r.config())
	r.start(r.config())
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range tasks {
		wg.Go(func() {
			<-begin
			r.submit(fmt.Sprint("r", i), fmt.Sprintf(`{"goal": "goal %d", "session": "s", "on_busy": %q}`, i, onBusy))
		})
	}
	close(begin)
	wg.Wait()
}

// turns are the times in which runs had their turn in the session, the first first. Two that overlap are an error.
func (r *rig) turns(tasks int) (order []string) {
	r.t.Helper()
	type turn struct {
		run      string
		from, to time.Time
	}
	var list []turn
	for i := range tasks {
		id := fmt.Sprint("r", i)
		events := r.untilClosed(id)
		for _, e := range events {
			if _, began := e.Data.(loop.Facts); began {
				list = append(list, turn{id, e.Time, events[len(events)-1].Time})
			}
		}
	}
	slices.SortFunc(list, func(a, b turn) int { return a.from.Compare(b.from) })
	for i, t := range list {
		order = append(order, t.run)
		if i > 0 && t.from.Before(list[i-1].to) {
			r.t.Errorf("run %s began before run %s had ended", t.run, list[i-1].run)
		}
	}
	return order
}

func (r *rig) session() loop.Session {
	r.t.Helper()
	s, _, err := r.bus.LoadSession(r.ctx(), "default", "s")
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestOnBusyEnqueueAtOnce: all are answered, one after another, and each is shown what was said in those before it.
func TestOnBusyEnqueueAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, say(planned, answered))
	const tasks = 6
	r.atOnce(tasks, "enqueue")
	order := r.turns(tasks)
	if len(order) != tasks {
		t.Fatalf("%d runs had their turn: %v", len(order), order)
	}
	for i, id := range order {
		events := r.events(id)
		if _, ok := events[len(events)-1].Data.(loop.Answer); !ok {
			t.Errorf("run %s ends with %s", id, types(events))
		}
		answers := 0
		for _, e := range events {
			if facts, ok := e.Data.(loop.Facts); ok {
				for _, m := range facts.History {
					if m.Role == "assistant" {
						answers++
					}
				}
			}
		}
		if answers != i {
			t.Errorf("run %s, number %d, was shown %d answers", id, i+1, answers)
		}
	}
	if s := r.session(); len(s.Messages) != 2*tasks || len(s.Runs) != 0 {
		t.Errorf("the session is %+v", s)
	}
}

// TestOnBusyInterruptAtOnce: each cancels those before it. The last in the session is answered; whoever was cancelled was so
// by one of the others; none is lost.
func TestOnBusyInterruptAtOnce(t *testing.T) {
	t.Parallel()
	script := say(planned, asks, answered)
	r := newRig(t, script)
	const tasks = 6
	r.atOnce(tasks, "interrupt")
	var last string
	cancelled := 0
	r.eventually("all but one are cancelled", func() bool {
		last, cancelled = "", 0
		for i := range tasks {
			id := fmt.Sprint("r", i)
			events := r.events(id)
			if len(events) == 0 {
				return false
			}
			switch d := events[len(events)-1].Data.(type) {
			case loop.Cancelled:
				cancelled++
				if !strings.Contains(d.Reason, "interrupted by run r") {
					t.Fatalf("run %s was cancelled for %q", id, d.Reason)
				}
			case loop.Question:
				last = id
			default: // on its way
			}
		}
		return cancelled == tasks-1 && last != ""
	})
	r.eventually("it is the one in the session", func() bool { return slices.Equal(r.session().Runs, []string{last}) })
	r.reply(last, `{"text": "go on"}`)
	events := r.untilClosed(last)
	if _, ok := events[len(events)-1].Data.(loop.Answer); !ok {
		t.Errorf("the last run ends with %s", types(events))
	}
	if order := r.turns(tasks); order[len(order)-1] != last {
		t.Errorf("turns were %v, the last is %s", order, last)
	}
	goals := map[string]bool{}
	for _, m := range r.session().Messages {
		if m.Role == "user" && m.N == 1 {
			goals[m.Text] = true
		}
	}
	if len(goals) != tasks {
		t.Errorf("the session has the goals %v, want those of all", goals)
	}
}
