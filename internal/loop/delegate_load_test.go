package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// TestManyParents: parents that held a slot while their children wait for one would hang two workers with four slots each.
func TestManyParents(t *testing.T) {
	t.Parallel()
	manyParents(t, 60)
}

// BenchmarkManyParents is the same with 1,000 parents, of three children each.
func BenchmarkManyParents(b *testing.B) {
	for range b.N {
		const parents = 1000
		took := manyParents(b, parents)
		b.ReportMetric(4*parents/took.Seconds(), "runs/s")
	}
}

// manyParents runs parents with three children each on two workers that drive four runs at a time, and returns how long
// that took.
func manyParents(t testing.TB, parents int) time.Duration {
	t.Helper()
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	part := func(n string) string { return n + ` part|, "strategy": "react"` }
	words := family{
		"the whole": {planned, delegates(part("first"), part("second"), part("third")), answered},
		" part":     {reactAnswer + "a part"},
	}
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	defer workers.Wait()
	defer stop()
	for i := range 2 {
		registry, err := tools.New(tools.Config{Tools: tools.Builtins(nil), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w, err := loop.NewWorker(loop.Config{
			Name: fmt.Sprint("w", i), Journal: b, Heads: b, Wakes: b, Sessions: b, Blobs: b, Graveyard: b, Outcomes: b, Orders: b,
			Inbox: b.Inbox(), WakeQueue: b.Wakes(), Model: words, Tools: registry, Concurrency: 4, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		stopHearing, err := b.HearClaims(w.HearClaim)
		if err != nil {
			t.Fatal(err)
		}
		workers.Go(func() {
			defer stopHearing()
			if err := w.Run(ctx); err != nil {
				t.Errorf("worker: %v", err)
			}
		})
	}
	answers := make(chan struct{}, parents)
	sub, err := nc.Subscribe("agent.event.*.*.user", func(*nats.Msg) { answers <- struct{}{} }) // answers of child runs are not there
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	began := time.Now()
	for i := range parents {
		task := fmt.Appendf(nil, `{"id": "r%d", "goal": "the whole"}`, i)
		if _, err := b.PublishTask(ctx, "default", task, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(10 * time.Minute)
	for ended := range parents {
		select {
		case <-answers:
		case <-deadline:
			t.Fatalf("%d of %d runs have ended, and the others do not", ended, parents)
		}
	}
	took := time.Since(began)
	for i := range parents {
		page, err := b.Read(ctx, run(fmt.Sprint("r", i)), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(outcomes(page.Events)); got != 3 || page.Events[len(page.Events)-1].Type() != "answer" {
			t.Fatalf("run %d came to %s", i, types(page.Events))
		}
	}
	return took
}
