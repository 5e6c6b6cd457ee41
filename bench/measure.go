package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// bench is one scenario as it is being measured.
type bench struct {
	opts     options
	scenario string
	report   *report
	profiles int // that were named
}

// one measures a scenario.
func (o options) one(ctx context.Context, s scenario, r *report) error {
	began := time.Now()
	fmt.Fprintf(o.progress, "%s: %s\n", s.name, s.about)
	err := s.run(ctx, &bench{opts: o, scenario: s.name, report: r})
	fmt.Fprintf(o.progress, "%s: %.0f s\n", s.name, time.Since(began).Seconds())
	return err
}

// in calls measure with a world that ends afterwards.
func (b *bench) in(ctx context.Context, s setup, measure func(*world) error) error {
	w, err := b.startWorld(ctx, s)
	if err != nil {
		return err
	}
	defer w.close()
	return measure(w)
}

// throughput measures a load, with the floor before and after it, and adds the row.
func (b *bench) throughput(ctx context.Context, w *world, row string, l load, lat latency) error {
	if b.opts.Latency != nil {
		lat = *b.opts.Latency
	}
	w.model.begin(latency{})
	warm := l
	warm.name, warm.runs = l.name+"-warm", min(l.ahead, 16)
	messages, size, err := w.journalSize(ctx)
	if err != nil {
		return err
	}
	if _, err := w.submit(ctx, warm); err != nil { // connections, pools, page cache
		return err
	}
	messages2, size2, err := w.journalSize(ctx)
	if err != nil {
		return err
	}
	payload, err := w.payload(ctx, l.name, (size2-size)/max(messages2-messages, 1))
	if err != nil {
		return err
	}
	writers := min(l.ahead, 256)
	half := b.opts.Form.of(300*time.Millisecond, 700*time.Millisecond, 2*time.Second)
	before, err := w.bareAppends(ctx, l.name+"-before", payload, writers, l.steps+1, half)
	if err != nil {
		return err
	}
	f, d, err := b.load(ctx, w, l, lat)
	if err != nil {
		return err
	}
	after, err := w.bareAppends(ctx, l.name+"-after", payload, writers, l.steps+1, half)
	if err != nil {
		return err
	}
	heard := w.model.heard()
	requests, err := w.bareRequests(ctx, heard.prompt, writers, half)
	if err != nil {
		return err
	}
	appends, calls := float64(d.runs*(l.steps+1)), float64(heard.calls)
	f[floorRate] = (before.appends + after.appends) / 2
	f[floorCPU] = float64((before.cpu + after.cpu).Microseconds()) / 2
	f[httpRate] = requests
	f[ofFloor] = appends / d.took.Seconds() / f[floorRate]
	f[ofBoth] = (appends/f[floorRate] + calls/requests) / d.took.Seconds()
	b.report.add(b.scenario, row, f)
	return nil
}

// load drives a load and says what it used.
func (b *bench) load(ctx context.Context, w *world, l load, lat latency) (figures, driven, error) {
	stored, err := w.stored(ctx)
	if err != nil {
		return nil, driven{}, err
	}
	w.model.begin(lat)
	w.forgetPeaks()
	servers, workers := w.used()
	base := highest(w.workers)
	d, err := w.submit(ctx, l)
	if err != nil {
		return nil, d, err
	}
	servers2, workers2 := w.used()
	stored2, err := w.stored(ctx)
	if err != nil {
		return nil, d, err
	}
	heard, runs, steps := w.model.heard(), float64(max(d.runs, 1)), float64(max(d.runs, 1)*(l.steps+1))
	return figures{
		runRate:    runs / d.took.Seconds(),
		stepRate:   steps / d.took.Seconds(),
		overhead50: milliseconds(percentile(heard.gaps, 50)), overhead99: milliseconds(percentile(heard.gaps, 99)),
		run50: milliseconds(percentile(d.each, 50)), run99: milliseconds(percentile(d.each, 99)),
		cpuServer:    float64((servers2.cpu - servers.cpu).Microseconds()) / steps,
		cpuWorker:    float64((workers2.cpu - workers.cpu).Microseconds()) / steps,
		storedBytes:  float64(stored2-stored) / runs,
		writtenBytes: float64(servers2.written-servers.written) / runs,
		serverPeak:   megabytes(highest(w.servers)), workerPeak: megabytes(highest(w.workers)),
		workerGrowth: megabytes(max(0, highest(w.workers)-base)), // less, where what it held before was garbage
		callsAtOnce:  float64(heard.most),
	}, d, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
func megabytes(bytes int64) float64        { return float64(bytes) / (1 << 20) }

// percentile returns the p-th percentile; 0 of nothing.
func percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
