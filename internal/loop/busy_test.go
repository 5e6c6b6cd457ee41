package loop_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
