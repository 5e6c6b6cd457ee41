package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// Tasks of a group lie in one lane of the inbox, and the server alone decides which: behind ten thousand of one tenant a
// single one of another would wait until all those are through the door. So where much lies in a lane, and most of that is of
// tenants with many tasks, the door looks past it, takes what tenants with few have there as it is stored, and deletes it once
// it is handled.
//
// The lane delivers such a task too, if a door gets to it meanwhile, here or elsewhere. That does no harm: it is the same
// message, and whoever is second finds its event in the journal. So does the next who gets it where this worker dies.

const (
	// muchPending is how much lies in a lane that is looked at for floods.
	muchPending = 32
	// scoutEvery is the least time between two looks past a flood; they take no more than a tenth of the time at all.
	scoutEvery = 250 * time.Millisecond
	// calmEvery is the same where the last look found no flood.
	calmEvery = time.Second
)

// scouted is what was seen behind a flood.
type scouted struct {
	last   uint64 // sequence of the message that was delivered first last
	looked time.Time
	pause  time.Duration // before the next look
	behind []string      // subjects of tenants with few tasks
	after  uint64        // sequence of the one of the first subject that was taken last; 0: none was
}

// saw notes a task that was delivered.
func (l *scouted) saw(d loop.Delivery) {
	if d.Attempt == 1 {
		l.last = d.Seq
	}
}

// scout takes up to n tasks from behind floods and returns how many it took. What it can't get now it gets later. After it
// took some the next turn is that of the lanes.
func (s *Source) scout(ctx context.Context, n int, take func(loop.Delivery)) (took int) {
	defer func() { s.scouting = took > 0 }()
	if s.scouting || s.stream != s.bus.names.tasks || ctx.Err() != nil || !s.bus.nc.IsConnected() {
		return 0
	}
	asking, cancel := context.WithTimeout(ctx, pullExpiry) // a server that is lost meanwhile must not keep the door from the next
	defer cancel()
	for _, l := range s.lanes {
		if l.group < 0 || l.pending < muchPending {
			l.forget()
			continue
		}
		err := s.look(asking, l)
		for err == nil && took < n && len(l.behind) > 0 {
			var msg stored
			msg, err = s.bus.leaderNext(asking, s.stream, l.behind[0], max(l.after, l.last))
			if errors.Is(err, errNoMessage) {
				l.behind, l.after, err = l.behind[1:], 0, nil
			} else if err == nil {
				take(s.undelivered(l, msg))
				l.after = msg.Seq
				took++
			}
		}
		if err != nil && ctx.Err() == nil {
			s.bus.log.Debug("can't look past a flood of tasks", "lane", l.consumer, "error", err)
			l.forget()
		}
	}
	return took
}

// forget drops what was seen behind the flood.
func (l *scouted) forget() { l.behind, l.after = nil, 0 }

// look lists what lies behind a flood, unless there is some left of what it found last, or that was a moment ago.
func (s *Source) look(ctx context.Context, l *lane) error {
	if len(l.behind) > 0 || time.Since(l.looked) < l.pause {
		return nil
	}
	began, wait := time.Now(), calmEvery
	defer func() {
		l.looked = time.Now()
		l.pause = max(wait, 9*l.looked.Sub(began))
	}()
	info, err := s.bus.inbox.Info(ctx, jetstream.WithSubjectFilter(l.filters[0]))
	if err != nil {
		return fmt.Errorf("list the tenants in lane %s: %w", l.consumer, err)
	}
	var few []string
	var ofFew, ofMany uint64
	for subject, tasks := range info.State.Subjects {
		if tasks <= fewWaiting {
			few, ofFew = append(few, subject), ofFew+tasks
		} else {
			ofMany += tasks
		}
	}
	if ofMany > ofFew {
		l.behind, wait = few, scoutEvery
	}
	return nil
}

// undelivered reads a task that was not delivered, as [Source.delivery] reads one that was.
func (s *Source) undelivered(l *lane, msg stored) loop.Delivery {
	tenant := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	d := loop.Delivery{
		Kind: loop.DeliverTask, RunID: loop.RunID{Tenant: tenant}, Subject: s.bus.names.task(tenant), Header: msg.Header, Body: msg.Data,
		Stream: s.stream, Seq: msg.Seq, Time: msg.Time, Attempt: 1, Since: time.Now(), Group: l.group,
		Settler: remover{s.bus, msg.Seq},
	}
	d.DefaultID = defaultID(d)
	return d
}

// remover settles a task that was not delivered.
type remover struct {
	bus *Bus
	seq uint64
}

// Ack implements [loop.Settler]. A task that was delivered meanwhile, handled and acknowledged is gone already.
func (r remover) Ack(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := r.bus.inbox.DeleteMsg(ctx, r.seq)
	if err == nil {
		return nil
	}
	if _, look := r.bus.leaderGet(ctx, r.bus.names.tasks, map[string]any{"seq": r.seq}); errors.Is(look, errNoMessage) {
		return nil
	}
	return fmt.Errorf("delete a task that was handled: %w", r.bus.explain(err))
}

// Nak implements [loop.Settler]. The task still lies in its lane.
func (remover) Nak(time.Duration) error { return nil }

// Extend implements [loop.Settler]. There is no lease.
func (remover) Extend(context.Context) error { return nil }
