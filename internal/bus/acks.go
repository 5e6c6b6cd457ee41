package bus

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// acks brings the server's answers to publishes back to whoever waits for them: one subscription for all, and a number in
// the reply subject for each. A request of the library costs a token, a context with a timer and three channels more. Here
// the same few numbers are used again, whose subjects the server then finds in its cache. Its zero value is ready for use.
type acks struct {
	mu      sync.Mutex
	sub     *nats.Subscription // nil until the first publish, and after stop
	prefix  string             // of reply subjects; the number follows
	last    uint64             // number that was given out last
	waiters map[uint64]*waiter
	idle    []*waiter
	clock   *time.Timer
	ticking bool // the clock will look for waiters whose time is up
}

// waiter waits for one answer at a time. One that did not get its answer is not used again: it might come late.
type waiter struct {
	number uint64
	reply  string
	answer chan *nats.Msg // has room for one; nil: none came in time
	since  time.Time      // when it began to wait; zero: it does not
}

// patienceStep is how late a waiter may learn that its time is up. A timer for each would cost as much as a publish.
const patienceStep = time.Second

// request publishes a message and returns the server's answer to it, or nats.ErrNoResponders where nobody is there to give
// one. It waits no longer than any request does, for an answer may be lost with a server.
func (a *acks) request(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := a.enter(nc)
	if err != nil {
		return nil, err
	}
	answered := false
	defer func() { a.leave(w, answered) }()
	out := *msg
	out.Reply = w.reply
	if err := nc.PublishMsg(&out); err != nil {
		return nil, err
	}
	select {
	case answer := <-w.answer:
		if answer == nil {
			return nil, context.DeadlineExceeded
		}
		answered = true
		if len(answer.Data) == 0 && answer.Header.Get("Status") == statusNoResponders {
			return nil, nats.ErrNoResponders
		}
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// statusNoResponders is what the server answers where nobody listens to a subject.
const statusNoResponders = "503"

// enter returns a waiter that nobody else has.
func (a *acks) enter(nc *nats.Conn) (w *waiter, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sub == nil || !a.sub.IsValid() {
		a.dismiss()
		a.prefix, a.idle, a.waiters = nc.NewInbox()+".", nil, map[uint64]*waiter{}
		if a.sub, err = nc.Subscribe(a.prefix+"*", a.arrived); err != nil {
			return nil, err
		}
	}
	if n := len(a.idle); n > 0 {
		w, a.idle = a.idle[n-1], a.idle[:n-1]
	} else {
		a.last++
		w = &waiter{number: a.last, reply: a.prefix + strconv.FormatUint(a.last, 10), answer: make(chan *nats.Msg, 1)}
		a.waiters[w.number] = w
	}
	w.since = time.Now()
	a.tick()
	return w, nil
}

// tick has the clock look again after a while, if it will not anyway.
func (a *acks) tick() {
	switch {
	case a.ticking:
		return
	case a.clock == nil:
		a.clock = time.AfterFunc(patienceStep, a.giveUp)
	default:
		a.clock.Reset(patienceStep)
	}
	a.ticking = true
}

// giveUp tells those who have waited for too long.
func (a *acks) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ticking = false
	for _, w := range a.waiters {
		if !w.since.IsZero() && time.Since(w.since) >= requestTimeout {
			w.hear(nil)
		}
	}
	if len(a.waiters) > len(a.idle) {
		a.tick()
	}
}

// hear takes an answer; the first counts.
func (w *waiter) hear(msg *nats.Msg) {
	select {
	case w.answer <- msg:
	default:
	}
}

// arrived hands an answer to its waiter. One that nobody waits for any more is dropped.
func (a *acks) arrived(msg *nats.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	number, err := strconv.ParseUint(strings.TrimPrefix(msg.Subject, a.prefix), 10, 64)
	if err != nil {
		return
	}
	if w := a.waiters[number]; w != nil && !w.since.IsZero() {
		w.hear(msg)
	}
}

// leave makes the waiter free for another request, if it has its answer.
func (a *acks) leave(w *waiter, answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.since = time.Time{}
	switch {
	case a.waiters[w.number] != w: // of a subscription that is gone
	case answered:
		select {
		case <-w.answer: // the word that it came too late, in the same instant
		default:
		}
		a.idle = append(a.idle, w)
	default:
		delete(a.waiters, w.number)
	}
}

// stop ends the subscription, and the patience of all who wait.
func (a *acks) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dismiss()
	if a.clock != nil {
		a.clock.Stop()
	}
	if a.sub != nil {
		_ = a.sub.Unsubscribe() // the connection may be closed already
		a.sub = nil
	}
}

// dismiss tells all who wait that no answer will come.
func (a *acks) dismiss() {
	for _, w := range a.waiters {
		if !w.since.IsZero() {
			w.hear(nil)
		}
	}
}
