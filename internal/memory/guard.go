package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Reason says why memory could not be asked: a label for metrics.
type Reason string

// The reasons.
const (
	ReasonSlow   Reason = "slow"   // no answer within the deadline
	ReasonDown   Reason = "down"   // it can't be reached
	ReasonBroken Reason = "broken" // it answered with an error
	ReasonPaused Reason = "paused" // it failed several times in a row and is left alone for a while
)

// DegradedError says that facts could not be recalled. The run goes on without them.
type DegradedError struct {
	Reason Reason
	Err    error
}

// Error says why, in words fit for the run's events.
func (e *DegradedError) Error() string { return fmt.Sprintf("memory is %s: %v", e.Reason, e.Err) }

// Unwrap returns what happened.
func (e *DegradedError) Unwrap() error { return e.Err }

// RefusedError says that a fact was not stored because it looks as if it held a credential. It wraps [ErrInvalid].
type RefusedError struct{ What string }

// Error names what the fact seems to hold, never the fact.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("not stored: it looks as if it held %s, and memory keeps no credentials; say it without", e.What)
}

// Unwrap returns [ErrInvalid].
func (e *RefusedError) Unwrap() error { return ErrInvalid }

// Outcome is what came of one use of the store: for metrics.
type Outcome struct {
	Op     string // recall, remember, replace, list, forget or touch
	Result string // ok, empty, skipped, refused, failed, or a [Reason]
	Took   time.Duration
	Facts  int // found or stored
}

// Options of a guard. The zero value is usable.
type Options struct {
	Deadline      time.Duration // of a recall; 2 s
	WriteDeadline time.Duration // of everything else; 30 s
	Floor         float64       // facts with a lower score are left out, see [Fact.Score]; 0.25, negative: none
	Failures      int           // recalls that fail in a row before the store is left alone; 3
	Pause         time.Duration // for how long it is left alone; then one recall tries it again; 10 s
	// Secret reports whether a text holds a value that must not be stored, in addition to [Secret]; nil: none does.
	Secret  func(text string) bool
	Observe func(Outcome)    // called after each use, by many goroutines; nil: not
	Now     func() time.Time // time.Now
	Log     *slog.Logger     // nil: no log
}

func (o Options) withDefaults() Options {
	o.Deadline = cmp.Or(o.Deadline, 2*time.Second)
	o.WriteDeadline = cmp.Or(o.WriteDeadline, 30*time.Second)
	o.Floor = cmp.Or(o.Floor, 0.25)
	o.Failures = cmp.Or(o.Failures, 3)
	o.Pause = cmp.Or(o.Pause, 10*time.Second)
	if o.Observe == nil {
		o.Observe = func(Outcome) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Guarded is a store that can be depended on: a recall has a deadline and a circuit of its own, skips queries that ask
// for nothing, leaves out what is too far away and notes which facts were used; nothing that looks like a credential is
// stored.
type Guarded struct {
	store   Store
	opts    Options
	circuit *gobreaker.CircuitBreaker[[]Fact]

	used chan usedFacts // facts to be touched; what finds no room is dropped
	done sync.WaitGroup
	stop context.CancelFunc
}

type usedFacts struct {
	tenant, user string
	ids          []string
	at           time.Time
}

var _ Store = (*Guarded)(nil)

// Guard puts a guard around a store. It must be closed.
func Guard(store Store, opts Options) *Guarded {
	g := &Guarded{store: store, opts: opts.withDefaults(), used: make(chan usedFacts, 256)}
	g.circuit = gobreaker.NewCircuitBreaker[[]Fact](gobreaker.Settings{
		Name:        "memory",
		Timeout:     g.opts.Pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(g.opts.Failures) },
		IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) || callers(err) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			g.opts.Log.Warn("memory's circuit changed", "from", from.String(), "to", to.String())
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.done.Go(func() { g.touchUsed(ctx) })
	return g
}

// Circuit is whether recalls reach the store: a label for metrics.
type Circuit string

// The states of a circuit.
const (
	CircuitClosed Circuit = "closed" // recalls reach the store
	CircuitOpen   Circuit = "open"   // they fail at once, see [Options.Pause]
	CircuitTrial  Circuit = "trial"  // the pause is over: the next recall shows whether the store is back
)

// Circuit returns the state of the circuit now.
func (g *Guarded) Circuit() Circuit {
	switch g.circuit.State() {
	case gobreaker.StateOpen:
		return CircuitOpen
	case gobreaker.StateHalfOpen:
		return CircuitTrial
	default:
		return CircuitClosed
	}
}

// Close stops what goes on in the background. The store stays open.
func (g *Guarded) Close() {
	g.stop()
	g.done.Wait()
}

// Recall implements [Store]. Errors that are not the caller's are [*DegradedError], or the cause of ctx.
func (g *Guarded) Recall(ctx context.Context, tenant, user, query string, k int) ([]Fact, error) {
	began := g.opts.Now()
	observe := func(result string, n int) {
		g.opts.Observe(Outcome{Op: "recall", Result: result, Took: g.opts.Now().Sub(began), Facts: n})
	}
	if k < 1 || Trivial(query) {
		observe("skipped", 0)
		return nil, nil
	}
	if err := CheckScope(tenant, user); err != nil {
		observe("failed", 0)
		return nil, err
	}
	facts, err := g.circuit.Execute(func() ([]Fact, error) {
		inner, cancel := context.WithTimeout(ctx, g.opts.Deadline)
		defer cancel()
		return g.store.Recall(inner, tenant, user, clipFront(query, 4*maxQuery), k)
	})
	if err != nil {
		if ctx.Err() != nil {
			observe("failed", 0)
			return nil, context.Cause(ctx)
		}
		degraded := g.degraded(err)
		observe(string(degraded.Reason), 0)
		return nil, degraded
	}
	facts = g.near(facts)
	result := "ok"
	if len(facts) == 0 {
		result = "empty"
	}
	observe(result, len(facts))
	g.note(tenant, user, facts, began)
	return facts, nil
}

// near leaves out what is below the floor.
func (g *Guarded) near(facts []Fact) []Fact {
	for i, f := range facts {
		if f.Score < g.opts.Floor {
			return facts[:i]
		}
	}
	return facts
}

// degraded says in words of ours why a recall failed.
func (g *Guarded) degraded(err error) *DegradedError {
	var network net.Error
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return &DegradedError{ReasonPaused, fmt.Errorf("it failed %d times in a row and is not asked for %s", g.opts.Failures, g.opts.Pause)}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return &DegradedError{ReasonSlow, fmt.Errorf("no answer within %s", g.opts.Deadline)}
	case errors.Is(err, ErrUnreachable), network != nil:
		return &DegradedError{ReasonDown, err}
	}
	return &DegradedError{ReasonBroken, err}
}

// callers reports whether an error is the caller's, and says nothing about the store.
func callers(err error) bool { return errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotFound) }

