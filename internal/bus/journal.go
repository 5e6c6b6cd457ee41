package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// MaxEvent is the size of the largest event, encoded, in bytes.
const MaxEvent = 512 << 10

// tailTimeout bounds the look at the journal after an append whose answer did not come.
const tailTimeout = 2 * time.Second

// maxTailWait is the longest time between two such looks.
const maxTailWait = 100 * time.Millisecond

// Append implements [loop.Journal]. It carries no message id: on replicated streams a different event under the same id
// is acknowledged as a duplicate, and whoever sent it believes that it was stored.
func (b *Bus) Append(ctx context.Context, e loop.Event, expected uint64) (uint64, error) {
	if err := checkRun(e.RunID); err != nil {
		return 0, fmt.Errorf("append event: %w", err)
	}
	body, err := e.Encode()
	if err != nil {
		return 0, fmt.Errorf("append event: %w", err)
	}
	if len(body) > MaxEvent {
		return 0, fmt.Errorf("append %s event %d of %s: it has %d bytes, more than the %d an event may have; shorten it or "+
			"put the large part into a blob: %w", e.Type(), e.N, e.RunID, len(body), MaxEvent, loop.ErrRefused)
	}
	m := appendings.Get().(*appending)
	defer m.giveBack()
	m.msg.Subject, m.msg.Data = b.names.event(e.RunID, e.Road()), body
	m.values = [...]string{contentTypeEvent, e.Type(), formatSeq(expected), b.names.journal(e.RunID)}
	ack, err := b.js.PublishMsg(ctx, &m.msg)
	if err == nil {
		return ack.Sequence, nil
	}
	if refused(err) && !isConflict(err) {
		return 0, fmt.Errorf("append %s event %d of %s: %w", e.Type(), e.N, e.RunID, forGood(err))
	}
	return b.resolve(ctx, e, body, expected, err)
}

// appending is the message of an append, used again for the next: its headers are the same four.
type appending struct {
	msg    nats.Msg
	values [4]string
}

func (m *appending) giveBack() {
	m.msg.Data = nil // the next one has its own
	appendings.Put(m)
}

var appendings = sync.Pool{New: func() any {
	a := new(appending)
	a.msg.Header = nats.Header{
		headerContentType: a.values[0:1:1], headerType: a.values[1:2:2],
		headerExpectedSeq: a.values[2:3:3], headerExpectedFilter: a.values[3:4:4],
	}
	return a
}}

// resolve finds out what became of an append that was not acknowledged. If it was stored, it is the first message after
// the expected sequence, whatever followed it. A conflict on replicas may be with an append that no replica shows yet and
// that may still be lost: it is waited for, so that who is told of a conflict finds what it lost to.
func (b *Bus) resolve(ctx context.Context, e loop.Event, body []byte, expected uint64, cause error) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tailTimeout)
	defer cancel()
	next, err := b.leaderNext(ctx, b.names.events, b.names.journal(e.RunID), expected)
	for wait := time.Millisecond; b.replicated && isConflict(cause) && err != nil && ctx.Err() == nil; wait *= 2 {
		pause(ctx, min(wait, maxTailWait))
		next, err = b.leaderNext(ctx, b.names.events, b.names.journal(e.RunID), expected)
	}
	switch {
	case err == nil && bytes.Equal(next.Data, body):
		return next.Seq, nil
	case err != nil && isUndecided(cause):
		return 0, fmt.Errorf("append %s event %d of %s after %d: another append is on its way and not decided: %w",
			e.Type(), e.N, e.RunID, expected, cause)
	case err == nil || isConflict(cause):
		return 0, fmt.Errorf("append %s event %d of %s after %d: %w", e.Type(), e.N, e.RunID, expected, loop.ErrConflict)
	default:
		return 0, fmt.Errorf("append %s event %d of %s: nobody knows whether it was stored: %w",
			e.Type(), e.N, e.RunID, b.explain(forGood(cause)))
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Read implements [loop.Journal].
func (b *Bus) Read(ctx context.Context, id loop.RunID, after uint64) (loop.JournalPage, error) {
	page := loop.JournalPage{Last: after}
	if err := checkRun(id); err != nil {
		return page, fmt.Errorf("read journal: %w", err)
	}
	var newer error
	err := b.scan(ctx, b.names.events, b.names.journal(id), after, func(msg stored) bool {
		event, err := b.event(msg)
		switch {
		case errors.Is(err, loop.ErrNewer):
			newer = fmt.Errorf("read journal of %s at sequence %d: %w", id, msg.Seq, err)
			return false
		case err != nil:
			page.Foreign++
		default:
			page.Events = append(page.Events, event)
		}
		page.Last = msg.Seq
		return true
	})
	if err == nil {
		err = newer
	}
	return page, err
}

// Page implements [loop.Journal]. Events of types that this program does not know are left out.
func (b *Bus) Page(
	ctx context.Context, id loop.RunID, road loop.Road, after uint64, limit int,
) (loop.JournalPage, error) {
	page := loop.JournalPage{Last: after}
	filter, err := b.pageFilter(id, road)
	if err != nil || limit <= 0 {
		return page, err
	}
	err = b.scan(ctx, b.names.events, filter, after, func(msg stored) bool {
		event, err := b.event(msg)
		switch {
		case errors.Is(err, loop.ErrNewer):
		case err != nil:
			page.Foreign++
		default:
			page.Events = append(page.Events, event)
		}
		page.Last = msg.Seq
		return len(page.Events) < limit
	})
	return page, err
}

func (b *Bus) pageFilter(id loop.RunID, road loop.Road) (string, error) {
	whole := id.Run == ""
	if whole {
		id.Run = "any" // to be checked like an id; replaced below
	}
	if err := checkRun(id); err != nil {
		return "", fmt.Errorf("read events: %w", err)
	}
	if whole {
		id.Run = "*"
	}
	switch road {
	case "":
		return b.names.journal(id), nil
	case loop.RoadStep, loop.RoadUser:
		return b.names.event(id, road), nil
	default:
		return "", fmt.Errorf("read events of %s: %q is no road: use step, user or none for both", id, road)
	}
}

// event decodes a message of the journal. An event whose tenant and run are not those of its subject is as foreign as
// one that can't be read: only the subject is guarded by permissions.
func (b *Bus) event(msg stored) (loop.Event, error) {
	event, err := loop.DecodeEvent(msg.Data)
	if err != nil {
		return loop.Event{}, err
	}
	token := strings.Split(msg.Subject, ".")
	if len(token) != 5 || token[2] != event.Tenant || token[3] != event.Run {
		return loop.Event{}, fmt.Errorf("event %s lies on subject %s", event.ID(), msg.Subject)
	}
	event.Seq = msg.Seq
	return event, nil
}

// Purge implements [loop.Journal].
func (b *Bus) Purge(ctx context.Context, id loop.RunID, upto uint64) error {
	if err := checkRun(id); err != nil {
		return fmt.Errorf("purge journal: %w", err)
	}
	if upto == 0 {
		return nil // the server takes a sequence of 0 for no bound at all
	}
	err := b.journal.Purge(ctx, jetstream.WithPurgeSubject(b.names.journal(id)), jetstream.WithPurgeSequence(upto+1))
	if err != nil {
		return fmt.Errorf("purge journal of %s up to %d: %w", id, upto, err)
	}
	return nil
}
