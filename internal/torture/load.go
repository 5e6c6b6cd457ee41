package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
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
	r := role{shape: shape, strategy: l.strategy(shape), run: run, seed: l.world.opts.Seed}
	task := map[string]any{
		"id": run, "goal": r.goal(), "strategy": r.strategy, "limits": map[string]any{"max_steps": 100, "max_iterations": 40},
	}
	switch r.strategy {
	case React, PlanActReflect:
		task["model_options"] = map[string]any{"native_tools": r.native()}
	case PlanExecute:
		task["locked"] = r.chance("locked") < 0.6
	case PlanReact:
	}
	task["learn"] = session != "" // by itself a worker learns from every run
	if session != "" {
		task["session"], task["user"] = session, userOf(session)
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
	p := l.ledger.plan(Planned{Run: run, Shape: shape, Strategy: r.strategy, Session: session, At: time.Now()})
	publish := func() {
		if l.world.submit(l.ledger, run, body) {
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
	l.wg.Go(publish)
}

// strategy draws one that can play the shape.
func (l *load) strategy(shape Shape) Strategy {
	if shape.asks() {
		return PlanReact
	}
	return Strategies[l.random.IntN(len(Strategies))]
}

// userOf is whose conversation it is; what is learned from one is known to its user alone.
func userOf(session string) string { return "user-of-" + session }

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
