package bus

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Backlog counts what lies in the queues.
type Backlog struct {
	Inbox uint64 // tasks, replies and controls that no door has handled
	Wakes uint64 // wake-ups of runs that owe something, those in hand included
	Dead  uint64 // dead letters
}

// Backlog asks the server what lies in the queues.
func (b *Bus) Backlog(ctx context.Context) (out Backlog, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for stream, n := range map[string]*uint64{b.names.tasks: &out.Inbox, b.names.dead: &out.Dead} {
		s, err := b.js.Stream(ctx, stream)
		if err != nil {
			return out, fmt.Errorf("count stream %s: %w", stream, b.explain(err))
		}
		*n = s.CachedInfo().State.Msgs
	}
	if out.Wakes, err = b.known(ctx, b.names.wake); err != nil {
		return out, fmt.Errorf("count wake-ups: %w", err)
	}
	return out, nil
}

// known is how many messages of a queue its consumers know of, those in hand included.
func (b *Bus) known(ctx context.Context, stream string) (n uint64, err error) {
	infos, err := b.consumers(ctx, stream)
	for _, info := range infos {
		n += info.NumPending + uint64(max(info.NumAckPending, 0))
	}
	return n, err
}

// consumers returns what the server says of the consumers of a queue, by name.
func (b *Bus) consumers(ctx context.Context, stream string) (map[string]*jetstream.ConsumerInfo, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", stream, b.explain(err))
	}
	found := map[string]*jetstream.ConsumerInfo{}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		found[info.Name] = info
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", stream, b.explain(err))
	}
	return found, nil
}

// consumerNames lists the consumers of a stream, those that have no leader at the moment included, of which the server can
// tell nothing but the name.
func (b *Bus) consumerNames(ctx context.Context, stream string) (names []string, err error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", stream, b.explain(err))
	}
	list := s.ConsumerNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", stream, b.explain(err))
	}
	return names, nil
}
