package main

import (
	"context"
	"fmt"
)

// tenants measures very many tenants with a task each, submitted as fast as they can be, beside as many tasks of one tenant.
func tenants(ctx context.Context, b *bench) error {
	n := b.opts.Form.count(200, 1_000, 100_000)
	each := make([]string, n)
	for i := range each {
		each[i] = fmt.Sprint("t", i)
	}
	for _, l := range []struct {
		row string
		of  []string
	}{{fmt.Sprintf("1 tenant, %d tasks", n), nil}, {fmt.Sprintf("%d tenants, a task each", n), each}} {
		err := b.in(ctx, setup{slots: inFlight}, func(w *world) error { return b.tenants(ctx, w, l.row, l.of, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// tenants drives n runs, and adds a row with what server and worker hold afterwards for each of them.
func (b *bench) tenants(ctx context.Context, w *world, row string, of []string, n int) error {
	if _, err := w.submit(ctx, load{name: "warm", runs: inFlight, steps: 6, ahead: inFlight}); err != nil {
		return err
	}
	before, err := w.servers[0].held(ctx)
	if err != nil {
		return err
	}
	workers, err := w.holds(askCollect)
	if err != nil {
		return err
	}
	f, _, err := b.load(ctx, w, load{name: "r", tenants: of, runs: n, steps: 6, ahead: n}, latency{})
	if err != nil {
		return err
	}
	after, err := w.servers[0].held(ctx)
	if err != nil {
		return err
	}
	now, err := w.holds(askCollect)
	if err != nil {
		return err
	}
	if b.opts.MemProfile != "" {
		if err := w.profile(b.profileName(b.opts.MemProfile)); err != nil {
			return err
		}
	}
	f[serverHeld], f[heldEach] = megabytes(after), float64(after-before)/float64(n)
	f[perRun] = f[workerGrowth] * 1024 / float64(n)
	f[perRunHeap], f[perRunStacks] = now.since(workers, n)
	if f[consumers], err = w.consumers(ctx); err != nil {
		return err
	}
	b.report.add(b.scenario, row, f)
	return nil
}

// consumers counts those of all streams.
func (w *world) consumers(ctx context.Context) (n float64, err error) {
	streams := w.js.ListStreams(ctx)
	for info := range streams.Info() {
		n += float64(info.State.Consumers)
	}
	return n, streams.Err()
}
