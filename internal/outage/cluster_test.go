package outage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ratchet/internal/bus"
	"ratchet/internal/freeport"
	"ratchet/internal/loop"
)

// newCluster starts three servers that know each other, and returns them with the URL of all.
func newCluster(t *testing.T) (servers []*natsServer, url string) {
	t.Helper()
	ports := freeport.Some(t, 9)
	var urls, routes []string
	for i := range 3 {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[6+i]))
	}
	for i := range 3 {
		s := &natsServer{t: t, name: fmt.Sprintf("n%d", i+1), dir: t.TempDir(), port: ports[i], monitor: ports[3+i]}
		s.more = fmt.Sprintf("cluster {name: c, listen: 127.0.0.1:%d, routes: [%s]}", ports[6+i], strings.Join(routes, ", "))
		s.launch()
		servers = append(servers, s)
	}
	for _, s := range servers {
		eventually(t, "server "+s.name+" is healthy", s.healthy)
	}
	return servers, strings.Join(urls, ",")
}

// Three servers are killed and started again, one after the other, while runs go on and while appends race. Every run
// ends once, and of the appends for one place exactly one is stored.
func TestAServerOfAClusterIsKilled(t *testing.T) {
	t.Parallel()
	servers, url := newCluster(t)
	m := newModel(t)
	w := newWorker(t, workerConfig{Name: "w1", NATS: url, Model: m.url, Replicas: 3})
	p := newPerson(t, url)
	racers := newRacers(t, url)

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	over := make(chan struct{})
	load, loading := errgroup.WithContext(ctx)
	var counts [3]int
	for i := range counts {
		load.Go(func() (err error) {
			counts[i], err = p.keepSubmitting(loading, fmt.Sprintf("s%d", i), over)
			return err
		})
	}
	races := make([]*race, 3)
	for i := range races {
		races[i] = &race{id: loop.RunID{Tenant: "default", Run: fmt.Sprintf("race%d", i)}, racers: racers}
		load.Go(func() error { return races[i].run(loading, over) })
	}
	reaches := func(what string, want int) {
		t.Helper()
		eventually(t, what, func() error {
			if loading.Err() != nil {
				t.Fatal(load.Wait())
			}
			for _, r := range races {
				if n := r.stored(); n < want {
					return fmt.Errorf("%s has %d events of %d", r.id, n, want)
				}
			}
			return nil
		})
	}
	reaches("appends race", 3)
	for _, s := range servers {
		s.process.end(syscall.SIGKILL)
		reaches("appends go on without "+s.name, max(races[0].stored(), races[1].stored(), races[2].stored())+2)
		s.start()
	}
	close(over)
	must(t, load.Wait())
	w.becomesReady()
	t.Logf("runs %v, appended events %d %d %d", counts, races[0].stored(), races[1].stored(), races[2].stored())
	for _, r := range races {
		must(t, r.check(ctx))
	}
}

// keepSubmitting has one run after the other done until over is closed, and checks each.
func (p person) keepSubmitting(ctx context.Context, name string, over <-chan struct{}) (runs int, err error) {
	for {
		select {
		case <-over:
			return runs, nil
		default:
		}
		runs++
		if err := p.whole(ctx, fmt.Sprintf("%s-%d", name, runs)); err != nil {
			return runs, err
		}
	}
}

// whole has one run done and checks it.
func (p person) whole(ctx context.Context, id string) error {
	task, err := json.Marshal(loop.Task{ID: id, Goal: sum})
	if err != nil {
		return err
	}
	err = again(ctx, func(ctx context.Context) error {
		_, err := p.client.Submit(ctx, task)
		return err
	})
	if err != nil {
		return fmt.Errorf("submit %s: %w", id, err)
	}
	if err := again(ctx, func(context.Context) error { return p.checkJournal(ctx, id) }); err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	return nil
}

// again repeats what fails because a server was killed under it, and with it perhaps an answer.
func again(ctx context.Context, do func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := do(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		var api *bus.APIError
		passing := errors.Is(err, bus.ErrNoWorker) || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "not connected") ||
			strings.Contains(err.Error(), "nats:") || errors.As(err, &api) && api.Code >= 500
		if !passing {
			return err
		}
		<-tick.C
	}
}

// newRacers opens several buses of a prefix of their own on the cluster, each over a connection of its own.
func newRacers(t *testing.T, url string) (racers []*bus.Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all := strings.Split(url, ",")
	for i := range all {
		nc, err := bus.Connect(ctx, bus.ConnectOptions{URL: strings.Join(append(all[i:len(all):len(all)], all[:i]...), ",")})
		must(t, err)
		t.Cleanup(nc.Close)
		b, err := bus.Open(ctx, nc, bus.Options{Prefix: "race", Replicas: 3})
		must(t, err)
		t.Cleanup(b.Close)
		racers = append(racers, b)
	}
	return racers
}

