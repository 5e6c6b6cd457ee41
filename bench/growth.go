package main

import (
	"context"
	"fmt"
)

// growth measures the same work while one thing grows: the steps of a run, the runs that are kept, the tenants.
func growth(ctx context.Context, b *bench) error {
	for _, grow := range []func(context.Context, *bench, *world) error{growSteps, growRuns, growTenants} {
		if err := b.in(ctx, setup{slots: inFlight}, func(w *world) error { return grow(ctx, b, w) }); err != nil {
			return err
		}
	}
	return nil
}

func growSteps(ctx context.Context, b *bench, w *world) error {
	if _, err := w.submit(ctx, load{name: "warm", runs: inFlight, steps: 6, ahead: inFlight}); err != nil {
		return err
	}
	total := b.opts.Form.count(2_000, 10_000, 60_000)
	for _, steps := range []int{6, 12, 24, 50, 100, 200} {
		l := load{name: fmt.Sprint("s", steps), runs: max(total/steps, inFlight), steps: steps, ahead: 2 * inFlight}
		f, _, err := b.load(ctx, w, l, latency{})
		if err != nil {
			return err
		}
		b.report.add(b.scenario, fmt.Sprintf("%d steps", steps), f)
	}
	return nil
}

// growRuns measures a hundred or so new runs beside more and more that have ended and are kept.
func growRuns(ctx context.Context, b *bench, w *world) error {
	kept, sample := 0, b.opts.Form.count(64, 256, 1_000)
	for _, want := range []int{1, 100, 1_000, 10_000} {
		if want > b.opts.Form.count(1_000, 10_000, 10_000) {
			break
		}
		filler := load{name: fmt.Sprint("fill", want), runs: max(want-kept, 0), steps: 6, ahead: 128}
		if filler.runs > 0 {
			if _, err := w.submit(ctx, filler); err != nil {
				return err
			}
		}
		f, d, err := b.load(ctx, w, load{name: fmt.Sprint("k", want), runs: sample, steps: 6, ahead: 2 * inFlight}, latency{})
		if err != nil {
			return err
		}
		kept += filler.runs + d.runs
		b.report.add(b.scenario, fmt.Sprintf("beside %d ended runs", want), f)
	}
	return nil
}

// growTenants measures as many runs of ever more tenants.
func growTenants(ctx context.Context, b *bench, w *world) error {
	if _, err := w.submit(ctx, load{name: "warm", runs: inFlight, steps: 6, ahead: inFlight}); err != nil {
		return err
	}
	for _, n := range []int{1, 10, 100, 1_000} {
		tenants := make([]string, n)
		for i := range tenants {
			tenants[i] = fmt.Sprintf("t%d-%d", n, i)
		}
		l := load{name: "r", tenants: tenants, runs: b.opts.Form.count(200, 1_000, 5_000), steps: 6, ahead: 2 * inFlight}
		f, _, err := b.load(ctx, w, l, latency{})
		if err != nil {
			return err
		}
		b.report.add(b.scenario, fmt.Sprintf("%d tenants", n), f)
	}
	return nil
}
