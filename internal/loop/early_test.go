package loop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"ratchet/internal/loop"
)

// slowJournal holds questions back until they are released: they were seen by those who listen and are not stored yet.
type slowJournal struct {
	loop.Journal
	asked   chan loop.Question
	release chan struct{}
}

func (j slowJournal) Append(ctx context.Context, e loop.Event, expected uint64) (uint64, error) {
	if q, ok := e.Data.(loop.Question); ok {
		j.asked <- q
		<-j.release
	}
	return j.Journal.Append(ctx, e, expected)
}

// doors counts how often the door gave a message back.
type doors struct {
	loop.Source
	returned *atomic.Int64
}

func (s doors) Fetch(ctx context.Context, n int, take func(loop.Delivery)) error {
	return s.Source.Fetch(ctx, n, func(d loop.Delivery) {
		d.Settler = countedSettler{d.Settler, s.returned}
		take(d)
	})
}

type countedSettler struct {
	loop.Settler
	returned *atomic.Int64
}

func (s countedSettler) Nak(delay time.Duration) error {
	s.returned.Add(1)
	return s.Settler.Nak(delay)
}

// TestReplyBeforeItsQuestionIsStored: a reply that comes while its question is being stored answers it, with and without its
// id; one to a question that nobody owes is unknown at once.
func TestReplyBeforeItsQuestionIsStored(t *testing.T) {
	for name, body := range map[string]string{"named": `{"question": "q1", "text": "200"}`, "unnamed": `{"text": "200"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, converse(planned, asks, answered))
			c := r.config()
			var returned atomic.Int64
			journal := slowJournal{c.Journal, make(chan loop.Question, 1), make(chan struct{})}
			c.Journal, c.Inbox = journal, doors{c.Inbox, &returned}
			r.start(c)
			r.submit("a", `{"goal": "g"}`)
			<-journal.asked
			r.reply("a", `{"question": "q7", "text": "to nobody"}`)
			r.reply("a", body)
			r.eventually("the reply was too early", func() bool { return returned.Load() >= 2 })
			close(journal.release)
			if got, want := types(r.untilClosed("a")), "accepted facts plan thought question reply thought answer"; got != want {
				t.Errorf("events are %s, want %s", got, want)
			}
		})
	}
}
