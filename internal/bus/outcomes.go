package bus

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

// Outcome is what came of a queue message.
type Outcome struct {
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// ErrNoOutcome says that a message was stored in the queue and that its outcome did not become known in time.
var ErrNoOutcome = errors.New("it is stored in the queue, but nobody told what came of it in time")

// outcomes are the waits of this process, by token. One subscription serves them all, made with the first: one for each
// wait could miss an answer that comes by way of another server of a cluster.
type outcomes struct {
	mu      sync.Mutex
	sub     *nats.Subscription
	closed  bool
	waiting map[string]chan Outcome
}

// Tell implements [loop.Outcomes]. The message's header only chooses the last token of a fixed subject.
func (b *Bus) Tell(d loop.Delivery, status, message string) {
	token := nats.Header(d.Header).Get(headerOutcome)
	if !tokenPattern.MatchString(token) {
		return
	}
	body, err := json.Marshal(Outcome{Status: status, Message: message})
	if err == nil {
		err = b.nc.Publish(b.names.outcome(token), body)
	}
	if err != nil {
		b.log.Warn("outcome not told", "tenant", d.Tenant, "run", d.Run, "error", err)
	}
}

// PublishAndAwait calls publish with a new token, which it must put on the message it publishes, and waits for the
// outcome told under it. Where ctx ends first, the error wraps [ErrNoOutcome] and ctx's cause.
func (b *Bus) PublishAndAwait(
	ctx context.Context, publish func(ctx context.Context, token string) error,
) (Outcome, error) {
	token := rand.Text()
	told, err := b.outcomes.await(b, token)
	if err != nil {
		return Outcome{}, err
	}
	defer b.outcomes.forget(token)
	if err := publish(ctx, token); err != nil {
		return Outcome{}, err
	}
	select {
	case outcome := <-told:
		return outcome, nil
	case <-ctx.Done():
		return Outcome{}, fmt.Errorf("%w: %w", ErrNoOutcome, context.Cause(ctx))
	}
}

func (o *outcomes) await(b *Bus, token string) (<-chan Outcome, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errors.New("await an outcome: the bus is closed")
	}
	if o.sub == nil {
		sub, err := b.nc.Subscribe(b.names.outcome("*"), o.deliver)
		if err != nil {
			return nil, fmt.Errorf("await an outcome: %w", err)
		}
		o.sub, o.waiting = sub, map[string]chan Outcome{}
	}
	told := make(chan Outcome, 1)
	o.waiting[token] = told
	return told, nil
}

func (o *outcomes) deliver(msg *nats.Msg) {
	var outcome Outcome
	if json.Unmarshal(msg.Data, &outcome) != nil || outcome.Status == "" {
		return
	}
	token := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	o.mu.Lock()
	defer o.mu.Unlock()
	if told := o.waiting[token]; told != nil {
		told <- outcome
		delete(o.waiting, token)
	}
}

func (o *outcomes) forget(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waiting, token)
}

func (o *outcomes) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.sub != nil {
		_ = o.sub.Unsubscribe()
	}
}
