package llm

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"ratchet/internal/loop"
)

// send sends one request when it is its turn, and again as long as its faults may pass and tries allow.
func (c *Client) send(ctx context.Context, tries *tries, req *request, out *pieces) (*loop.ModelReply, error) {
	for {
		turn, err := c.gate.wait(ctx, req, &tries.patience)
		if err != nil {
			return nil, tries.afterAll(err)
		}
		reply, err := c.attempt(ctx, req, out)
		if err == nil {
			c.gate.answered(turn, reply.Usage.Total())
			return reply, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		tries.last = asFailure(err)
		c.gate.failed(ctx, turn, tries.last)
		if !tries.last.passing {
			return nil, tries.last
		}
		wait := tries.NextBackOff()
		if wait == backoff.Stop {
			return nil, tries.last
		}
		if err := c.conf.sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// tries decides how long to wait before the next attempt of one request: what the endpoint asked for, else one second
// doubling, with full jitter. It stops after the last attempt, and when a wait would go beyond the patience left. An attempt
// that timed out is repeated once only: more of them would hold the run's slot for many minutes.
type tries struct {
	last     *failure // of the attempt just made
	exp      *backoff.ExponentialBackOff
	left     int           // attempts
	patience time.Duration // left
}

func (c *Client) newTries() *tries {
	return &tries{
		// With a randomization factor of 1 the library draws from 0 to twice the interval: full jitter over 1s, 2s …
		exp: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(500*time.Millisecond), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(1),
			backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0)),
		left:     c.conf.Attempts,
		patience: c.conf.Patience,
	}
}

// afterAll is the error where no turn for another attempt was to be had: what the endpoint said last, with the longer wait.
func (t *tries) afterAll(err error) error {
	f := asFailure(err)
	if t.last == nil || !f.passing {
		return err
	}
	last := *t.last
	last.after = max(last.after, f.after)
	return &last
}

// NextBackOff implements [backoff.BackOff].
func (t *tries) NextBackOff() time.Duration {
	if t.left--; t.last.slow {
		t.left = min(t.left, 1)
	}
	wait := t.exp.NextBackOff()
	if asked := t.last.after; asked > 0 {
		wait = asked + rand.N(min(asked/10, time.Second)+1) // never sooner than asked, nor all workers at once
	}
	if t.left <= 0 || wait > t.patience {
		return backoff.Stop
	}
	t.patience -= wait
	return wait
}

// Reset does nothing: tries serve one request, also when that is sent again with other parameters.
func (t *tries) Reset() {}

// wallTimer is a [backoff.Timer] that waits.
type wallTimer struct{ *time.Timer }

func (t *wallTimer) Start(d time.Duration) { t.Timer = time.NewTimer(d) }
func (t *wallTimer) C() <-chan time.Time   { return t.Timer.C }
func (t *wallTimer) Stop() {
	if t.Timer != nil {
		t.Timer.Stop()
	}
}

// sleep waits with the configured timer, or until ctx ends, whose cause it returns then.
func (c *Config) sleep(ctx context.Context, d time.Duration) error {
	t := c.timer()
	t.Start(d)
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Config) timer() backoff.Timer {
	if c.Timer != nil {
		return c.Timer()
	}
	return &wallTimer{}
}
