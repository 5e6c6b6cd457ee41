package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

const (
	// After a hard restart of the server pulls with a long expiry hang; short ones with a short heartbeat do not. A worker that
	// is stopped, or whose connection carries nothing any more, is given messages for as long as its last pull lasts, and
	// each of them then waits for its lease to pass.
	pullExpiry    = 2 * time.Second
	pullHeartbeat = 500 * time.Millisecond
	// pullSilence is how long a pull waits for a sign of life.
	pullSilence = 4 * pullHeartbeat
	pullSubject = "$JS.API.CONSUMER.MSG.NEXT."
	// drainTimeout bounds the wait for messages that are on their way when a pull is given up.
	drainTimeout = time.Second
)

// errSilent says that a pull got no heartbeat: the server has not heard of it, or not answered.
var errSilent = errors.New("the server went silent")

// errNobody says that no server feels responsible for the consumer: it was deleted, or has no leader at the moment.
var errNobody = errors.New("no server answers for the queue at the moment")

// ErrNoConsumer says that the stream or consumer a Source reads from is gone. [Bus.Setup] makes it anew.
var ErrNoConsumer = errors.New("the stream or consumer was deleted")

// Source hands out the messages of one work queue.
type Source struct {
	bus              *Bus
	stream, consumer string
}

// Inbox is the queue of tasks, replies and controls.
func (b *Bus) Inbox() *Source { return &Source{bus: b, stream: b.names.tasks, consumer: durableInbox} }

// Wakes is the queue of wake-ups.
func (b *Bus) Wakes() *Source { return &Source{bus: b, stream: b.names.wake, consumer: durableWakes} }

// Fetch implements [loop.Source]. Messages that arrive while it gives up are handed back. A deleted stream or consumer is
// [ErrNoConsumer]; after any error the caller should wait a little.
//
// It pulls by hand: the client library drops what is on its way when a pull is cut short, which then waits for its lease
// to pass, and takes a message with an empty body and a Status header for a word of the server, although anybody can
// publish one.
func (s *Source) Fetch(ctx context.Context, n int, take func(loop.Delivery)) error {
	if n <= 0 || ctx.Err() != nil {
		return nil
	}
	nc := s.bus.nc
	s.bus.link.follow(nc)
	down, err := s.bus.link.await(ctx, pullExpiry)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("fetch from %s: %w", s.consumer, err)
	}
	inbox := nc.NewInbox()
	arrived := make(chan *nats.Msg, n+64) // room for heartbeats and the final word
	sub, err := nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return fmt.Errorf("fetch from %s: %w", s.consumer, err)
	}
	p := pull{source: s, sub: sub, arrived: arrived, down: down}
	if err := p.request(inbox, n); err != nil {
		_ = sub.Unsubscribe()
		return fmt.Errorf("fetch from %s: %w", s.consumer, s.bus.explain(err))
	}
	open, err := p.receive(ctx, n, take)
	if errors.Is(err, errNobody) && s.deleted(ctx) {
		err = ErrNoConsumer
	}
	s.bus.note("fetching from "+s.stream, pullSubject, true, err)
	if open {
		p.giveBack()
	} else {
		_ = sub.Unsubscribe()
	}
	if err != nil {
		return fmt.Errorf("fetch from %s: %w", s.consumer, s.bus.explain(err))
	}
	return nil
}

// deleted asks whether the consumer is gone.
func (s *Source) deleted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.bus.js.Consumer(ctx, s.stream, s.consumer)
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// pull is one request for messages.
type pull struct {
	source  *Source
	sub     *nats.Subscription
	arrived chan *nats.Msg
	down    <-chan struct{} // closed when the connection is lost, and the pull with it
	heard   hearing
}

// hearing is what a pull knows of when its messages were delivered at the earliest. The server says something every
// heartbeat; after a longer silence this process was stopped, perhaps, and what it reads next may have lain in the socket
// since before.
type hearing struct {
	last    time.Time // when the server said something last
	before  time.Time // that time as it was before a silence
	settled time.Time // when the silence is over for good
}

// next notes that the server said something, and returns a time at which it had not been delivered yet.
func (h *hearing) next() (since time.Time) {
	now := time.Now()
	if now.Sub(h.last) > 2*pullHeartbeat {
		h.before, h.settled = h.last, now.Add(pullHeartbeat)
	}
	since = h.last
	if now.Before(h.settled) {
		since = h.before
	}
	h.last = now
	return since
}

