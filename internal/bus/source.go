package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// ErrNoConsumer says that the stream or a consumer that a Source reads from is gone. [Bus.Setup] makes it anew.
var ErrNoConsumer = errors.New("the stream or consumer was deleted")

// Source hands out the messages of one work queue: the lanes of all tenants' groups in turns. It is for one goroutine.
type Source struct {
	bus    *Bus
	stream string
	lanes  []*lane
	shared []*lane         // of no group: looked at first
	groups [groups][]*lane // in the order of ranks
	byName map[string]*lane
	next   int         // the group whose turn it is
	turns  [groups]int // that each group has had

	scouting bool // the last turn was that of tasks behind floods
}

var _ loop.Lanes = (*Source)(nil)

// Inbox is the queue of tasks, replies and controls.
func (b *Bus) Inbox() *Source { return b.source(b.names.tasks, b.names.inboxLanes()) }

// Wakes is the queue of wake-ups.
func (b *Bus) Wakes() *Source { return b.source(b.names.wake, b.names.wakeLanes()) }

func (b *Bus) source(stream string, lanes []*lane) *Source {
	s := &Source{bus: b, stream: stream, lanes: lanes, byName: map[string]*lane{}}
	for i, l := range lanes {
		l.number = i
		s.byName[l.consumer] = l
		if l.group < 0 {
			s.shared = append(s.shared, l)
		} else {
			s.groups[l.group] = append(s.groups[l.group], l)
		}
	}
	return s
}

// Fetch implements [loop.Source]. It first takes from lanes that hold something, by turns, then waits for what arrives in
// any. Before that it takes tasks from behind floods. Messages that arrive while it gives up, or that are more than n, are handed
// back. A deleted stream or consumer is [ErrNoConsumer]; after any error the caller should wait a little.
func (s *Source) Fetch(ctx context.Context, n int, take func(loop.Delivery)) error {
	n -= s.scout(ctx, n, take)
	return s.pulling(ctx, n, func(p *pull) error {
		left, err := p.rounds(ctx, n, take)
		if err == nil && left > 0 && left < len(s.lanes) {
			left, err = p.wait(ctx, left, s.busy(), linger, take)
		}
		if err == nil && left > 0 {
			_, err = p.wait(ctx, left, s.lanes, pullExpiry, take)
		}
		return err
	})
}

// lookPast is how many messages of a lane are looked at for one that is accepted. It is more than what a few workers let in
// of each flood.
const lookPast = 4 * fewWaiting

// FetchFrom implements [loop.Lanes].
func (s *Source) FetchFrom(ctx context.Context, look func(group int) loop.Look, take func(loop.Delivery) bool) error {
	return s.pulling(ctx, lookPast, func(p *pull) error {
		for i := range groups {
			g := (s.next + i) % groups
			depth := look(g)
			if depth == loop.LookNowhere {
				continue
			}
			for _, l := range s.inTurn(g) {
				if depth == loop.LookPast && l.bulk {
					continue
				}
				found, err := p.search(ctx, l, depth, take)
				if found {
					s.served(g)
				}
				if err != nil || found || p.lost || ctx.Err() != nil {
					return err
				}
			}
		}
		return nil
	})
}

// pulling opens a pull for up to n messages, and ends it after do.
func (s *Source) pulling(ctx context.Context, n int, do func(*pull) error) error {
	if n <= 0 || ctx.Err() != nil {
		return nil
	}
	s.bus.link.follow(s.bus.nc)
	down, err := s.bus.link.await(ctx, pullExpiry)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("fetch from %s: %w", s.stream, err)
	}
	p, err := s.open(n, down)
	if err != nil {
		return fmt.Errorf("fetch from %s: %w", s.stream, s.bus.explain(err))
	}
	err = do(p)
	select {
	case <-down:
		err = nil // whatever it was that noticed first: the next pull begins with the connection
	default:
	}
	if errors.Is(err, errNobody) && s.deleted(ctx) {
		err = ErrNoConsumer
	}
	s.bus.note("fetching from "+s.stream, pullSubject, true, err)
	p.close()
	if err != nil {
		return fmt.Errorf("fetch from %s: %w", s.stream, s.bus.explain(err))
	}
	return nil
}

// deleted asks whether one of the consumers is gone.
func (s *Source) deleted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := s.bus.consumerNames(ctx, s.stream)
	if err != nil {
		return errors.Is(err, jetstream.ErrStreamNotFound)
	}
	return slices.ContainsFunc(s.lanes, func(l *lane) bool { return !slices.Contains(found, l.consumer) })
}

