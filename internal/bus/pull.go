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

// pull is a subscription for what a Source asks its lanes for, over one call of Fetch.
//
// It pulls by hand: the client library drops what is on its way when a pull is cut short, which then waits for its lease
// to pass, and takes a message with an empty body and a Status header for a word of the server, although anybody can
// publish one.
type pull struct {
	source  *Source
	inbox   string // with the number of a lane behind it: where that lane's answers go
	sub     *nats.Subscription
	arrived chan *nats.Msg
	heard   hearing
	down    <-chan struct{}    // closed when the connection is lost, and the pull with it
	lost    bool               // it was
	open    map[*lane]*opening // requests that the server may still send messages for
}

// opening is what a lane was asked for and has not sent yet.
type opening struct {
	left  int
	heard time.Time
}

// request asks a lane for a number of messages.
type request struct {
	lane *lane
	n    int
}

// open subscribes. There is room for n messages, and for each lane a word of the server or two.
func (s *Source) open(n int, down <-chan struct{}) (*pull, error) {
	nc := s.bus.nc
	p := &pull{
		source: s, down: down, inbox: nc.NewInbox() + ".", arrived: make(chan *nats.Msg, 2*n+64+4*len(s.lanes)), open: map[*lane]*opening{},
	}
	p.heard.last = time.Now()
	var err error
	p.sub, err = nc.ChanSubscribe(p.inbox+"*", p.arrived)
	return p, err
}

// close ends the subscription, so that the server forgets the pull, and hands back what was on its way.
func (p *pull) close() {
	if len(p.open) == 0 {
		_ = p.sub.Unsubscribe() // fails only where the connection is closed
		return
	}
	p.giveBack()
}

// send asks a lane for messages: at most those it holds, or, with a time to wait, also those that arrive by then.
func (p *pull) send(r request, wait time.Duration) error {
	ask := pullRequest{Batch: r.n, NoWait: wait == 0, Expires: wait}
	if wait > 2*pullHeartbeat {
		ask.Heartbeat = pullHeartbeat
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	subject := pullSubject + p.source.stream + "." + r.lane.consumer
	if err := p.source.bus.nc.PublishRequest(subject, p.inbox+strconv.Itoa(r.lane.number), body); err != nil {
		return err
	}
	p.open[r.lane] = &opening{left: r.n, heard: time.Now()}
	return nil
}

// pullRequest is the body of a request to a consumer.
type pullRequest struct {
	Batch     int           `json:"batch"`
	NoWait    bool          `json:"no_wait,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
}

// ask takes what lanes hold, up to the number asked of each. It returns when all have answered, with how much was taken.
func (p *pull) ask(ctx context.Context, requests []request, take func(loop.Delivery)) (got int, err error) {
	total := 0
	for _, r := range requests {
		if err := p.send(r, 0); err != nil {
			return 0, err
		}
		total += r.n
	}
	silence := time.NewTimer(pullSilence)
	defer silence.Stop()
	for len(p.open) > 0 {
		select {
		case <-ctx.Done():
			return got, nil
		case <-silence.C:
			return got, errSilent
		case <-p.down:
			return got + p.takeArrived(total-got, take), nil
		case msg := <-p.arrived:
			d, l, err := p.read(msg)
			if err != nil {
				return got, err
			}
			if d == nil {
				continue
			}
			take(*d)
			got++
			if o := p.open[l]; o != nil && o.left == 0 {
				delete(p.open, l)
			}
		}
	}
	return got, nil
}

// search offers take what a lane holds: what would be next, and where that is refused and the look goes further, a few more.
// It hands back what take refuses, in its order.
func (p *pull) search(ctx context.Context, l *lane, depth loop.Look, take func(loop.Delivery) bool) (found bool, err error) {
	var refused []loop.Delivery
	offer := func(d loop.Delivery) {
		if found || !take(d) {
			refused = append(refused, d)
			return
		}
		found = true
	}
	got, err := p.ask(ctx, []request{{l, 1}}, offer)
	if depth == loop.LookPast && err == nil && got > 0 && !found && !p.lost && ctx.Err() == nil {
		_, err = p.ask(ctx, []request{{l, lookPast - 1}}, offer)
	}
	for _, d := range refused {
		l.holds(1)
		_ = d.Settler.Nak(0) // if that fails, the lease passes
	}
	return found, err
}

// wait hands out up to n messages that arrive in some lanes, until the requests expire. It returns how many are left to
// take.
func (p *pull) wait(
	ctx context.Context, n int, lanes []*lane, expiry time.Duration, take func(loop.Delivery),
) (left int, err error) {
	if len(lanes) == 0 || p.lost || ctx.Err() != nil {
		return n, nil
	}
	share, until := max(1, n/len(lanes)), time.Now().Add(expiry)
	for _, l := range lanes {
		if err := p.send(request{l, share}, expiry); err != nil {
			return n, err
		}
	}
	tick := time.NewTicker(pullHeartbeat)
	defer tick.Stop()
	for len(p.open) > 0 {
		select {
		case <-ctx.Done():
			return n, nil
		case <-p.down:
			p.takeArrived(n, take)
			return 0, nil // what is left begins anew with the connection
		case <-tick.C:
			for _, o := range p.open {
				if time.Since(o.heard) > pullSilence && len(p.arrived) == 0 {
					return n, errSilent
				}
			}
		case msg := <-p.arrived:
			d, l, err := p.read(msg)
			if err != nil {
				return n, err
			}
			if d == nil {
				continue
			}
			take(*d)
			if n--; n == 0 {
				return 0, nil
			}
			if o := p.open[l]; o != nil && o.left == 0 {
				if err := p.again(request{l, n}, until); err != nil { // where there is one there may be many
					return n, err
				}
			}
		}
	}
	return n, nil
}

// again asks a lane that has given what it was asked for, for no longer than the others were: who went on with a busy lane
// would not hear of the rest.
func (p *pull) again(r request, until time.Time) error {
	left := time.Until(until)
	if left < time.Millisecond {
		delete(p.open, r.lane)
		return nil
	}
	return p.send(r, left)
}

// takeArrived hands out what had arrived when the connection was lost: nobody else gets it before its lease has passed.
func (p *pull) takeArrived(n int, take func(loop.Delivery)) (taken int) {
	p.lost = true
	clear(p.open)
	for taken < n {
		select {
		case msg := <-p.arrived:
			if d, _, _ := p.read(msg); d != nil {
				take(*d)
				taken++
			}
		default:
			return taken
		}
	}
	return taken
}

// read looks at what arrived: a delivery and its lane, or a word of the server, after which d is nil.
func (p *pull) read(msg *nats.Msg) (d *loop.Delivery, l *lane, err error) {
	since, now := p.heard.next(), time.Now()
	if d, l, ok := p.source.delivery(msg); ok {
		d.Since = since
		if o := p.open[l]; o != nil {
			o.left--
			o.heard = now
		}
		return &d, l, nil
	}
	number, err := strconv.Atoi(strings.TrimPrefix(msg.Subject, p.inbox))
	if err != nil || number < 0 || number >= len(p.source.lanes) {
		return nil, nil, nil // a stranger's message
	}
	l = p.source.lanes[number]
	ended, err := status(msg)
	if o := p.open[l]; o != nil {
		o.heard = now
	}
	if ended {
		delete(p.open, l)
		l.holds(0)
	}
	return nil, l, err
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

// giveBack ends the subscription and hands back what was on its way.
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
	d, l, ok := p.source.delivery(msg)
	if !ok {
		return
	}
	l.holds(1)
	if time.Since(since) < p.source.bus.opts.Lease {
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
