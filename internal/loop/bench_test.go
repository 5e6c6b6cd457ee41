package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// inFlight is how many runs, or bare appends, are under way at once.
const inFlight = 32

func init() {
	debug.SetGCPercent(gcPercent)
}

// gcPercent is that of the worker program while its heap is small.
const gcPercent = 400

// BenchmarkEngine compares the engine with a model that takes no time to the floor, bare appends of 1 KB to the journal
// with an expected last sequence, both counted in appends per second, on one server in one run. ratio is the engine's
// rate over the floor's.
func BenchmarkEngine(b *testing.B) {
	for _, sync := range []string{"2m", "always"} {
		b.Run("sync="+sync, func(b *testing.B) {
			for _, steps := range []int{6, 30} {
				b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) { benchEngine(b, sync, steps) })
			}
		})
	}
}

func benchEngine(b *testing.B, sync string, steps int) {
	server := benchServer(b, sync)
	nc := bustest.Connect(b, server)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	bu := bustest.Open(b, nc, bus.Options{Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	paces := &paces{left: map[loop.RunID]time.Time{}}
	stop := startBench(b, bu, timedModel{instantModel{steps: steps}, paces})
	defer stop()
	ends := watchEnds(b, nc)

	runs := max(b.N, 10*inFlight)
	driveRuns(b, js, ends, "warm", inFlight) // connections, pools, page cache
	const appendsFloor = 20_000
	floor := min(appendsFloor, max(2_000, runs*steps))
	if sync == "always" {
		floor = min(floor, 4_000)
	}
	before := bareAppends(b, js, "before", floor/2)

	paces.clear()
	cpu, mem, size := cpuTime(), allocations(), stored(b, js)
	b.ResetTimer()
	took := driveRuns(b, js, ends, "run", runs)
	b.StopTimer()
	appends := float64(runs * (steps + 1))
	rate := appends / took.Seconds()
	cpu, mem = cpuTime()-cpu, allocations()-mem
	size = stored(b, js) - size
	after := bareAppends(b, js, "after", floor/2)
	floorRate := (before + after) / 2

	b.ReportMetric(rate, "appends/s")
	b.ReportMetric(floorRate, "floor/s")
	b.ReportMetric(rate/floorRate, "ratio")
	b.ReportMetric(float64(runs)/took.Seconds(), "runs/s")
	b.ReportMetric(float64(cpu.Microseconds())/appends, "cpu-µs/append")
	b.ReportMetric(float64(mem)/appends, "allocs/append")
	b.ReportMetric(float64(size)/float64(runs), "stored-B/run")
	b.ReportMetric(paces.quantile(0.50), "overhead-p50-ms")
	b.ReportMetric(paces.quantile(0.99), "overhead-p99-ms")
	b.ReportMetric(0, "ns/op")
}

// timedModel measures the overhead of steps: from a reply to the next request of the same run.
type timedModel struct {
	instantModel
	paces *paces
}

func (m timedModel) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	m.paces.came(r.Run)
	defer m.paces.went(r.Run)
	return m.instantModel.Complete(ctx, r)
}

type paces struct {
	mu    sync.Mutex
	left  map[loop.RunID]time.Time
	spent []time.Duration
}

func (p *paces) came(id loop.RunID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.left[id]; known {
		p.spent = append(p.spent, time.Since(at))
		delete(p.left, id)
	}
}

func (p *paces) went(id loop.RunID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[id] = time.Now()
}

func (p *paces) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.left)
	p.spent = make([]time.Duration, 0, 1<<20)
}

// quantile is in milliseconds.
func (p *paces) quantile(q float64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.spent)
	return float64(p.spent[int(q*float64(len(p.spent)-1))].Microseconds()) / 1000
}

