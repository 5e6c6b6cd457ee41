package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// crash kills a worker at one of its operations: before it has any effect, or after it had it and before the worker
// knows. From then on nothing that the worker does has an effect.
type crash struct {
	mu    sync.Mutex
	at    int  // operation, counted from 1; 0: never
	after bool // the operation takes effect
	count int
	names []string
	dead  chan struct{}
}

var errDead = errors.New("the worker was killed")

func newCrash(at int, after bool) *crash {
	return &crash{at: at, after: after, dead: make(chan struct{})}
}

// point runs an operation, or does not.
func (c *crash) point(name string, operation func() error) error {
	c.mu.Lock()
	select {
	case <-c.dead:
		c.mu.Unlock()
		return errDead
	default:
	}
	c.count++
	c.names = append(c.names, name)
	mine := c.count == c.at
	if mine && !c.after {
		close(c.dead)
		c.mu.Unlock()
		return errDead
	}
	c.mu.Unlock()
	err := operation()
	if mine {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.dead)
		return errDead
	}
	select {
	case <-c.dead: // killed meanwhile: the answer is lost
		return errDead
	default:
		return err
	}
}

// crashBus is a bus whose operations are crash points. Reads are none: they have no effect to be lost.
type crashBus struct {
	*bus.Bus
	c *crash
}

func (b crashBus) Append(ctx context.Context, e loop.Event, expected uint64) (seq uint64, err error) {
	err = b.c.point("append "+e.Type(), func() (err error) {
		seq, err = b.Bus.Append(ctx, e, expected)
		return err
	})
	return seq, err
}

func (b crashBus) Save(ctx context.Context, h loop.Head, revision uint64) (out uint64, err error) {
	err = b.c.point("save", func() (err error) {
		out, err = b.Bus.Save(ctx, h, revision)
		return err
	})
	return out, err
}

func (b crashBus) Wake(ctx context.Context, id loop.RunID, key string, w loop.Wake) error {
	return b.c.point("wake", func() error { return b.Bus.Wake(ctx, id, key, w) })
}

func (b crashBus) Schedule(ctx context.Context, id loop.RunID, what string, at time.Time) error {
	return b.c.point("schedule "+what, func() error { return b.Bus.Schedule(ctx, id, what, at) })
}

func (b crashBus) Unschedule(ctx context.Context, id loop.RunID, what string) error {
	return b.c.point("unschedule "+what, func() error { return b.Bus.Unschedule(ctx, id, what) })
}

func (b crashBus) SaveSession(ctx context.Context, tenant, session string, s loop.Session, revision uint64) error {
	return b.c.point("session", func() error { return b.Bus.SaveSession(ctx, tenant, session, s, revision) })
}

type crashSource struct {
	loop.Source
	c *crash
}

func (s crashSource) Fetch(ctx context.Context, n int, take func(loop.Delivery)) error {
	return s.Source.Fetch(ctx, n, func(d loop.Delivery) {
		d.Settler = crashSettler{d.Settler, s.c, string(d.Kind)}
		take(d)
	})
}

type crashSettler struct {
	loop.Settler
	c    *crash
	kind string
}

func (s crashSettler) Ack(ctx context.Context) error {
	return s.c.point("ack "+s.kind, func() error { return s.Settler.Ack(ctx) })
}

func (s crashSettler) Nak(delay time.Duration) error {
	return s.c.point("nak "+s.kind, func() error { return s.Settler.Nak(delay) })
}

func (s crashSettler) Extend(ctx context.Context) error {
	select {
	case <-s.c.dead:
		return errDead
	default:
		return s.Settler.Extend(ctx)
	}
}

// crashTools and crashModel make calls crash points: killed before means that the call was not sent.
type crashTools struct {
	loop.Tools
	c *crash
}

