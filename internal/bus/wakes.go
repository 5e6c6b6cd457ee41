package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"ratchet/internal/loop"
)

// Wake implements [loop.Wakes]. Keys of different runs do not meet.
func (b *Bus) Wake(ctx context.Context, id loop.RunID, key string, w loop.Wake) error {
	if err := checkWakeable(id); err != nil {
		return fmt.Errorf("publish wake-up: %w", err)
	}
	body, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("publish wake-up of %s: %w", id, err)
	}
	msg := &nats.Msg{Subject: b.names.wakeUp(id, w.Rank), Data: body, Header: nats.Header{}}
	if w.Rank != loop.RankBegun && b.isFlood(ctx, id.Tenant, w.Rank) {
		msg.Subject = b.names.wakeInBulk(id, w.Rank)
	}
	if key != "" {
		msg.Header.Set(headerMsgID, id.String()+":"+key)
	}
	if _, err := b.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("publish wake-up of %s: %w", id, b.explain(err))
	}
	return nil
}

// Schedule implements [loop.Wakes]. A time that has passed fires at once. The message has no id: one that is published
// again for the same time must count.
func (b *Bus) Schedule(ctx context.Context, id loop.RunID, what string, at time.Time) error {
	if err := checkSchedule(id, what); err != nil {
		return fmt.Errorf("publish schedule: %w", err)
	}
	_, err := b.js.PublishMsg(ctx, &nats.Msg{
		Subject: b.names.schedule(id, what),
		Data:    []byte("{}"),
		Header: nats.Header{
			headerSchedule:       {"@at " + at.UTC().Format(time.RFC3339Nano)},
			headerScheduleTarget: {b.names.wakeUp(id, loop.RankBegun)},
		},
	})
	if err != nil {
		return fmt.Errorf("publish schedule %s of %s: %w", what, id, b.explain(err))
	}
	return nil
}

// Unschedule implements [loop.Wakes].
func (b *Bus) Unschedule(ctx context.Context, id loop.RunID, what string) error {
	if err := checkSchedule(id, what); err != nil {
		return fmt.Errorf("remove schedule: %w", err)
	}
	if err := b.wakes.Purge(ctx, jetstream.WithPurgeSubject(b.names.schedule(id, what))); err != nil {
		return fmt.Errorf("remove schedule %s of %s: %w", what, id, b.explain(err))
	}
	return nil
}

func checkSchedule(id loop.RunID, what string) error {
	if !whatPattern.MatchString(what) {
		return fmt.Errorf("%q does not name a schedule: use a-z, 0-9 and -", what)
	}
	return checkWakeable(id)
}

// Pending implements [loop.Wakes]. The stream's leader is asked: a follower that lags may not have the message yet.
func (b *Bus) Pending(ctx context.Context, seq uint64) (bool, error) {
	if seq == 0 {
		return false, nil
	}
	msg, err := b.leaderGet(ctx, b.names.wake, map[string]any{"seq": seq})
	if errors.Is(err, errNoMessage) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for wake-up %d: %w", seq, b.explain(err))
	}
	return strings.HasPrefix(msg.Subject, b.names.wakePrefix()), nil
}

// Waiting implements [loop.Wakes]. The server counts, by its index of subjects.
func (b *Bus) Waiting(ctx context.Context, tenant string) (int, error) {
	if !loop.ValidID(tenant) {
		return 0, fmt.Errorf("count wake-ups: %q is no valid tenant", tenant)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	filter := b.names.wakePrefix() + "*." + tenant + ".*"
	batch, err := jetstreamext.GetBatch(ctx, b.js, b.names.wake, 1, jetstreamext.GetBatchSeq(1), jetstreamext.GetBatchSubject(filter))
	if err != nil {
		return 0, fmt.Errorf("count wake-ups of tenant %s: %w", tenant, b.explain(err))
	}
	n := 0
	for msg, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("count wake-ups of tenant %s: %w", tenant, b.explain(err))
		}
		more, err := strconv.Atoi(lastOf(msg.Header, "Nats-Num-Pending"))
		if err != nil {
			return 0, fmt.Errorf("count wake-ups of tenant %s: the server did not say how many there are", tenant)
		}
		n = 1 + more
	}
	return n, nil
}

// Woken implements [loop.Wakes].
func (b *Bus) Woken(ctx context.Context, id loop.RunID) (bool, error) {
	if err := checkRun(id); err != nil {
		return false, fmt.Errorf("look for a wake-up: %w", err)
	}
	_, err := b.leaderNext(ctx, b.names.wake, b.names.wakePrefix()+"*."+id.Tenant+"."+id.Run, 0)
	if errors.Is(err, errNoMessage) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for a wake-up of %s: %w", id, b.explain(err))
	}
	return true, nil
}