// BenchmarkBytes shows that what a run stores grows with its steps and no faster.
func BenchmarkBytes(b *testing.B) {
	for _, steps := range []int{6, 50, 200} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			server := benchServer(b, "2m")
			nc := bustest.Connect(b, server)
			js, err := jetstream.New(nc)
			if err != nil {
				b.Fatal(err)
			}
			bu := bustest.Open(b, nc, bus.Options{Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
			stop := startBench(b, bu, instantModel{steps: steps})
			defer stop()
			ends := watchEnds(b, nc)
			runs := max(min(b.N, 500), inFlight)
			written := bytesWritten()
			took := driveRuns(b, js, ends, "run", runs)
			b.ReportMetric(float64(stored(b, js))/float64(runs), "stored-B/run")
			b.ReportMetric(float64(bytesWritten()-written)/float64(runs), "written-B/run")
			b.ReportMetric(float64(stored(b, js))/float64(runs*(steps+1)), "stored-B/event")
			b.ReportMetric(float64(runs*(steps+1))/took.Seconds(), "appends/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOverlap drives 20 runs, each with five parallel calls of 200 ms. overlap is how many calls were under way at
// once on average, of 100; over-ms is how much longer all of it took than one call.
func BenchmarkOverlap(b *testing.B) {
	const runs, calls, each = 20, 5, 200 * time.Millisecond
	nc := bustest.Connect(b, benchServer(b, "2m"))
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	bu := bustest.Open(b, nc, bus.Options{Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	slow := tools.Tool{
		Spec: loop.ToolSpec{Name: "slow", Description: "takes its time", Schema: []byte(`{"type":"object"}`), Effect: loop.EffectRead},
		Run: func(ctx context.Context, _ loop.Invocation) (any, error) {
			select {
			case <-time.After(each):
				return "done", nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	}
	five := make([]string, calls)
	for i := range five {
		five[i] = fmt.Sprintf(`{"name": "slow", "arguments": {"n": %d}}`, i)
	}
	model := &byTurn{texts: []string{planned, m("tool_call", nil, `"calls": [`+strings.Join(five, ", ")+`]`), answered}}
	stop := startBench(b, bu, model, slow)
	defer stop()
	ends := watchEnds(b, nc)
	var took time.Duration
	for i := range b.N {
		took += driveRuns(b, js, ends, fmt.Sprint("overlap-", i), runs)
	}
	round := took / time.Duration(b.N)
	b.ReportMetric(float64(runs*calls)*each.Seconds()/round.Seconds(), "overlap")
	b.ReportMetric(float64((round - each).Milliseconds()), "over-ms")
	b.ReportMetric(0, "ns/op")
}

func benchServer(b *testing.B, sync string) *bus.Embedded {
	server, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: b.TempDir(), Port: -1, Sync: sync})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Shutdown)
	return server
}

func startBench(b *testing.B, bu *bus.Bus, model loop.Model, extra ...tools.Tool) (stop func()) {
	set := append(tools.Builtins(time.Now), extra...)
	registry, err := tools.New(tools.Config{Tools: set, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	w, err := loop.NewWorker(loop.Config{
		Name: "bench", Journal: bu, Heads: bu, Wakes: bu, Sessions: bu, Blobs: bu, Catalogues: bu, Graveyard: bu, Outcomes: bu, Orders: bu,
		Inbox: bu.Inbox(), WakeQueue: bu.Wakes(), Model: model, Tools: registry, Concurrency: inFlight,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	return func() { cancel(); <-done }
}

// instantModel plans, adds numbers as often as it takes, concludes and answers: steps events after the first.
type instantModel struct{ steps int }

func (m instantModel) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	turn := 0
	for _, msg := range r.Messages {
		if msg.Role == "assistant" {
			turn++
		}
	}
	calls := (m.steps - 4) / 2 // beside facts, plan, thought and answer
	const plan = `"plan": [{"step": "Add the numbers that are asked for", "status": "%s", "result": %s}, {"step": "Tell the person the sum", "status": "%s", "result": %s}]`
	open := fmt.Sprintf(plan, "pending", "null", "pending", "null")
	var text string
	switch {
	case turn == 0:
		text = `{"type": "create_plan", "thought": "Two steps will do: add what is there, then say what came of it.", ` + open + `}`
	case turn <= calls:
		text = fmt.Sprintf(`{"type": "tool_call", "thought": "The next two numbers have to be added.", %s, "name": "add_numbers", "arguments": {"a": %d, "b": 25}}`, open, turn)
	default:
		text = `{"type": "final_answer", "thought": "All is added.", ` + fmt.Sprintf(plan, "done", `"The sums are known."`, "done", `"Said below."`) +
			`, "answer": "The sums are as asked for, and this sentence makes the answer about as long as answers are."}`
	}
	return loop.ModelReply{Text: text, Model: "instant", Usage: loop.Usage{PromptTokens: 900, CompletionTokens: 90}}, nil
}

// finish hears of ends and paces the submitter: no more than a few times what is in flight waits, as with a submitter
// that paces itself.
type finish struct {
	room chan struct{}
	done chan struct{} // has an element for each run that ended
}

// watchEnds hears of answers by a plain subscription, the cheapest way there is. One that is lost shows as a stall.
func watchEnds(b *testing.B, nc *nats.Conn) *finish {
	f := &finish{room: make(chan struct{}, 4*inFlight), done: make(chan struct{}, 1<<20)}
	sub, err := nc.Subscribe("agent.event.*.*.user", func(m *nats.Msg) {
		if m.Header.Get("Ratchet-Type") == "answer" {
			<-f.room
			f.done <- struct{}{}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sub.Unsubscribe() })
	return f
}

func driveRuns(b *testing.B, js jetstream.JetStream, ends *finish, name string, runs int) time.Duration {
	began := time.Now()
	var next atomic.Int64
	for range 8 {
		go func() {
			for i := next.Add(1); int(i) <= runs; i = next.Add(1) {
				ends.room <- struct{}{}
				body := fmt.Sprintf(`{"id": "%s-%d", "goal": "Add a few numbers and say what comes of it.", "limits": {"max_steps": 500}}`, name, i)
				if _, err := js.Publish(b.Context(), "agent.task.default", []byte(body)); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	timeout := time.After(2 * time.Minute)
	for ended := range runs {
		select {
		case <-ends.done:
		case <-timeout:
			b.Fatalf("%d of %d runs ended", ended, runs)
		}
	}
	return time.Since(began)
}

// bareAppends returns how many appends of 1 KB a second the journal takes, each with the expected last sequence of its
// run, six or so to a run.
func bareAppends(b *testing.B, js jetstream.JetStream, name string, n int) float64 {
	payload := []byte(strings.Repeat("x", 1024))
	var wg sync.WaitGroup
	began := time.Now()
	for g := range inFlight {
		wg.Go(func() {
			last, run := uint64(0), 0
			for i := range n / inFlight {
				if i%7 == 0 {
					run, last = run+1, 0
				}
				subject := fmt.Sprintf("agent.event.floor.%s-%d-%d", name, g, run)
				ack, err := js.PublishMsg(b.Context(), &nats.Msg{Subject: subject + ".step", Data: payload},
					jetstream.WithExpectLastSequenceForSubject(last, subject+".>"))
				if err != nil {
					b.Error(err)
					return
				}
				last = ack.Sequence
			}
		})
	}
	wg.Wait()
	return float64(n/inFlight*inFlight) / time.Since(began).Seconds()
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// bytesWritten is what the process has handed to the file system, in bytes.
func bytesWritten() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Oublock * 512
}

// stored is the size of everything the server holds, in bytes.
func stored(b *testing.B, js jetstream.JetStream) uint64 {
	info, err := js.AccountInfo(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return info.Store
}
