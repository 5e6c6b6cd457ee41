package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

const (
	// tailPace is the least time between two reads of a Tail: under load it reads many events at once.
	tailPace = 20 * time.Millisecond
	// tailPatience is how long a hint is believed that nothing has followed yet: it comes before the event is stored.
	tailPatience = time.Second
	// tailPoll is how long a Tail waits for a hint before it reads all the same, and after an error.
	tailPoll = time.Second
)

// LastEvent returns the sequence of the last event of all runs; 0 where there has been none. The journal's leader is asked.
func (b *Bus) LastEvent(ctx context.Context) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, b.names.events)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", b.names.events, b.explain(err))
	}
	return stream.CachedInfo().State.LastSeq, nil
}

// Tail calls each with the events of all runs that are stored after a sequence, in order and each once, until ctx ends.
// What is no event, or of a type that this program does not know, is left out.
//
// It reads as [Client.Follow] does: a message on the event subjects says that it is time to read, and what is read comes
// from the stream. The client library's ordered consumer is not used: one message with an empty body and the header
// Status, which anybody who may publish there can leave in the stream, stops it for good. This way nothing is created on
// the server either, and a restart of it costs one more read.
func (b *Bus) Tail(ctx context.Context, after uint64, each func(loop.Event)) error {
	hints := make(chan struct{}, 1)
	sub, err := b.nc.Subscribe(b.names.allEvents(), func(*nats.Msg) {
		select {
		case hints <- struct{}{}:
		default: // one is enough
		}
	})
	if err != nil {
		return fmt.Errorf("listen to events: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	t := tail{bus: b, after: after, each: each}
	for ctx.Err() == nil {
		t.next(ctx)
		select {
		case <-hints:
			t.hinted = time.Now()
			pause(ctx, tailPace)
		case <-time.After(t.wait()):
		case <-ctx.Done():
		}
	}
	return nil
}

// tail is how far a Tail has come.
type tail struct {
	bus    *Bus
	after  uint64
	each   func(loop.Event)
	read   time.Time // when the event at after was stored; zero: not known
	server string    // that was read from
	hinted time.Time // when the last hint came that nothing has followed; zero: none, or looked into
	failed bool
}

// next hands out what the stream has by now.
func (t *tail) next(ctx context.Context) {
	server := t.bus.nc.ConnectedServerId()
	var err error
	if t.failed || server != t.server || t.waitsInVain() {
		err = t.rewind(ctx)
	}
	if err == nil {
		t.server = server
		err = t.scan(ctx)
	}
	if failed := err != nil && ctx.Err() == nil; failed != t.failed {
		t.failed = failed
		if failed {
			t.bus.log.Warn("the event feed is interrupted and goes on where it left off", "after", t.after, "error", err)
		}
	}
}

func (t *tail) scan(ctx context.Context) error {
	var last stored
	defer func() {
		if last.Seq > 0 {
			t.read = last.storedAt()
		}
	}()
	return t.bus.scan(ctx, t.bus.names.events, t.bus.names.allEvents(), t.after, func(msg stored) bool {
		last = msg
		t.after, t.hinted = msg.Seq, time.Time{}
		if event, err := t.bus.event(msg); err == nil {
			t.each(event)
		}
		return ctx.Err() == nil
	})
}

// rewind goes back where the stream does not have what was read last any more: it was restored from a backup, or its server
// went down before it had synced, and the same sequences are given again. The feed goes on with what was stored since.
func (t *tail) rewind(ctx context.Context) error {
	t.hinted = time.Time{}
	if t.after == 0 || t.read.IsZero() {
		return nil
	}
	journal := t.bus.names.events
	last, err := t.bus.leaderGet(ctx, journal, map[string]any{"seq": t.after})
	if err == nil && last.Time.Equal(t.read) {
		return nil
	}
	if err == nil || errors.Is(err, errNoMessage) {
		last, err = t.bus.leaderGet(ctx, journal, map[string]any{"start_time": t.read.Add(1), "next_by_subj": t.bus.names.allEvents()})
	}
	switch {
	case errors.Is(err, errNoMessage): // nothing is new
		return nil
	case err != nil:
		return fmt.Errorf("look whether event %d is still there: %w", t.after, t.bus.explain(err))
	case last.Seq <= t.after:
		t.bus.log.Warn("the journal has lost events that were read, and the event feed goes back", "read", t.after, "next", last.Seq)
		t.after = last.Seq - 1
	}
	return nil
}

// waitsInVain reports whether a hint came that nothing has followed for longer than an event takes.
func (t *tail) waitsInVain() bool { return !t.hinted.IsZero() && time.Since(t.hinted) >= tailPatience }

// wait is how long to wait for a hint.
func (t *tail) wait() time.Duration {
	if !t.failed && time.Since(t.hinted) < tailPatience {
		return tailPace
	}
	return tailPoll
}
