package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// load submits runs of all shapes.
type load struct {
	world  *world
	ledger *Ledger
	random *rand.Rand
	count  int
	wg     sync.WaitGroup
}

func newLoad(w *world, l *Ledger, random *rand.Rand) *load {
	return &load{world: w, ledger: l, random: random}
}

// submit keeps Options.InFlight runs open until ctx ends. open is the number of runs that are.
func (l *load) submit(ctx context.Context, open func() int) {
	defer l.wg.Wait()
	plants := time.NewTicker(4 * time.Second)
	defer plants.Stop()
	for ctx.Err() == nil {
		select {
		case <-plants.C:
			l.plant()
		default:
		}
		if open() >= l.world.opts.InFlight {
			sleep(ctx, 20*time.Millisecond)
			continue
		}
		l.one()
	}
	l.plant() // at least one of each
}

// one submits one run, or the three of a conversation.
func (l *load) one() {
	shape := Shapes[l.random.IntN(len(Shapes))]
	if shape != ShapeSession {
		l.task(shape, "")
		return
	}
	session := fmt.Sprintf("talk-%d", l.count)
	for range 3 {
		l.task(shape, session)
	}
}

func (l *load) task(shape Shape, session string) {
	l.count++
	run := fmt.Sprintf("%s-%d", shape, l.count)
	task := map[string]any{"id": run, "goal": goalOf(shape, run, l.world.opts.Seed), "limits": map[string]any{"max_steps": 60}}
	if session != "" {
		task["session"] = session
	}
	switch shape {
	case ShapeSilent:
		task["ask"] = map[string]any{"timeout": "1s", "on_timeout": "continue"}
	case ShapeApproval:
		task["approve"] = []string{toolOrder}
	case ShapeRough:
		task["model"] = "rough" // refusals slow down requests for this model only
	case ShapePlain, ShapeParallel, ShapeQuestion, ShapePayment, ShapeOrder, ShapeCancel, ShapePause, ShapeSession, ShapeDuplicate,
		ShapeLong:
	}
	body, err := json.Marshal(task)
	if err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	p := l.ledger.plan(Planned{Run: run, Shape: shape, Session: session, At: time.Now()})
	publish := func() {
		if l.world.publish("agent.task."+tenant, body, "") {
			l.ledger.stored(p)
		}
	}
	if shape == ShapeCancel {
		l.cancel(run)
	}
	if shape == ShapeDuplicate {
		for range 2 {
			l.wg.Go(publish)
		}
	}
	publish()
}

// cancel cancels a run that is being submitted, now or in a moment.
func (l *load) cancel(run string) {
	after := time.Duration(l.random.Int64N(int64(time.Second))) - 100*time.Millisecond
	order := func() { l.world.control(l.ledger, run, "cancel") }
	if after <= 0 {
		order()
		return
	}
	l.wg.Go(func() {
		time.Sleep(after)
		order()
	})
}

// plant publishes what can only become dead letters.
func (l *load) plant() {
	l.count++
	mark := fmt.Sprintf("planted-%d", l.count)
	put := func(p Plant, subject, body, id string) {
		p.Tried = 1
		if l.world.publishOnce(subject, []byte(body), id) {
			p.Stored = 1
		}
		l.ledger.plant(p)
	}
	put(Plant{Mark: mark + "-task", Reason: "invalid_task"}, "agent.task."+tenant, `{"goal": "`+mark+`-task`, mark)
	put(Plant{Mark: mark + "-reply", Reason: "unknown_run"}, "agent.reply."+tenant+".nobody-"+mark,
		`{"question": "q1", "text": "`+mark+`-reply"}`, "")
}

// publishPatience bounds how long something is published again while the server is down.
const publishPatience = 30 * time.Second

// publish stores a message in a stream, again and again until that is acknowledged: it may be stored more than once.
func (w *world) publish(subject string, body []byte, token string) bool {
	for deadline := time.Now().Add(publishPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if w.publishMsg(subject, body, "Ratchet-Outcome", token) {
			return true
		}
	}
	return false
}

// publishOnce stores a message, or perhaps not.
func (w *world) publishOnce(subject string, body []byte, id string) bool {
	return w.publishMsg(subject, body, "Nats-Msg-Id", id)
}

func (w *world) publishMsg(subject string, body []byte, header, value string) bool {
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	if value != "" {
		m.Header.Set(header, value)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := w.js.PublishMsg(ctx, m)
	return err == nil
}

// control publishes an order.
func (w *world) control(l *Ledger, run, op string) {
	by := l.expect(run, "control")
	w.publish("agent.control."+tenant+"."+run, fmt.Appendf(nil, `{"op": %q, "by": %q}`, op, by), by)
}
