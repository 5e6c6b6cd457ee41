package tools

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"ratchet/internal/loop"
)

// Fault is a failure of the way to a tool, as opposed to one of the tool itself. Calls of read and idempotent tools are
// made again after it, with growing pauses; the model sees it only when that did not help.
type Fault struct {
	Err   error
	Sent  bool // the request may have reached the tool: the outcome of a once tool is then unknown
	Final bool // making the call again is no good: it may be what broke the other side
}

// Error returns the text of the failure behind it.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the failure behind it.
func (f *Fault) Unwrap() error { return f.Err }

// Bounds of the repeats of one call after transport faults: pauses of about 0.2, 0.4 and 0.8 s.
const (
	maxRepeats = 3
	firstPause = 200 * time.Millisecond
)

// attempt calls the tool's function, and again after a transport fault where a repeat is harmless.
func (r *Registry) attempt(ctx context.Context, e *entry, c loop.Invocation) (any, error) {
	var pauses *backoff.ExponentialBackOff
	for repeats := 0; ; repeats++ {
		value, err := r.protect(ctx, e, c)
		var fault *Fault
		again := errors.As(err, &fault) && !fault.Final && e.Spec.Effect != loop.EffectOnce && repeats < maxRepeats
		if !again {
			return value, err
		}
		if pauses == nil {
			pauses = backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2),
				backoff.WithMaxElapsedTime(0))
		}
		pause := time.NewTimer(pauses.NextBackOff())
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err // why it failed says more than that time is up
		}
	}
}

// Rate is a number of calls in a span of time.
type Rate struct {
	Calls int
	Per   time.Duration
}

// String returns a rate such as 10/1s, and nothing for the zero value.
func (r Rate) String() string {
	if r.Calls == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%v", r.Calls, r.Per)
}

// errBusy says that a call did not get its turn in time.
var errBusy = errors.New("too many calls of it are under way or waiting; try again later")

// gate lets as many calls through as a tool may have.
type gate struct {
	slots *semaphore.Weighted // nil: any number
	rate  *rate.Limiter       // nil: at any rate
}

// newGate makes a gate. A rate is held evenly; what one second may have, may come at once.
func newGate(parallel int, r Rate) *gate {
	g := &gate{}
	if parallel > 0 {
		g.slots = semaphore.NewWeighted(int64(parallel))
	}
	if r.Calls > 0 {
		perSecond := float64(r.Calls) / r.Per.Seconds()
		g.rate = rate.NewLimiter(rate.Limit(perSecond), int(max(1, math.Floor(perSecond))))
	}
	return g
}

// enter waits for a turn. An error is the cause of the context's end, or errBusy where that is the tool's own timeout.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	leave = func() {}
	if g.slots != nil {
		if err := g.slots.Acquire(ctx, 1); err != nil {
			return nil, late(ctx)
		}
		leave = func() { g.slots.Release(1) }
	}
	if g.rate != nil {
		if err := g.rate.Wait(ctx); err != nil {
			leave()
			return nil, late(ctx)
		}
	}
	return leave, nil
}

func late(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTimeout) {
		return cause
	}
	return errBusy
}

// Traceparent returns the W3C trace context of a call: its place in the trace of its run. A call that is made outside of a
// worker, to try a tool, gets one that is derived from its key.
func Traceparent(ctx context.Context, c loop.Invocation) string {
	if place := loop.Traceparent(ctx); place != "" {
		return place
	}
	trace, span := sha256.Sum256([]byte(c.Run.String())), sha256.Sum256([]byte(c.Key()))
	return fmt.Sprintf("00-%x-%x-01", trace[:16], span[:8])
}