// race is one run for each of whose events several workers compete.
type race struct {
	id     loop.RunID
	racers []*bus.Bus

	mu   sync.Mutex
	won  []string // the texts of the events, in order, as far as somebody was told that it won
	tail uint64
}

func (r *race) stored() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.won)
}

// entry makes the event with which one racer competes. Every other one is meant for a person: another subject.
func (r *race) entry(n uint64, text string, person bool) loop.Event {
	e := loop.Event{RunID: r.id, N: n, Time: time.Unix(1_800_000_000, 0).UTC(), Source: "/race/worker/" + text}
	if e.Data = (loop.Note{Text: text}); person {
		e.Data = loop.Question{Question: "q", Kind: loop.KindAsk, Text: text}
	}
	return e
}

// run appends events until over is closed.
func (r *race) run(ctx context.Context, over <-chan struct{}) error {
	for attempt := 0; ; attempt++ {
		select {
		case <-over:
			return nil
		default:
		}
		if err := r.round(ctx, attempt); err != nil {
			return fmt.Errorf("%s after %d events: %w", r.id, r.stored(), err)
		}
	}
}

// round has all racers append the next event at once, twice each. At most one may be told that it won; who is told that
// it lost must find another event there.
func (r *race) round(ctx context.Context, attempt int) error {
	n, expected := uint64(r.stored()+1), r.tail
	var mu sync.Mutex
	var winners []string
	var seq uint64
	var all errgroup.Group
	for i := range 2 * len(r.racers) {
		b := r.racers[i%len(r.racers)]
		all.Go(func() error {
			text := fmt.Sprintf("%d/%d/%d", n, attempt, i)
			stored, err := b.Append(ctx, r.entry(n, text, i%2 == 0), expected)
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				winners, seq = append(winners, text), stored
				return nil
			case errors.Is(err, loop.ErrConflict):
				return r.find(ctx, b, n, expected)
			default: // a server was killed: nobody knows
				return nil
			}
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if len(winners) > 1 {
		return fmt.Errorf("event %d was won by %q", n, winners)
	}
	return r.settle(ctx, n, winners, seq)
}

// find looks for the event that another racer must have stored.
func (r *race) find(ctx context.Context, b *bus.Bus, n, expected uint64) error {
	return again(ctx, func(ctx context.Context) error {
		page, err := b.Read(ctx, r.id, expected)
		if err == nil && (len(page.Events) == 0 || page.Events[0].N != n) {
			return fmt.Errorf("a racer was told that it lost event %d, and finds %d events behind %d", n, len(page.Events), expected)
		}
		return err
	})
}

// settle notes who won. Where nobody was told, the journal says whether somebody did.
func (r *race) settle(ctx context.Context, n uint64, winners []string, seq uint64) error {
	var page loop.JournalPage
	err := again(ctx, func(ctx context.Context) (err error) {
		page, err = r.racers[n%3].Read(ctx, r.id, r.tail)
		return err
	})
	switch {
	case err != nil:
		return err
	case len(page.Events) == 0 && len(winners) == 0:
		return nil
	case len(page.Events) != 1 || page.Events[0].N != n:
		return fmt.Errorf("behind %d there are %d events where event %d was to be", r.tail, len(page.Events), n)
	case len(winners) == 1 && (textOf(page.Events[0]) != winners[0] || page.Last != seq):
		return fmt.Errorf("event %d is that of %s at %d, and %s was told that it won at %d", n, textOf(page.Events[0]), page.Last, winners[0], seq)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.won, r.tail = append(r.won, textOf(page.Events[0])), page.Last
	return nil
}

func textOf(e loop.Event) string {
	switch d := e.Data.(type) {
	case loop.Note:
		return d.Text
	case loop.Question:
		return d.Text
	default:
		return e.Type()
	}
}

// check compares the journal, as each racer reads it, with what was won.
func (r *race) check(ctx context.Context) error {
	for i, b := range r.racers {
		page, err := b.Read(ctx, r.id, 0)
		if err != nil {
			return err
		}
		if len(page.Events) != len(r.won) {
			return fmt.Errorf("racer %d reads %d events of %s, and %d were stored", i, len(page.Events), r.id, len(r.won))
		}
		for j, e := range page.Events {
			if e.N != uint64(j+1) || textOf(e) != r.won[j] {
				return fmt.Errorf("racer %d reads %s as event %d (number %d) of %s, and %s won it", i, textOf(e), j+1, e.N, r.id, r.won[j])
			}
		}
	}
	return nil
}