func (t crashTools) Call(ctx context.Context, i loop.Invocation) (out loop.Outcome) {
	if t.c.point("call "+i.Tool, func() error { out = t.Tools.Call(ctx, i); return nil }) != nil {
		<-ctx.Done() // a killed process goes on with nothing
		return loop.Outcome{Status: loop.ObservedCancelled}
	}
	return out
}

type crashModel struct {
	loop.Model
	c *crash
}

func (m crashModel) Complete(ctx context.Context, r loop.ModelRequest) (out loop.ModelReply, err error) {
	if err := m.c.point("model", func() error { out, err = m.Model.Complete(ctx, r); return nil }); err != nil {
		<-ctx.Done()
		return out, ctx.Err()
	}
	return out, err
}

// counting is a tool that counts its executions by idempotency key, and the tool that tells of them.
type counting struct {
	mu    sync.Mutex
	times map[string]int
}

func (c *counting) tools() []tools.Tool {
	schema := json.RawMessage(`{"type":"object"}`)
	run := func(_ context.Context, i loop.Invocation) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.times[i.Key()]++
		return "done", nil
	}
	return []tools.Tool{
		{Spec: loop.ToolSpec{Name: "look", Description: "looks", Schema: schema, Effect: loop.EffectRead}, Run: run},
		{
			Spec:      loop.ToolSpec{Name: "pay", Description: "pays", Schema: schema, Effect: loop.EffectOnce, Timeout: 100 * time.Millisecond},
			Reconcile: "find_payment", Run: run,
		},
		{
			Spec:     loop.ToolSpec{Name: "find_payment", Description: "finds", Schema: schema, Effect: loop.EffectRead},
			Internal: true,
			Run: func(_ context.Context, i loop.Invocation) (any, error) {
				var ask tools.ReconcileRequest
				if err := json.Unmarshal(i.Arguments, &ask); err != nil {
					return nil, err
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.times[ask.IdempotencyKey] > 0 {
					return map[string]any{"outcome": "done", "result": "done"}, nil
				}
				return map[string]any{"outcome": "not_done"}, nil
			},
		},
	}
}

// byTurn answers by the number of messages that the model has said so far, so that a call that is repeated after a crash
// gets the same reply.
type byTurn struct {
	mu    sync.Mutex
	calls int
	texts []string
}

func (m *byTurn) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	m.mu.Lock()
	m.calls++
	m.mu.Unlock()
	turn := 0
	for _, msg := range r.Messages {
		if msg.Role == "assistant" {
			turn++
		}
	}
	return loop.ModelReply{Text: m.texts[turn], Model: "scripted", Usage: loop.Usage{PromptTokens: 1}}, nil
}

const crashLease = 3 * time.Second

// lostLeases counts what a worker logs when it gives a run up for its lease.
type lostLeases struct {
	slog.Handler
	count atomic.Int64
}

func (l *lostLeases) Enabled(context.Context, slog.Level) bool { return true }
func (l *lostLeases) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *lostLeases) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "lease was lost") {
		l.count.Add(1)
	}
	return nil
}

// scenario runs one run from task to closing. The first worker is killed at the given operation, a second one goes on.
type scenario struct {
	events  []loop.Event
	session loop.Session
	pays    int
	calls   int // of the model
	lost    int // leases that a busy machine let pass
	points  []string
}