func (p *pull) request(inbox string, n int) error {
	body, err := json.Marshal(map[string]any{"batch": n, "expires": pullExpiry, "idle_heartbeat": pullHeartbeat})
	if err != nil {
		return err
	}
	subject := pullSubject + p.source.stream + "." + p.source.consumer
	return p.source.bus.nc.PublishRequest(subject, inbox, body)
}

// receive hands out up to n messages. open reports whether the server may still send some.
func (p *pull) receive(ctx context.Context, n int, take func(loop.Delivery)) (open bool, err error) {
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	p.heard.last = time.Now()
	for n > 0 {
		select {
		case <-ctx.Done():
			return true, nil
		case <-silence.C:
			return true, errSilent
		case msg := <-p.arrived:
			silence.Reset(pullSilence)
			taken, ended, err := p.read(msg, take)
			if ended {
				return false, err
			}
			if taken {
				n--
			}
		case <-p.down:
			p.takeArrived(n, take)
			return false, nil
		}
	}
	return false, nil
}

// read takes a message of the queue, or understands a word of the server. ended reports whether nothing more will come.
func (p *pull) read(msg *nats.Msg, take func(loop.Delivery)) (taken, ended bool, err error) {
	since := p.heard.next()
	if d, ok := p.source.delivery(msg); ok {
		d.Since = since
		take(d)
		return true, false, nil
	}
	ended, err = status(msg)
	return false, ended, err
}

// takeArrived hands out what had arrived when the connection was lost: nobody else gets it before its lease has passed.
func (p *pull) takeArrived(n int, take func(loop.Delivery)) {
	for n > 0 {
		select {
		case msg := <-p.arrived:
			if taken, _, _ := p.read(msg, take); taken {
				n--
			}
		default:
			return
		}
	}
}

// giveBack ends the subscription, so that the server forgets the pull, and hands back what was on its way.
func (p *pull) giveBack() {
	closed := p.sub.StatusChanged(nats.SubscriptionClosed)
	if p.sub.Drain() != nil {
		_ = p.sub.Unsubscribe()
		return
	}
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	for waiting := true; waiting; {
		select {
		case msg := <-p.arrived:
			p.handBack(msg)
		case <-closed:
			waiting = false
		case <-timeout.C:
			waiting = false
		}
	}
	for {
		select {
		case msg := <-p.arrived:
			p.handBack(msg)
		default:
			return
		}
	}
}

// handBack gives a message to other workers at once, unless its lease may have passed: then another worker has it, and
// the server would take it from that one for our word.
func (p *pull) handBack(msg *nats.Msg) {
	since := p.heard.next()
	if d, ok := p.source.delivery(msg); ok && time.Since(since) < p.source.bus.opts.Lease {
		_ = d.Settler.Nak(0) // if that fails, the lease passes
	}
}

// status reads a word of the server about the pull: ended reports whether nothing more will come.
func status(msg *nats.Msg) (ended bool, err error) {
	code, text := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch {
	case code == "100":
		return false, nil
	case code == "404" || code == "408":
		return true, nil
	case code == "503":
		return true, errNobody
	case strings.Contains(strings.ToLower(text), "consumer deleted"):
		return true, ErrNoConsumer
	case code == "409" && (strings.Contains(strings.ToLower(text), "leadership change") ||
		strings.Contains(strings.ToLower(text), "server shutdown")):
		return true, nil
	default:
		return true, fmt.Errorf("the server ended the pull: %s %s", code, text)
	}
}

// delivery reads a message of the queue; ok is false for words of the server, which have no reply subject to settle on.
func (s *Source) delivery(msg *nats.Msg) (d loop.Delivery, ok bool) {
	meta, err := msg.Metadata()
	if err != nil {
		return loop.Delivery{}, false
	}
	d = loop.Delivery{
		Subject: msg.Subject,
		Header:  msg.Header,
		Body:    msg.Data,
		Stream:  meta.Stream,
		Seq:     meta.Sequence.Stream,
		Time:    meta.Timestamp,
		Attempt: meta.NumDelivered,
		Settler: &settler{bus: s.bus, reply: msg.Reply},
	}
	token := strings.Split(strings.TrimPrefix(msg.Subject, s.bus.names.prefix+"."), ".")
	d.Kind = loop.DeliveryKind(token[0])
	switch {
	case d.Kind == loop.DeliverTask && len(token) == 2:
		d.Tenant, d.DefaultID = token[1], defaultID(d)
	case (d.Kind == loop.DeliverReply || d.Kind == loop.DeliverControl) && len(token) == 3:
		d.Tenant, d.Run = token[1], token[2]
	case d.Kind == loop.DeliverWake && len(token) == 4: // after the lane
		d.Tenant, d.Run = token[2], token[3]
	}
	return d, true
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
