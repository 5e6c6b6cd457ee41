package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// BenchmarkPlanExecute runs the plan of a report, three loads, merge, chart and report, mail, with tools that take 200 ms
// each and a model that takes no time. over is how much longer than its critical path of 800 ms it takes, in percent.
func BenchmarkPlanExecute(b *testing.B) {
	const each = 200 * time.Millisecond
	fake := llmtest.Server(b, func(q llmtest.Request) llmtest.Reply {
		if len(q.Messages) > 2 {
			return llmtest.Text(finished)
		}
		return llmtest.Text(steps(
			step("1", "work", `{}`, ""), step("2", "work", `{}`, ""), step("3", "work", `{}`, ""),
			step("4", "work", `{}`, `"after": ["1", "2", "3"]`), step("5", "work", `{}`, `"after": ["4"]`),
			step("6", "work", `{}`, `"after": ["4"]`), step("7", "work", `{}`, `"after": ["5", "6"]`)))
	})
	registry, err := tools.New(tools.Config{Logger: slog.New(slog.DiscardHandler), Tools: []tools.Tool{{
		Spec: loop.ToolSpec{Name: "work", Description: "works", Schema: json.RawMessage(`{"type":"object"}`), Effect: loop.EffectRead},
		Run: func(ctx context.Context, _ loop.Invocation) (any, error) {
			select {
			case <-time.After(each):
				return "done", nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	nc := bustest.Connect(b, bustest.Server(b))
	bu := bustest.Open(b, nc, bus.Options{Log: slog.New(slog.DiscardHandler)})
	w, err := loop.NewWorker(loop.Config{
		Name: "bench", Journal: bu, Heads: bu, Wakes: bu, Sessions: bu, Blobs: bu, Catalogues: bu, Graveyard: bu, Outcomes: bu, Inbox: bu.Inbox(),
		WakeQueue: bu.Wakes(), Orders: bu, Model: fake.Client(b), Tools: registry, Grace: time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	var took time.Duration
	i := 0
	for b.Loop() {
		id := fmt.Sprint("r", i)
		i++
		if _, err := bu.PublishTask(b.Context(), "default", []byte(`{"id": "`+id+`", "goal": "g", "strategy": "plan_execute"}`), "", ""); err != nil {
			b.Fatal(err)
		}
		took += fromFactsToEnd(b, bu, run(id))
	}
	over := took/time.Duration(i) - 4*each
	b.ReportMetric(100*over.Seconds()/(4*each).Seconds(), "over-%")
}

// fromFactsToEnd waits for a run's end and returns how long it worked.
func fromFactsToEnd(b *testing.B, bu *bus.Bus, id loop.RunID) time.Duration {
	for {
		page, err := bu.Read(b.Context(), id, 0)
		if err != nil {
			b.Fatal(err)
		}
		if n := len(page.Events); n > 1 && page.Events[n-1].Final() {
			return page.Events[n-1].Time.Sub(page.Events[1].Time)
		}
		time.Sleep(5 * time.Millisecond) // nothing tells of an append
	}
}
