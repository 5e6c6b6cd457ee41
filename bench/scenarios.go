package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"golang.org/x/sync/errgroup"
)

// form is how much is measured.
type form string

const (
	tiny  form = "tiny"
	short form = "short"
	full  form = "full"
)

// of chooses by the form.
func (f form) of(inTiny, inShort, inFull time.Duration) time.Duration {
	switch f {
	case tiny:
		return inTiny
	case short:
		return inShort
	case full:
	}
	return inFull
}

func (f form) count(inTiny, inShort, inFull int) int {
	return int(f.of(time.Duration(inTiny), time.Duration(inShort), time.Duration(inFull)))
}

// usual is how long a load of no fixed number of runs is submitted.
func (f form) usual() time.Duration { return f.of(time.Second, 3*time.Second, 15*time.Second) }

// plenty is more runs than end in any load that is bounded by time.
const plenty = 1 << 20

// scenario is something to be measured.
type scenario struct {
	name, about string
	tiny        bool // part of the tiny form
	run         func(context.Context, *bench) error
}

// scenarios lists all of them.
var scenarios = []scenario{
	{"throughput", "runs with a model that takes no time, 1, 32 and 256 in flight", true, throughput},
	{"waiting", "many runs whose model takes 1 to 3 s, on one worker", false, waiting},
	{"parked", "many runs that wait for a person, and replies to some of them", true, parked},
	{"long", "runs of 200 steps", false, long},
	{"fairness", "one tenant with many tasks, and small ones with one at a time", false, fairness},
	{"sync", "syncing to the disk at every append, and every two minutes", false, syncing},
	{"replicas", "one server, and three with three replicas", false, replicas},
	{"workers", "1, 2 and 4 worker processes on one queue", false, workers},
	{"growth", "what a step costs as runs get longer, more runs are kept, and tenants get more", false, growth},
	{"tenants", "a task for each of very many tenants, and as many of one", false, tenants},
	{"kept", "what very many ended runs cost, without and with a schedule pending for each", false, kept},
}

// inFlight is how many runs are driven at once where nothing else is said.
const inFlight = 32

// saturating is a load that keeps so many slots busy.
func (b *bench) saturating(name string, steps, slots int) load {
	return load{name: name, steps: steps, runs: plenty, ahead: 4 * slots, atMost: b.opts.Form.usual()}
}

