package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

// person follows the journal and does what people do: answers questions, sometimes twice or with somebody else at the
// same instant, leaves notes, pauses runs and lets them go on.
type person struct {
	world  *world
	ledger *Ledger
	seed   uint64

	mu   sync.Mutex
	runs map[string]*followed
	wg   sync.WaitGroup
}

// followed is what the person knows of a run.
type followed struct {
	shape    Shape
	ended    bool
	question *loop.Question
	paused   bool
	stopped  bool      // it was paused once
	next     time.Time // not before that anything is sent for question or pause
}

func newPerson(w *world, l *Ledger, seed uint64) *person {
	return &person{world: w, ledger: l, seed: seed, runs: map[string]*followed{}}
}

// open is the number of runs that were submitted and have not been seen to end.
func (p *person) open() int { return p.ledger.open() }

// watch reads the journal as it grows, until ctx ends.
func (p *person) watch(ctx context.Context) {
	defer p.wg.Wait()
	sub, err := p.world.nc.Subscribe("agent.outcome.*", p.hear)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
	}
	next := uint64(1)
	for sleep(ctx, 30*time.Millisecond) {
		last, _ := readStream(ctx, p.world.js, streamEvents, next, func(m stored) {
			if e, err := loop.DecodeEvent(m.Data); err == nil {
				p.see(e)
			}
		})
		next = max(next, last+1) // after an error, whatever it was, it goes on where it is
		p.act(ctx)
	}
}

// hear notes what workers tell about replies and orders.
func (p *person) hear(m *nats.Msg) {
	var outcome struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(m.Data, &outcome) == nil {
		p.ledger.hear(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], outcome.Status)
	}
}

func (p *person) see(e loop.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.runs[e.Run]
	if f == nil {
		f = &followed{shape: p.ledger.shape(e.Run)}
		p.runs[e.Run] = f
	}
	switch d := e.Data.(type) {
	case loop.Question:
		f.question = &d
		f.next = time.Now().Add(time.Duration(chance(p.seed, e.Run, d.Question, "after") * float64(400*time.Millisecond)))
	case loop.Reply:
		f.question = nil
	case loop.Timeout:
		if d.What == loop.TimeoutQuestion {
			f.question = nil
		}
	case loop.Control:
		f.paused = d.Op == loop.OpPause
		f.next = time.Now().Add(time.Duration(chance(p.seed, e.Run, "rest") * float64(700*time.Millisecond)))
	case loop.Answer, loop.Failed, loop.Cancelled:
		f.ended = true
		p.ledger.end(e.Run)
	default:
	}
	if f.ended {
		return
	}
	if at := 2 + uint64(chance(p.seed, e.Run, "pause")*9); f.shape == ShapePause && !f.stopped && e.N >= at {
		f.stopped = true
		p.do(func() { p.world.control(p.ledger, e.Run, "pause") })
	}
	if f.shape == ShapeLong && e.N%9 == 5 && chance(p.seed, e.Run, "note") < 0.5 {
		p.send(e.Run, loop.Reply{Text: fmt.Sprintf("note at %d", e.N)})
	}
}

// do runs f beside the watching; watch waits for it.
func (p *person) do(f func()) { p.wg.Go(f) }

// act answers what is open. What has had no effect is sent again after a while: it may have been overtaken.
func (p *person) act(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for run, f := range p.runs {
		if f.ended || now.Before(f.next) || ctx.Err() != nil {
			continue
		}
		switch {
		case f.paused:
			f.next = now.Add(3 * time.Second)
			p.do(func() { p.world.control(p.ledger, run, "resume") })
		case f.question != nil && f.shape != ShapeSilent:
			f.next = now.Add(3 * time.Second)
			p.answer(run, *f.question)
		}
	}
}

// answer sends a reply, sometimes twice, sometimes two different ones at once.
func (p *person) answer(run string, q loop.Question) {
	reply, ready := p.reply(run, q)
	if !ready {
		return
	}
	p.send(run, reply)
	switch c := chance(p.seed, run, q.Question, "again"); {
	case c < 0.15:
		p.send(run, reply)
	case c < 0.3 && q.Kind == loop.KindAsk:
		reply.Text = "another answer"
		p.send(run, reply)
	}
}

// reply decides what the answer is. What became of a once call is looked up in the ledger; ready is false while that call
// is under way.
func (p *person) reply(run string, q loop.Question) (r loop.Reply, ready bool) {
	r = loop.Reply{Question: q.Question}
	switch q.Kind {
	case loop.KindAsk:
		r.Text = "answer to " + q.Question
	case loop.KindApproval:
		yes := chance(p.seed, run, q.Question, "yes") < 0.8
		r.Approve = &yes
		if yes {
			r.ArgumentsSHA256 = q.ArgumentsSHA256
		} else {
			r.Reason = "too dear"
		}
	case loop.KindEscalation:
		if q.Call == "" { // all replans are spent
			action := "retry"
			if chance(p.seed, run, q.Question, "give up") < 0.1 {
				action = "give_up"
			}
			r.Value = json.RawMessage(fmt.Sprintf(`{"action":%q,"text":"better luck"}`, action))
			return r, true
		}
		x, known := p.ledger.executed(tenant + "/" + run + "/" + q.Call)
		switch {
		case known && x.To.IsZero():
			return r, false
		case chance(p.seed, run, q.Question, "give up") < 0.05:
			r.Value = json.RawMessage(`{"outcome":"give_up"}`)
		case known:
			r.Value = json.RawMessage(fmt.Sprintf(`{"outcome":"done","result":%s}`, x.Result))
		default:
			r.Value = json.RawMessage(`{"outcome":"not_done"}`)
		}
	}
	return r, true
}

// send publishes a reply beside the watching.
func (p *person) send(run string, r loop.Reply) {
	r.By = p.ledger.expect(run, "reply")
	p.do(func() { p.world.reply(p.ledger, run, r) })
}

// drain waits until all runs have ended and the queues are empty, and says what is left where that takes too long.
func (p *person) drain(ctx context.Context, patience time.Duration) []string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var left []string
	_ = poll(ctx, 200*time.Millisecond, "the runs", func() bool { // what is left says it better than the error
		left = p.ledger.unended()
		if len(left) > 0 {
			return false
		}
		left = p.world.queued(ctx)
		return len(left) == 0
	})
	return left
}

// queued lists what lies in the queues, schedules aside: all runs have ended.
func (w *world) queued(ctx context.Context) []string {
	tasks, wakes, err := queues(ctx, w.js)
	if err != nil {
		return []string{err.Error()}
	}
	for _, subject := range wakes {
		if !strings.HasPrefix(subject, "agent.schedule.") && !strings.HasSuffix(subject, "."+reservedSweep) {
			tasks = append(tasks, subject)
		}
	}
	return tasks
}