func runScenario(t *testing.T, at int, after bool) scenario {
	t.Helper()
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{Lease: crashLease, Log: slog.New(slog.DiscardHandler)})
	r := &rig{t: t, nc: nc, bus: b}
	count := &counting{times: map[string]int{}}
	registry, err := tools.New(tools.Config{Tools: count.tools(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	model := &byTurn{texts: []string{
		planned, m("tool_call", nil, `"calls": [{"name": "look", "arguments": {}}, {"name": "pay", "arguments": {}}]`), asks, answered,
	}}
	c := newCrash(at, after)
	leases := &lostLeases{Handler: slog.DiscardHandler}
	config := func(name string, c *crash) loop.Config {
		cb := crashBus{b, c}
		return loop.Config{
			Name: name, Journal: cb, Heads: cb, Wakes: cb, Sessions: cb, Blobs: b, Catalogues: b, Graveyard: b, Outcomes: b, Orders: b,
			Inbox: crashSource{b.Inbox(), c}, WakeQueue: crashSource{b.Wakes(), c},
			Model: crashModel{model, c}, Tools: crashTools{registry, c}, Lease: crashLease, Grace: time.Millisecond,
			Log: slog.New(leases),
		}
	}
	first := r.start(config("first", c))
	survivors := make(chan struct{})
	go func() {
		defer close(survivors)
		select {
		case <-c.dead:
			first.stop()
			r.start(config("second", newCrash(0, false)))
		case <-t.Context().Done():
		}
	}()
	r.submit("a", `{"goal": "g", "session": "s", "approve": []}`)
	q := r.until("a", "question").Data.(loop.Question)
	r.reply("a", fmt.Sprintf(`{"question": %q, "text": "five"}`, q.Question))
	out := scenario{events: r.untilClosed("a")}
	if at > 0 {
		r.eventually("the crash point is reached", func() bool {
			select {
			case <-c.dead:
				return true
			default:
				return false
			}
		})
		<-survivors
	}
	r.eventually("the queues are empty", func() bool {
		backlog, err := b.Backlog(r.ctx())
		return err == nil && backlog.Inbox == 0 && backlog.Wakes == 0
	})
	s, _, err := b.LoadSession(r.ctx(), "default", "s")
	if err != nil {
		t.Fatal(err)
	}
	out.session, out.points = s, c.names
	out.pays = count.times["default/a/c2"]
	out.calls, out.lost = model.calls, int(leases.count.Load())
	if at == 0 {
		first.stop()
	}
	return out
}

// settled is the journal without the waiting that a crash may bring in, and with one started for a call.
func settled(events []loop.Event) string {
	var out []string
	started := map[string]bool{}
	observations := 0
	for _, e := range events {
		switch d := e.Data.(type) {
		case loop.Wait:
			continue
		case loop.Timeout:
			if d.What == loop.TimeoutWait {
				continue
			}
		case loop.Started:
			if started[d.Call] {
				continue
			}
			started[d.Call] = true
			continue // it may stand before or after the other call's observation
		case loop.Observation:
			observations++
			if d.Status != loop.ObservedOK {
				return fmt.Sprintf("an observation %s", d.Status)
			}
		}
		out = append(out, e.Type())
	}
	return fmt.Sprint(strings.Join(out, " "), " started ", len(started), " observations ", observations)
}

// TestKilledAtEveryOperation kills a worker before and after each of its appends, writes, acks and calls, and compares
// what the run comes to with an undisturbed one.
func TestKilledAtEveryOperation(t *testing.T) {
	calm := runScenario(t, 0, false)
	want := settled(calm.events)
	if !strings.HasPrefix(want, "accepted facts plan call observation observation thought question reply thought answer") {
		t.Fatalf("undisturbed: %s", want)
	}
	t.Logf("%d operations: %s", len(calm.points), strings.Join(calm.points, ", "))
	for at := 1; at <= len(calm.points); at++ {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("%d %s/after=%v", at, calm.points[at-1], after)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := runScenario(t, at, after)
				if s := settled(got.events); s != want {
					t.Errorf("the run came to\n%s, want\n%s\nin full: %s", s, want, types(got.events))
				}
				if got.pays != 1 {
					t.Errorf("the once tool ran %d times: %s", got.pays, types(got.events))
				}
				if got.calls > calm.calls+1+got.lost {
					t.Errorf("%d model calls, undisturbed %d, and %d leases lost", got.calls, calm.calls, got.lost)
				}
				if len(got.session.Messages) != len(calm.session.Messages) || len(got.session.Runs) != 0 {
					t.Errorf("the session is %+v", got.session)
				}
			})
		}
	}
}
