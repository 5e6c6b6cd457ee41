package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/telemetry"
	builtin "ratchet/internal/tools"
)

// instant is a model without latency that plans and answers.
type instant struct{}

func (instant) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	text := planned
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			text = answered
		}
	}
	return loop.ModelReply{Text: text, Model: "instant", Usage: loop.Usage{PromptTokens: 900, CompletionTokens: 90}}, nil
}

// discard takes spans and forgets them.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// bench is a worker that drives runs over a server of its own.
type bench struct {
	b      *testing.B
	bus    *bus.Bus
	ended  chan struct{}
	number int

	runs   int
	took   time.Duration
	cpu    time.Duration
	allocs uint64
}

func startBench(b *testing.B, watch func(loop.Config) loop.Config) *bench {
	nc := bustest.Connect(b, bustest.Server(b))
	bu := bustest.Open(b, nc, bus.Options{Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	registry, err := builtin.New(builtin.Config{Tools: builtin.Builtins(time.Now), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	w, err := loop.NewWorker(watch(loop.Config{
		Name: "bench", Journal: bu, Heads: bu, Wakes: bu, Sessions: bu, Blobs: bu, Graveyard: bu, Outcomes: bu, Orders: bu,
		Inbox: bu.Inbox(), WakeQueue: bu.Wakes(), Model: instant{}, Tools: registry, Concurrency: 32, Log: slog.New(slog.DiscardHandler),
	}))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return &bench{b: b, bus: bu, ended: ends(b, nc)}
}

// ends has an element for each run that ended.
func ends(b *testing.B, nc *nats.Conn) chan struct{} {
	ended := make(chan struct{}, 1<<16)
	sub, err := nc.Subscribe("agent.event.*.*.user", func(*nats.Msg) { ended <- struct{}{} })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sub.Unsubscribe() })
	return ended
}

// round drives so many runs and counts what they cost.
func (x *bench) round(runs int, counts bool) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, began := cpuTime(), time.Now()
	for range runs {
		x.number++
		task := fmt.Sprintf(`{"id": "r%d", "goal": "g"}`, x.number)
		if _, err := x.bus.PublishTask(context.Background(), "acme", []byte(task), "", ""); err != nil {
			x.b.Fatal(err)
		}
	}
	for range runs {
		<-x.ended
	}
	if !counts {
		return
	}
	runtime.ReadMemStats(&after)
	x.runs, x.took, x.cpu, x.allocs = x.runs+runs, x.took+time.Since(began), x.cpu+cpuTime()-cpu, x.allocs+after.Mallocs-before.Mallocs
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTelemetry drives the same runs without telemetry, with metrics, and with metrics and traces, in turns, so that
// noise hits all alike. The ratios compare processor time (worker, server and submitter) and allocations with those of the
// worker without.
func BenchmarkTelemetry(b *testing.B) {
	with := func(conf telemetry.Config) func(loop.Config) loop.Config {
		tel, err := telemetry.New(conf)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(tel.Close)
		return tel.Watch
	}
	kinds := []struct {
		name string
		*bench
	}{
		{"off", startBench(b, func(c loop.Config) loop.Config { return c })},
		{"metrics", startBench(b, with(telemetry.Config{}))},
		{"traces", startBench(b, with(telemetry.Config{Exporter: discard{}}))},
	}
	const runs = 200
	for _, k := range kinds {
		k.round(runs, false)
	}
	b.ResetTimer()
	for range b.N {
		for _, k := range kinds {
			k.round(runs, true)
		}
	}
	off := kinds[0]
	for _, k := range kinds {
		b.ReportMetric(float64(k.cpu.Microseconds())/float64(k.runs), k.name+"-cpu-µs/run")
		b.ReportMetric(float64(k.allocs)/float64(k.runs), k.name+"-allocs/run")
		if k.name != off.name {
			b.ReportMetric(float64(k.cpu)/float64(off.cpu), k.name+"/off")
		}
	}
	b.ReportMetric(0, "ns/op")
}
