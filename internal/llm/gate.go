package llm

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// gate lets requests out at the pace that the endpoint allows: the worker's share of the account's limits, as configured,
// and what refusals have taught this worker and the others.
type gate struct {
	conf     *Config
	requests *rate.Limiter // nil: no limit
	tokens   *rate.Limiter // nil: no limit

	mu     sync.Mutex
	tempos map[string]*tempo // by key
	queue  parking           // behind the configured limits
}

func newGate(conf *Config) *gate {
	g := &gate{conf: conf}
	if n := conf.RequestsPerMinute; n > 0 {
		g.requests = rate.NewLimiter(rate.Limit(float64(n)/60), max(1, n/60))
	}
	if n := conf.TokensPerMinute; n > 0 {
		g.tokens = rate.NewLimiter(rate.Limit(float64(n)/60), n)
	}
	return g
}

// turn is the permission to send one request.
type turn struct {
	key    string
	epoch  int  // of the tempo when it was given
	waited bool // for the tempo
	tokens int  // taken from the limit of tokens
}

// wait returns when the request may go out, and takes the time spent off the patience. A wait longer than that is not
// begun: the error is a *failure that may pass, and says how long it is.
func (g *gate) wait(ctx context.Context, req *request, patience *time.Duration) (*turn, error) {
	t := &turn{key: req.key}
	if err := g.waitLimits(ctx, req, t, patience); err != nil {
		return nil, err
	}
	for {
		wait, over := g.ask(ctx, t, *patience)
		if over {
			g.giveBack(t)
			return nil, &failure{
				cause: CauseRateLimit, passing: true, unsent: true, after: wait,
				said: fmt.Sprintf("it takes no more requests at the moment; the next turn is in %s", wait.Round(100*time.Millisecond)),
			}
		}
		if wait <= 0 {
			return t, nil
		}
		*patience -= wait
		epoch := t.epoch
		if err := g.conf.sleep(ctx, wait); err != nil {
			return nil, err
		}
		if t.waited && g.valid(ctx, t.key, epoch) {
			return t, nil
		}
	}
}

// ask returns how long to wait: for a hold to end, after which one asks again, or for a turn of one's own, with waited
// set. over says that it is longer than the patience; it is then when to come back.
func (g *gate) ask(ctx context.Context, t *turn, patience time.Duration) (wait time.Duration, over bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.conf.Now()
	tempo := g.tempo(ctx, t.key, now)
	tempo.spread(now)
	start := tempo.start(now)
	wait = start.Sub(now)
	if wait > patience {
		if tempo.rate > 0 {
			start = tempo.queue.until(start, tempo.interval())
		}
		return min(start.Sub(now), maxAfter), true
	}
	t.epoch, t.waited = tempo.epoch, false
	if !tempo.held.After(now) {
		tempo.take(start)
		t.waited = wait > 0
	}
	return wait, false
}

// valid reports whether a turn that was waited for still counts: nothing was refused since.
func (g *gate) valid(ctx context.Context, key string, epoch int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.conf.Now()
	tempo := g.tempo(ctx, key, now)
	return tempo.epoch == epoch && !tempo.held.After(now)
}

// tempo returns the key's, which has seen the fleet's hold.
func (g *gate) tempo(ctx context.Context, key string, now time.Time) *tempo {
	t := g.tempos[key]
	if t == nil {
		if g.tempos == nil || len(g.tempos) >= maxQuirks {
			g.tempos = map[string]*tempo{} // learnt again at the cost of one refusal each
		}
		t = &tempo{}
		g.tempos[key] = t
	}
	t.observe(now, g.conf.Pace.NotBefore(ctx, key))
	return t
}

// waitLimits waits for the worker's configured limits.
func (g *gate) waitLimits(ctx context.Context, req *request, t *turn, patience *time.Duration) error {
	if g.requests == nil && g.tokens == nil {
		return nil
	}
	now := g.conf.Now()
	var wait, interval time.Duration
	var taken []*rate.Reservation
	take := func(l *rate.Limiter, n int) {
		r := l.ReserveN(now, n)
		taken = append(taken, r)
		if d := r.DelayFrom(now); d >= wait {
			wait, interval = d, time.Duration(float64(n)/float64(l.Limit())*float64(time.Second))
		}
	}
	if g.requests != nil {
		take(g.requests, 1)
	}
	if g.tokens != nil {
		t.tokens = min(req.tokens, g.tokens.Burst()) // a prompt larger than a minute's share goes out with a full one
		take(g.tokens, t.tokens)
	}
	if wait > *patience {
		for _, r := range taken {
			r.CancelAt(now)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		back := min(g.queue.until(now.Add(wait), interval).Sub(now), maxAfter)
		return &failure{
			cause: CauseRateLimit, passing: true, unsent: true, after: back,
			said: fmt.Sprintf("this worker's share of requests or tokens a minute is used up; the next turn is in %s", back.Round(100*time.Millisecond)),
		}
	}
	if wait <= 0 {
		return nil
	}
	*patience -= wait
	return g.conf.sleep(ctx, wait)
}

// answered settles a turn whose request was answered.
func (g *gate) answered(t *turn, tokens int) {
	g.settle(t.tokens, tokens)
	g.mu.Lock()
	defer g.mu.Unlock()
	if tempo := g.tempos[t.key]; tempo != nil {
		tempo.answer(g.conf.Now(), t.waited && t.epoch == tempo.epoch)
	}
}

// failed settles a turn whose request failed. A refusal for the rate lowers the pace of this worker, once for all
// requests that were under way, and holds everybody's.
func (g *gate) failed(ctx context.Context, t *turn, f *failure) {
	if f.cause != CauseRateLimit || f.status != http.StatusTooManyRequests {
		return // the tokens may have been used all the same
	}
	g.settle(t.tokens, 0)
	now := g.conf.Now()
	until := now.Add(min(max(f.after, minHold), maxHold))
	g.mu.Lock()
	if tempo := g.tempos[t.key]; tempo != nil {
		if t.epoch == tempo.epoch {
			tempo.lower(now)
		}
		if until.After(tempo.held) {
			tempo.held = until
		}
	}
	g.mu.Unlock()
	g.conf.Pace.Hold(ctx, t.key, until)
}

// Bounds of a hold: so long at least the endpoint is given to recover, whatever it asks for, and that long one answer may
// keep the whole fleet from asking again.
const (
	minHold = time.Second
	maxHold = time.Hour
)

// giveBack undoes what waitLimits took for a request that is not sent.
func (g *gate) giveBack(t *turn) {
	g.settle(t.tokens, 0)
	if g.requests != nil {
		g.requests.ReserveN(g.conf.Now(), -1)
	}
}

// settle corrects the limit of tokens by what a request really used. A limiter takes a negative number of tokens as given
// back, and one above its burst not at all.
func (g *gate) settle(taken, used int) {
	if g.tokens != nil && used != taken {
		g.tokens.ReserveN(g.conf.Now(), min(used-taken, g.tokens.Burst()))
	}
}