// note has the facts touched that were last used a day ago or more. Nobody waits for it.
func (g *Guarded) note(tenant, user string, facts []Fact, now time.Time) {
	u := usedFacts{tenant: tenant, user: user, at: now}
	for _, f := range facts {
		if now.Sub(f.LastUsed) >= 24*time.Hour {
			u.ids = append(u.ids, f.ID)
		}
	}
	if len(u.ids) == 0 {
		return
	}
	select {
	case g.used <- u:
	default:
	}
}

func (g *Guarded) touchUsed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-g.used:
			if err := g.Touch(ctx, u.tenant, u.user, u.ids, u.at); err != nil && ctx.Err() == nil {
				g.opts.Log.Debug("facts not marked as used", "tenant", u.tenant, "error", err)
			}
		}
	}
}

// refuse returns a *RefusedError for a fact that looks as if it held a credential.
func (g *Guarded) refuse(f NewFact) error {
	what, found := Secret(f.Text)
	if !found && g.opts.Secret != nil && g.opts.Secret(f.Text) {
		what, found = "a secret of this worker", true
	}
	if found {
		return &RefusedError{what}
	}
	return nil
}

// Remember implements [Store]. Facts that look like credentials are left out, the others stored; then the error is a
// [*RefusedError].
func (g *Guarded) Remember(ctx context.Context, tenant, user string, facts []NewFact) error {
	var refused error
	kept := make([]NewFact, 0, len(facts))
	for _, f := range facts {
		if err := g.refuse(f); err != nil {
			refused = err
			continue
		}
		kept = append(kept, f)
	}
	return g.use(ctx, "remember", tenant, user, func(ctx context.Context) (int, error) {
		if len(kept) > 0 {
			if err := g.store.Remember(ctx, tenant, user, kept); err != nil {
				return 0, err
			}
		}
		return len(kept), refused
	})
}

// Replace implements [Store]. A fact that looks like a credential is refused with a [*RefusedError].
func (g *Guarded) Replace(ctx context.Context, tenant, user, id string, by NewFact) error {
	return g.use(ctx, "replace", tenant, user, func(ctx context.Context) (int, error) {
		if err := g.refuse(by); err != nil {
			return 0, err
		}
		return 1, g.store.Replace(ctx, tenant, user, id, by)
	})
}

// List implements [Store].
func (g *Guarded) List(ctx context.Context, tenant, user, after string, limit int) (facts []Fact, next string, err error) {
	err = g.use(ctx, "list", tenant, user, func(ctx context.Context) (n int, err error) {
		facts, next, err = g.store.List(ctx, tenant, user, after, limit)
		return len(facts), err
	})
	return facts, next, err
}

// Forget implements [Store].
func (g *Guarded) Forget(ctx context.Context, tenant, user, id string) error {
	return g.use(ctx, "forget", tenant, user, func(ctx context.Context) (int, error) {
		return 1, g.store.Forget(ctx, tenant, user, id)
	})
}

// Touch implements [Store].
func (g *Guarded) Touch(ctx context.Context, tenant, user string, ids []string, at time.Time) error {
	return g.use(ctx, "touch", tenant, user, func(ctx context.Context) (int, error) {
		return len(ids), g.store.Touch(ctx, tenant, user, ids, at)
	})
}

// use does what is no recall: with a deadline, but whatever the circuit says, since somebody waits for it or repeats it.
func (g *Guarded) use(ctx context.Context, op, tenant, user string, do func(context.Context) (int, error)) error {
	if err := CheckScope(tenant, user); err != nil {
		return err
	}
	began := g.opts.Now()
	inner, cancel := context.WithTimeout(ctx, g.opts.WriteDeadline)
	defer cancel()
	n, err := do(inner)
	result := "ok"
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		result = "refused"
	case err != nil:
		result, n = "failed", 0
	}
	g.opts.Observe(Outcome{Op: op, Result: result, Took: g.opts.Now().Sub(began), Facts: n})
	return err
}
