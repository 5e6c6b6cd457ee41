package bus

import (
	"context"
	"fmt"
)

// Backlog counts what lies in the queues.
type Backlog struct {
	Inbox uint64 // tasks, replies and controls that no door has handled
	Wakes uint64 // wake-ups of runs that owe something, those in hand included
	Dead  uint64 // dead letters
}

// Backlog asks the server what lies in the queues.
func (b *Bus) Backlog(ctx context.Context) (Backlog, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var out Backlog
	for stream, n := range map[string]*uint64{b.names.tasks: &out.Inbox, b.names.dead: &out.Dead} {
		s, err := b.js.Stream(ctx, stream)
		if err != nil {
			return out, fmt.Errorf("count stream %s: %w", stream, b.explain(err))
		}
		*n = s.CachedInfo().State.Msgs
	}
	consumer, err := b.js.Consumer(ctx, b.names.wake, durableWakes)
	if err != nil {
		return out, fmt.Errorf("count consumer %s: %w", durableWakes, b.explain(err))
	}
	info := consumer.CachedInfo()
	out.Wakes = info.NumPending + uint64(max(info.NumAckPending, 0))
	return out, nil
}
