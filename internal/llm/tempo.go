package llm

import (
	"math/rand/v2"
	"time"
)

// tempo is how fast this worker sends requests for one model. Until the endpoint refuses one with 429 there is no limit.
// Then the rate is learnt as a connection learns it in TCP (RFC 5681, RFC 9438): a refusal lowers it by a factor, and answers
// raise it, quickly while it is far below the rate at which the last refusal came and very slowly near that. All workers
// lower theirs at the same refusal, for they see its hold; each raises its own, so that with time they have equal shares.
type tempo struct {
	rate    float64   // requests per second; 0: no limit
	ceiling float64   // the rate at the last refusal; 0: not known
	epoch   int       // counts the changes to a lower rate
	held    time.Time // end of the latest hold
	next    time.Time // when the next request may go out; zero: the first of its epoch
	grown   time.Time // when the rate was last raised
	cut     time.Time // when the rate was last lowered
	queue   parking

	since   time.Time // begin of the window in which answers are counted
	answers int       // in this window
}

// How the rate moves.
const (
	firstRate   = 0.5       // least rate to begin with, per second
	leastRate   = 1.0 / 60  // per second
	afterFirst  = 0.5       // factor on what was measured when the limit was met for the first time
	searching   = 0.05      // growth a second where the limit is not known, of the rate
	afterSearch = 0.5       // factor when the search ends
	overshot    = 0.8       // of the rate at that time is the ceiling: the endpoint's reserve hid how far it had gone
	afterCut    = 0.7       // factor later
	recovering  = 0.1       // growth a second far below the ceiling, of the ceiling
	near        = 0.8       // of the ceiling: nearer to it growth is
	probing     = 0.0025    // a second, of the ceiling, more and more with time
	patient     = 60.0      // seconds after a refusal when probing has doubled
	beyond      = 1.15      // of the ceiling: the limit was raised; search again
	forget      = time.Hour // without a refusal, and there is no limit again
)

// observe takes note of the fleet's hold. One that begins while no other was in force is news of a refusal elsewhere.
func (t *tempo) observe(now, notBefore time.Time) {
	if notBefore.After(t.held) {
		if !now.Before(t.held) && now.Before(notBefore) {
			t.lower(now)
		}
		t.held = notBefore
	}
	if t.rate > 0 && now.Sub(t.cut) > forget {
		*t = tempo{epoch: t.epoch + 1, held: t.held}
	}
}

// lower lowers the rate after a refusal.
func (t *tempo) lower(now time.Time) {
	switch {
	case t.rate == 0:
		measured := float64(t.answers) / max(time.Second, now.Sub(t.since)).Seconds()
		t.rate = max(firstRate, afterFirst*measured)
	case t.ceiling == 0:
		t.ceiling = overshot * t.rate
		t.rate = max(leastRate, afterSearch*t.rate)
	default:
		t.ceiling = t.rate
		t.rate = max(leastRate, afterCut*t.rate)
	}
	t.epoch++
	t.next = time.Time{}
	t.cut, t.grown = now, now
}

// start returns when a request that asks now can go out: not before the fleet's hold ends, and in its turn.
func (t *tempo) start(now time.Time) time.Time {
	switch {
	case t.held.After(now):
		return t.held
	case t.rate > 0 && t.next.After(now):
		return t.next
	}
	return now
}

// take gives the turn that start returned away.
func (t *tempo) take(start time.Time) {
	if t.rate > 0 {
		t.next = start.Add(t.interval())
	}
}

// spread draws when the first request after a hold goes out: the workers that it kept back do not return together.
func (t *tempo) spread(now time.Time) {
	if t.rate > 0 && t.next.IsZero() && !t.held.After(now) {
		t.next = t.held.Add(rand.N(t.interval()))
	}
}

func (t *tempo) interval() time.Duration { return time.Duration(float64(time.Second) / t.rate) }

// answer counts an answer, and raises the rate where it was the rate that kept the request waiting.
func (t *tempo) answer(now time.Time, waited bool) {
	const window = 10 * time.Second
	if now.Sub(t.since) > window {
		t.since, t.answers = now, 0
	}
	t.answers++
	if t.rate == 0 || !waited {
		return
	}
	passed := min(now.Sub(t.grown), 2*t.interval(), 10*time.Second).Seconds()
	switch {
	case t.ceiling == 0 || t.rate > beyond*t.ceiling:
		t.rate += searching * t.rate * passed
	case t.rate < near*t.ceiling:
		t.rate += recovering * t.ceiling * passed
	default:
		ago := now.Sub(t.cut).Seconds() / patient
		t.rate += probing * (1 + ago*ago) * t.ceiling * passed
	}
	t.grown = now
}

// parking spreads out those who are sent away, so that they come back one by one.
type parking struct{ last time.Time }

// until returns when somebody who could start at the time given had better come back.
func (p *parking) until(start time.Time, interval time.Duration) time.Time {
	if start.Before(p.last) {
		start = p.last
	}
	p.last = start.Add(interval)
	return start
}
