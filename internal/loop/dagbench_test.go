package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// reportPlan is the plan of a report: three loads, merge, chart and report, mail. Step i takes so many milliseconds.
func reportPlan(ms [7]int) (text string, after [7][]int) {
	after = [7][]int{3: {0, 1, 2}, 4: {3}, 5: {3}, 6: {4, 5}}
	list := make([]string, len(ms))
	for i, each := range ms {
		before := make([]string, len(after[i]))
		for j, b := range after[i] {
			before[j] = fmt.Sprintf("%q", fmt.Sprint(b+1))
		}
		list[i] = step(fmt.Sprint(i+1), "work", fmt.Sprintf(`{"ms": %d}`, each), `"after": [`+strings.Join(before, ", ")+`]`)
	}
	return steps(list...), after
}

// planner is a worker whose model plans a report and takes no time.
type planner struct {
	b    *testing.B
	bus  *bus.Bus
	runs int
	ms   atomic.Pointer[[7]int]
}

func newPlanner(b *testing.B) *planner {
	p := &planner{b: b}
	fake := llmtest.Server(b, func(q llmtest.Request) llmtest.Reply {
		if len(q.Messages) > 2 {
			return llmtest.Text(finished)
		}
		text, _ := reportPlan(*p.ms.Load())
		return llmtest.Text(text)
	})
	type arguments struct {
		MS int `json:"ms"`
	}
	work := tools.Typed(tools.Tool{Spec: loop.ToolSpec{Name: "work", Description: "works", Effect: loop.EffectRead}},
		func(ctx context.Context, _ loop.Invocation, a arguments) (any, error) {
			select {
			case <-time.After(time.Duration(a.MS) * time.Millisecond):
				return "done", nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
	registry, err := tools.New(tools.Config{Logger: slog.New(slog.DiscardHandler), Tools: []tools.Tool{work}})
	if err != nil {
		b.Fatal(err)
	}
	bu := bustest.Open(b, bustest.Connect(b, bustest.Server(b)), bus.Options{Log: slog.New(slog.DiscardHandler)})
	p.bus = bu
	w, err := loop.NewWorker(loop.Config{
		Name: "bench", Journal: bu, Heads: bu, Wakes: bu, Sessions: bu, Blobs: bu, Catalogues: bu, Graveyard: bu, Outcomes: bu, Inbox: bu.Inbox(),
		WakeQueue: bu.Wakes(), Orders: bu, Model: fake.Client(b), Tools: registry, Grace: time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return p
}

// run plans with steps that take so long, and returns the events.
func (p *planner) run(ms [7]int) []loop.Event {
	p.ms.Store(&ms)
	p.runs++
	id := fmt.Sprint("r", p.runs)
	if _, err := p.bus.PublishTask(p.b.Context(), "default", []byte(`{"id": "`+id+`", "goal": "g", "strategy": "plan_execute"}`), "", ""); err != nil {
		p.b.Fatal(err)
	}
	for {
		page, err := p.bus.Read(p.b.Context(), run(id), 0)
		if err != nil {
			p.b.Fatal(err)
		}
		if n := len(page.Events); n > 1 && page.Events[n-1].Final() {
			return page.Events
		}
		time.Sleep(5 * time.Millisecond) // nothing tells of an append
	}
}

// BenchmarkPlanExecute runs the plan of a report with tools that take 200 ms each. over is how much longer than its critical
// path of 800 ms it takes, in percent.
func BenchmarkPlanExecute(b *testing.B) {
	p := newPlanner(b)
	const critical = 800 * time.Millisecond
	var took time.Duration
	i := 0
	for b.Loop() {
		events := p.run([7]int{200, 200, 200, 200, 200, 200, 200})
		took += events[len(events)-1].Time.Sub(events[1].Time)
		i++
	}
	over := took/time.Duration(i) - critical
	b.ReportMetric(100*over.Seconds()/critical.Seconds(), "over-%")
}

// BenchmarkPlanExecuteUneven runs it with tools that take 50 to 400 ms, drawn by a seed. over is how much longer than its
// critical path the whole run takes. late is how long after all that it depends on was done a step's call was stored, and
// behind how long after the end of its own critical path it was done: of the worst step of a run, in milliseconds. Each is
// that of the run in the middle. A step that waited for one it does not depend on would be late by tens or hundreds of them.
func BenchmarkPlanExecuteUneven(b *testing.B) {
	p := newPlanner(b)
	draw := rand.New(rand.NewPCG(7, 7))
	var overs, lates, behinds []float64
	for b.Loop() {
		var late, behind time.Duration
		var ms [7]int
		for j := range ms {
			ms[j] = 50 + draw.IntN(351)
		}
		_, after := reportPlan(ms)
		events := p.run(ms)
		called, ended := stepTimes(events)
		var ideal [7]time.Duration // when each step ends at the earliest
		begun := events[2].Time    // of the plan
		for j := range ms {
			ready, start := begun, time.Duration(0)
			for _, before := range after[j] {
				start = max(start, ideal[before])
				if ended[before].After(ready) {
					ready = ended[before]
				}
			}
			ideal[j] = start + time.Duration(ms[j])*time.Millisecond
			late, behind = max(late, called[j].Sub(ready)), max(behind, ended[j].Sub(begun)-ideal[j])
		}
		over := events[len(events)-1].Time.Sub(events[1].Time) - ideal[6]
		overs = append(overs, 100*over.Seconds()/ideal[6].Seconds())
		lates, behinds = append(lates, 1000*late.Seconds()), append(behinds, 1000*behind.Seconds())
	}
	for unit, list := range map[string][]float64{"over-%": overs, "late-ms": lates, "behind-ms": behinds} {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], unit)
	}
}

// stepTimes are when the call of each step was stored, and when its outcome was.
func stepTimes(events []loop.Event) (called, ended [7]time.Time) {
	place := map[string]int{}
	for _, e := range events {
		switch d := e.Data.(type) {
		case loop.Call:
			for _, c := range d.Calls {
				number, _ := strconv.Atoi(c.Step)
				place[c.Call], called[number-1] = number-1, e.Time
			}
		case loop.Observation:
			ended[place[d.Call]] = e.Time
		}
	}
	return called, ended
}
