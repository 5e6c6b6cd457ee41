package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

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

// apiPatience bounds one request to the API. It may have gone to a worker that is stopped or cut off.
const apiPatience = 2 * time.Second

// byAPI reports whether what is sent to a run goes by the API: every other run's does.
func byAPI(seed uint64, run string) bool { return chance(seed, run, "way") < 0.5 }

// submit hands in a task until that is acknowledged, by the queue or by the API.
func (w *world) submit(l *Ledger, run string, task []byte) bool {
	if !byAPI(w.opts.Seed, run) {
		return w.publish("agent.task."+tenant, task, "")
	}
	return w.ask(l, func(ctx context.Context) error {
		answer, err := w.client.Submit(ctx, task)
		if err == nil && answer.Run != run {
			l.refused(fmt.Sprintf("the API says %q of the task of run %s", answer, run))
		}
		return err
	})
}

// reply answers a question, or leaves a note.
func (w *world) reply(l *Ledger, run string, r loop.Reply) {
	if byAPI(w.opts.Seed, run) && w.ask(l, func(ctx context.Context) error {
		outcome, err := w.client.Reply(ctx, bus.ReplyRequest{Run: run, Reply: r})
		l.hear(r.By, outcome.Status)
		return err
	}) {
		return
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // all of it is plain data
	}
	w.publish("agent.reply."+tenant+"."+run, body, r.By)
}

// control gives an order.
func (w *world) control(l *Ledger, run, op string) {
	c := loop.Control{Op: loop.ControlOp(op), By: l.expect(run, "control")}
	if byAPI(w.opts.Seed, run) && w.ask(l, func(ctx context.Context) error {
		outcome, err := w.client.Control(ctx, bus.ControlRequest{Run: run, Control: c})
		l.hear(c.By, outcome.Status)
		return err
	}) {
		return
	}
	w.publish("agent.control."+tenant+"."+run, fmt.Appendf(nil, `{"op": %q, "by": %q}`, op, c.By), c.By)
}

// ask puts a request to the API, again and again until it is answered. An answer that blames the request is written down.
func (w *world) ask(l *Ledger, request func(context.Context) error) bool {
	for deadline := time.Now().Add(publishPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), apiPatience)
		err := request(ctx)
		cancel()
		var blame *bus.APIError
		switch {
		case err == nil:
			return true
		case errors.As(err, &blame) && blame.Code < 500 && blame.Code >= 400:
			l.refused(err.Error())
			return false
		}
	}
	return false
}