func throughput(ctx context.Context, b *bench) error {
	for _, slots := range []int{1, inFlight, 256} {
		err := b.in(ctx, setup{slots: max(slots, 2)}, func(w *world) error {
			for _, steps := range []int{6, 30} {
				l := b.saturating(fmt.Sprint("s", steps), steps, slots)
				if slots == 1 {
					l.ahead = 1
				}
				if b.opts.Form == tiny && slots != inFlight || steps == 30 && slots != inFlight {
					continue
				}
				if err := b.throughput(ctx, w, fmt.Sprintf("%d steps, %d in flight", steps, slots), l, latency{}); err != nil {
					return err
				}
			}
			if slots != inFlight {
				return nil
			}
			// With time to spare between the calls, what is left is what a step takes, and not what it waits for a processor.
			l := b.saturating("relaxed", 6, slots)
			l.ahead = slots
			tenth := 100 * time.Millisecond
			return b.throughput(ctx, w, "6 steps, 32 in flight, model 100 ms", l, latency{tenth, tenth})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func waiting(ctx context.Context, b *bench) error {
	n := b.opts.Form.count(100, 1_000, 5_000)
	return b.in(ctx, setup{slots: n}, func(w *world) error {
		lat := latency{time.Second, 3 * time.Second}
		if b.opts.Latency != nil {
			lat = *b.opts.Latency
		}
		if _, err := w.submit(ctx, load{name: "warm", runs: 16, steps: 6, ahead: 16}); err != nil {
			return err
		}
		f, err := b.held(ctx, w, n, load{name: "r", runs: 2 * n, steps: 6, ahead: n}, lat)
		if err != nil {
			return err
		}
		b.report.add(b.scenario, fmt.Sprintf("%d in flight", n), f)
		return nil
	})
}

// held drives a load of which n runs are in flight, and says what the worker holds for each of them.
func (b *bench) held(ctx context.Context, w *world, n int, l load, lat latency) (f figures, err error) {
	before, err := w.holds(askMemory)
	if err != nil {
		return nil, err
	}
	watching, done := context.WithCancel(ctx)
	defer done()
	var usual memory
	var watch errgroup.Group
	watch.Go(func() (err error) {
		usual, err = b.watch(watching, w, n*9/10)
		return err
	})
	f, _, err = b.load(ctx, w, l, lat)
	done()
	if err = errors.Join(err, watch.Wait()); err != nil {
		return nil, err
	}
	f[perRun] = f[workerGrowth] * 1024 / float64(n)
	f[perRunHeap], f[perRunStacks] = usual.since(before, n)
	return f, nil
}

func parked(ctx context.Context, b *bench) error {
	n, replies := b.opts.Form.count(200, 2_000, 10_000), b.opts.Form.count(20, 100, 100)
	return b.in(ctx, setup{slots: 64}, func(w *world) error {
		l := load{name: "q", runs: n, steps: 6, ahead: 256, asks: true}
		f, _, err := b.load(ctx, w, l, latency{})
		if err != nil {
			return err
		}
		w.model.begin(latency{})
		ended, err := w.reply(ctx, l, replies, 8)
		if err != nil {
			return err
		}
		heard := w.model.heard()
		delete(f, stepRate) // they are not at their end
		f[resume50], f[resume99] = milliseconds(percentile(heard.resumes, 50)), milliseconds(percentile(heard.resumes, 99))
		f[run50], f[run99] = milliseconds(percentile(ended.each, 50)), milliseconds(percentile(ended.each, 99))
		f[perRun] = f[workerGrowth] * 1024 / float64(n)
		b.report.add(b.scenario, fmt.Sprintf("%d wait, %d replies", n, replies), f)
		return nil
	})
}

func long(ctx context.Context, b *bench) error {
	return b.in(ctx, setup{slots: inFlight}, func(w *world) error {
		l := load{name: "l", runs: b.opts.Form.count(8, 64, 256), steps: 200, ahead: inFlight}
		return b.throughput(ctx, w, "200 steps, 32 in flight", l, latency{})
	})
}

func fairness(ctx context.Context, b *bench) error {
	flood, each := b.opts.Form.count(200, 1_000, 10_000), b.opts.Form.count(5, 10, 40)
	lat := latency{50 * time.Millisecond, 50 * time.Millisecond}
	if b.opts.Latency != nil {
		lat = *b.opts.Latency
	}
	apart, together := smallTenants("big", 9)
	return b.in(ctx, setup{slots: inFlight}, func(w *world) error {
		w.model.begin(lat)
		alone := load{name: "alone", tenants: apart, runs: 9 * each, steps: 6, ahead: 9}
		if err := b.small(ctx, w, "nine small tenants alone", alone); err != nil {
			return err
		}
		var all errgroup.Group
		all.Go(func() error {
			_, err := w.submit(ctx, load{name: "flood", tenants: []string{"big"}, runs: flood, steps: 6, ahead: flood})
			return err
		})
		beside, shared := alone, alone
		beside.name, shared.name = "beside", "shared"
		shared.tenants, shared.runs, shared.ahead = together, each, 1
		all.Go(func() error {
			return b.small(ctx, w, fmt.Sprintf("the same beside %d tasks of another", flood), beside)
		})
		all.Go(func() error { return b.small(ctx, w, "and one in that one's group", shared) })
		return all.Wait()
	})
}

// small measures how long runs of small tenants take.
func (b *bench) small(ctx context.Context, w *world, row string, l load) error {
	d, err := w.submit(ctx, l)
	if err == nil {
		b.report.add(b.scenario, row, figures{run50: milliseconds(percentile(d.each, 50)), run99: milliseconds(percentile(d.each, 99))})
	}
	return err
}

// smallTenants returns n tenants that share no group with the big one, and one that does.
func smallTenants(big string, n int) (apart, together []string) {
	for i := 1; len(apart) < n || len(together) < 1; i++ {
		name := fmt.Sprint("small", i)
		switch {
		case group(name) != group(big) && len(apart) < n:
			apart = append(apart, name)
		case group(name) == group(big) && len(together) < 1:
			together = append(together, name)
		}
	}
	return apart, together
}

// group is the one that a tenant belongs to, as docs/fairness.md has it.
func group(tenant string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // never fails
	return h.Sum32() % 8
}

// each measures the usual load in several worlds.
func (b *bench) each(ctx context.Context, worlds map[string]setup, order ...string) error {
	for _, row := range order {
		s := worlds[row]
		s.slots = inFlight
		err := b.in(ctx, s, func(w *world) error {
			return b.throughput(ctx, w, row, b.saturating("r", 6, inFlight*max(s.workers, 1)), latency{})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func syncing(ctx context.Context, b *bench) error {
	return b.each(ctx, map[string]setup{"always": {sync: "always"}, "every 2m": {sync: "2m"}}, "always", "every 2m")
}

func replicas(ctx context.Context, b *bench) error {
	return b.each(ctx, map[string]setup{"1 server": {}, "3 servers": {servers: 3}}, "1 server", "3 servers")
}

func workers(ctx context.Context, b *bench) error {
	return b.each(ctx, map[string]setup{"1 worker": {}, "2 workers": {workers: 2}, "4 workers": {workers: 4}}, "1 worker", "2 workers", "4 workers")
}
