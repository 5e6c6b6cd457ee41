package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Depth is what lies in one queue.
type Depth struct {
	Queue   string    // inbox or wakes
	Waiting uint64    // messages that no worker was given yet
	InHand  uint64    // messages that a worker was given and has not settled
	Oldest  time.Time // when the oldest that waits was stored; zero: none waits
}

// Depths asks the server what lies in the queues, and how many dead letters there are.
func (b *Bus) Depths(ctx context.Context) (queues []Depth, dead uint64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, q := range []struct{ name, stream string }{{durableInbox, b.names.tasks}, {durableWakes, b.names.wake}} {
		d, err := b.depth(ctx, q.stream)
		if err != nil {
			return nil, 0, fmt.Errorf("look into stream %s: %w", q.stream, b.explain(err))
		}
		d.Queue = q.name
		queues = append(queues, d)
	}
	s, err := b.js.Stream(ctx, b.names.dead)
	if err != nil {
		return nil, 0, fmt.Errorf("count stream %s: %w", b.names.dead, b.explain(err))
	}
	return queues, s.CachedInfo().State.Msgs, nil
}

// depth adds up the consumers of a queue's stream.
func (b *Bus) depth(ctx context.Context, stream string) (d Depth, err error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return d, err
	}
	consumers := s.ListConsumers(ctx)
	for c := range consumers.Info() {
		d.Waiting += c.NumPending
		d.InHand += uint64(max(c.NumAckPending, 0))
		if c.NumPending == 0 {
			continue
		}
		at, err := b.oldest(ctx, stream, c)
		if err != nil {
			return d, err
		}
		if !at.IsZero() && (d.Oldest.IsZero() || at.Before(d.Oldest)) {
			d.Oldest = at
		}
	}
	return d, consumers.Err()
}

// oldest is when the first message was stored that a consumer has not delivered; zero where it was delivered just now.
func (b *Bus) oldest(ctx context.Context, stream string, c *jetstream.ConsumerInfo) (at time.Time, err error) {
	filters := c.Config.FilterSubjects
	if len(filters) == 0 {
		filters = []string{c.Config.FilterSubject}
	}
	for _, filter := range filters {
		if filter == "" {
			filter = ">"
		}
		msg, err := b.leaderGet(ctx, stream, map[string]any{"seq": c.Delivered.Stream + 1, "next_by_subj": filter})
		if errors.Is(err, errNoMessage) {
			continue
		} else if err != nil {
			return at, err
		}
		if at.IsZero() || msg.Time.Before(at) {
			at = msg.Time
		}
	}
	return at, nil
}
