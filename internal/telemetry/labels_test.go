package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/telemetry"
)

// answering is a model, a set of tools, a journal and a graveyard that take everything.
type answering struct {
	loop.Journal
	loop.Heads
	loop.Sessions
	loop.Tools
}

func (answering) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	if strings.HasSuffix(r.Model, "7") {
		return loop.ModelReply{}, &loop.ModelError{Cause: "cause-" + r.Model}
	}
	return loop.ModelReply{Model: r.Model, Usage: loop.Usage{PromptTokens: 3, CompletionTokens: 2, CostUSD: 0.5}}, nil
}

func (answering) Call(context.Context, loop.Invocation) loop.Outcome {
	return loop.Outcome{Status: loop.ObservedOK}
}

func (answering) Append(context.Context, loop.Event, uint64) (uint64, error) { return 1, nil }

func (answering) Bury(context.Context, loop.Delivery, string, string) error { return nil }

// TestLabelsStayBounded has ten thousand tenants, models, tools and reasons come by, many at once.
func TestLabelsStayBounded(t *testing.T) {
	const many, room = 10_000, 20
	tel, err := telemetry.New(telemetry.Config{Tenants: room, Models: room, Tools: room})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	var all answering
	c := tel.Watch(loop.Config{Model: all, Tools: all, Journal: all, Heads: all, Sessions: all, Graveyard: all})
	ctx := t.Context()
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < many; i += 4 {
				id := loop.RunID{Tenant: fmt.Sprintf("tenant-%d", i), Run: fmt.Sprintf("run-%d", i)}
				model := fmt.Sprintf("model-%d\xff%s", i, strings.Repeat("x", i%200))
				_, _ = c.Model.Complete(ctx, loop.ModelRequest{Run: id, Model: model, Purpose: loop.PurposeStep})
				c.Tools.Call(ctx, loop.Invocation{Run: id, Tool: fmt.Sprintf("tool-%d", i)})
				for _, data := range []loop.Data{loop.Rejection{Made: loop.Made{Model: model}}, loop.Answer{}} {
					if _, err := c.Journal.Append(ctx, loop.Event{RunID: id, N: 1, Data: data}, 0); err != nil {
						t.Error(err)
					}
				}
				_ = c.Graveyard.Bury(ctx, loop.Delivery{RunID: id, Kind: loop.DeliverTask}, fmt.Sprintf("reason-%d", i), "")
				c.Observer.Delivered(&loop.Delivery{RunID: id, Kind: loop.DeliverTask, Time: time.Now(), Attempt: uint64(i)})
			}
		})
	}
	wg.Wait()

	families, err := tel.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	totals := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "ratchet_") {
			continue
		}
		if n := len(f.GetMetric()); n > 2*(room+1)*(50+1) || n > 3*(room+1) && f.GetName() != "ratchet_model_requests_total" {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
		for _, m := range f.GetMetric() {
			totals[f.GetName()] += m.GetCounter().GetValue()
			for _, l := range m.GetLabel() {
				if len(l.GetValue()) > 140 {
					t.Errorf("%s has the label %s=%q", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	// What finds no room is counted all the same.
	for _, name := range []string{
		"ratchet_tenant_runs_total", "ratchet_rejections_total", "ratchet_tool_calls_total", "ratchet_tenant_tool_calls_total",
		"ratchet_model_requests_total", "ratchet_tenant_model_requests_total", "ratchet_dead_letters_total",
	} {
		if totals[name] != many {
			t.Errorf("%s counts %v, want %v", name, totals[name], many)
		}
	}
	if got := totals["ratchet_tenant_tokens_total"]; got != totals["ratchet_model_tokens_total"] || got < 4*many {
		t.Errorf("%v tokens of tenants, %v of models", got, totals["ratchet_model_tokens_total"])
	}
	if totals["ratchet_label_overflow_total"] < 3*(many-room) {
		t.Errorf("%v values found no room", totals["ratchet_label_overflow_total"])
	}
}