// delivery reads a message of the queue; ok is false for words of the server, which have no reply subject to settle on.
func (s *Source) delivery(msg *nats.Msg) (d loop.Delivery, l *lane, ok bool) {
	meta, err := msg.Metadata()
	if err != nil || s.byName[meta.Consumer] == nil {
		return loop.Delivery{}, nil, false
	}
	l = s.byName[meta.Consumer]
	l.holds(meta.NumPending)
	l.gave = l.checked
	d = loop.Delivery{
		Subject: msg.Subject,
		Header:  msg.Header,
		Body:    msg.Data,
		Stream:  meta.Stream,
		Seq:     meta.Sequence.Stream,
		Time:    meta.Timestamp,
		Attempt: meta.NumDelivered,
		Settler: &settler{bus: s.bus, reply: msg.Reply},
		Group:   l.group,
	}
	token := strings.Split(strings.TrimPrefix(msg.Subject, s.bus.names.prefix+"."), ".")
	d.Kind = loop.DeliveryKind(token[0])
	switch {
	case d.Kind == loop.DeliverTask && len(token) == 3: // the group is the server's addition
		d.Subject = s.bus.names.task(token[2])
		d.Tenant, d.DefaultID = token[2], defaultID(d)
		l.saw(d)
	case (d.Kind == loop.DeliverReply || d.Kind == loop.DeliverControl) && len(token) == 3:
		d.Tenant, d.Run = token[1], token[2]
	case d.Kind == loop.DeliverWake && len(token) == 4: // after the lane
		d.Tenant, d.Run, d.Rank = token[2], token[3], rankOf(token[1])
	}
	return d, l, true
}

// defaultID derives the id of a run whose task names none. Every delivery of a message gives the same one.
func defaultID(d loop.Delivery) string {
	msgID := nats.Header(d.Header).Get(headerMsgID)
	switch {
	case loop.ValidID(msgID):
		return msgID
	case msgID != "":
		return uuid.NewSHA1(idSpace, []byte(msgID)).String()
	default:
		return uuid.NewSHA1(idSpace, []byte(place(d))).String()
	}
}

// place names a message in a queue: its stream, sequence and time, for a stream made anew counts from 1 again.
func place(d loop.Delivery) string {
	return fmt.Sprintf("%s:%d:%d", d.Stream, d.Seq, d.Time.UnixNano())
}

// settler ends or extends a delivery by answering on its reply subject.
type settler struct {
	bus   *Bus
	reply string
}

// Ack implements [loop.Settler].
func (s *settler) Ack(context.Context) error {
	err := s.bus.nc.Publish(s.reply, []byte("+ACK"))
	if s.bus.note("settling deliveries", s.reply, false, err); err != nil {
		return fmt.Errorf("acknowledge a delivery: %w", err)
	}
	return nil
}

// Extend implements [loop.Settler].
func (s *settler) Extend(ctx context.Context) error {
	return s.confirmed(ctx, "extend the lease of", "+WPI")
}

func (s *settler) confirmed(ctx context.Context, what, word string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.bus.nc.RequestWithContext(ctx, s.reply, []byte(word))
	if s.bus.note("settling deliveries", s.reply, false, err); err != nil {
		return fmt.Errorf("%s a delivery: %w", what, s.bus.explain(err))
	}
	return nil
}

// Nak implements [loop.Settler].
func (s *settler) Nak(delay time.Duration) error {
	word := "-NAK"
	if delay > 0 {
		word = fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds())
	}
	if err := s.bus.nc.Publish(s.reply, []byte(word)); err != nil {
		return fmt.Errorf("hand a delivery back: %w", err)
	}
	return nil
}

// Claimed implements [loop.Wakes].
func (b *Bus) Claimed(id loop.RunID, worker string) {
	if err := b.nc.Publish(b.names.claimed(id), []byte(worker)); err != nil {
		b.log.Debug("a claim could not be announced", "tenant", id.Tenant, "run", id.Run, "error", err)
	}
}

// HearClaims calls heard with each run that a worker claims from another one. Messages can be lost. The returned function
// ends it.
func (b *Bus) HearClaims(heard func(id loop.RunID, worker string)) (stop func(), err error) {
	sub, err := b.nc.Subscribe(b.names.allClaims(), func(msg *nats.Msg) {
		if token := strings.Split(msg.Subject, "."); len(token) == 4 {
			heard(loop.RunID{Tenant: token[2], Run: token[3]}, string(msg.Data))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("hear claims: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only where the connection is closed
}

// Hear calls heard with the run of each control message as it is published, without waiting for the queue. Messages can
// be lost: it is good for being quick, not for being sure. The returned function ends it.
func (b *Bus) Hear(heard func(loop.RunID)) (stop func(), err error) {
	sub, err := b.nc.Subscribe(b.names.allControls(), func(msg *nats.Msg) {
		token := strings.Split(msg.Subject, ".")
		if len(token) == 4 {
			heard(loop.RunID{Tenant: token[2], Run: token[3]})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("hear controls: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
