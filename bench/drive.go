package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
)

// load is runs of one kind that somebody submits.
type load struct {
	name    string // distinguishes its runs from all others of the world
	id      string // of the only run; empty: made of the name
	tenants []string
	runs    int
	steps   int           // events after the first
	ahead   int           // runs submitted and not ended, at most
	asks    bool          // each asks a person, and counts as ended when it has
	atMost  time.Duration // none is submitted after that; 0: no limit
}

// driven is what came of a load.
type driven struct {
	runs int // that were submitted, and ended
	took time.Duration
	each []time.Duration // from the submission to the end of each
}

// flight is a run that has been submitted, or replied to, and has not ended.
type flight struct {
	began time.Time
	until string // type of the event that ends it
	ends  chan<- flown
}

// flown is the end of a flight.
type flown struct {
	took  time.Duration
	event string // type of its last event
	data  []byte
}

// stall is how long nothing may happen before a load is given up.
const stall = time.Minute

// publishers submit side by side.
const publishers = 8

// hear listens to what runs say to persons, the cheapest way there is to learn of their ends. A message that is lost would
// show as a stall.
func (w *world) hear() error {
	sub, err := w.nc.Subscribe("agent.event.*.*.user", func(m *nats.Msg) {
		parts := strings.Split(m.Subject, ".")
		run, event := parts[2]+"/"+parts[3], m.Header.Get("Ratchet-Type")
		w.mu.Lock()
		f := w.flights[run]
		if f == nil || event == "question" && f.until != event {
			w.mu.Unlock()
			return
		}
		delete(w.flights, run)
		w.mu.Unlock()
		if event != "question" {
			w.model.forget(run)
		}
		f.ends <- flown{time.Since(f.began), event, m.Data}
	})
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(-1, -1)
}

// take notes that a run begins.
func (w *world) take(run, until string, ends chan<- flown) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flights[run] = &flight{time.Now(), until, ends}
}

// inFlight is how many runs have been submitted and have not ended.
func (w *world) inFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.flights)
}

// submit submits a load and waits for the end of all its runs.
func (w *world) submit(ctx context.Context, l load) (driven, error) {
	if len(l.tenants) == 0 {
		l.tenants = []string{"default"}
	}
	until := "answer"
	if l.asks {
		until = "question"
	}
	return w.fly(ctx, l.runs, l.ahead, l.atMost, until, func(ctx context.Context, i int, takeOff func(run string)) error {
		tenant, id := l.tenants[i%len(l.tenants)], l.run(i)
		task, err := json.Marshal(map[string]any{"id": id, "goal": theGoal, "limits": map[string]any{"max_steps": 1000, "timeout": "30m"}})
		if err != nil {
			return err
		}
		w.model.expect(tenant+"/"+id, l.steps, l.asks)
		takeOff(tenant + "/" + id)
		_, err = w.js.Publish(ctx, "agent.task."+tenant, task)
		return err
	})
}

// run is the id of a run of the load.
func (l load) run(i int) string { return cmp.Or(l.id, fmt.Sprintf("%s-%d", l.name, i)) }

// reply answers the questions of the first runs of a load and waits for their ends.
func (w *world) reply(ctx context.Context, l load, runs, ahead int) (driven, error) {
	return w.fly(ctx, runs, ahead, 0, "answer", func(ctx context.Context, i int, takeOff func(run string)) error {
		run := "default/" + l.run(i)
		w.model.answered(run)
		takeOff(run)
		_, err := w.js.Publish(ctx, "agent.reply."+strings.ReplaceAll(run, "/", "."), []byte(`{"question": "q1", "text": "As many as there are."}`))
		return err
	})
}

// fly publishes n times, with at most so many runs under way, and waits until all have got to the event named.
func (w *world) fly(
	ctx context.Context, n, ahead int, atMost time.Duration, until string, publish func(context.Context, int, func(string)) error,
) (d driven, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	ends, room, next := make(chan flown, n), make(chan struct{}, ahead), make(chan int)
	load, loading := errgroup.WithContext(ctx)
	load.Go(func() error { // deals out the numbers
		defer close(next)
		for i := range n {
			if atMost > 0 && time.Since(began) > atMost {
				return nil
			}
			select {
			case room <- struct{}{}:
			case <-loading.Done():
				return nil
			}
			next <- i
		}
		return nil
	})
	var mu sync.Mutex
	sent := 0
	for range publishers {
		load.Go(func() (failed error) {
			for i := range next {
				if failed != nil {
					continue // the dealer must not block
				}
				mu.Lock()
				sent++
				mu.Unlock()
				failed = publish(loading, i, func(run string) { w.take(run, until, ends) })
			}
			return failed
		})
	}
	all := make(chan error, 1)
	go func() { all <- load.Wait() }()
	for patience, submitted := time.NewTimer(stall), false; !submitted || len(d.each) < sent; {
		select {
		case err := <-all:
			if err != nil {
				return d, fmt.Errorf("submit: %w", err)
			}
			submitted = true
		case f := <-ends:
			if f.event != until {
				return d, fmt.Errorf("a run ended with %s: %s", f.event, f.data)
			}
			d.each = append(d.each, f.took)
			<-room
			patience.Reset(stall)
		case <-patience.C:
			return d, errors.Join(fmt.Errorf("%d runs have ended of %d, and none in %s", len(d.each), n, stall), w.died())
		case <-ctx.Done():
			return d, context.Cause(ctx)
		}
	}
	d.runs, d.took = len(d.each), time.Since(began)
	return d, nil
}
