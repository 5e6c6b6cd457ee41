package torture

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	probeStream  = "TORTURE_PROBE"
	probeSubject = "torture.probe"
	probeEvery   = 50 * time.Millisecond
	// busyFrom is the delay from which the machine is too slow to judge recoveries: in the second they have, several things
	// are stored one after the other.
	busyFrom = 100 * time.Millisecond
)

// probe measures how quick the machine and the server are while nobody harms them. Where they are too slow to keep a lease
// alive, that is a fault too, of nobody's doing: an engine may then lose runs that it should not lose on a machine with
// time to spare. It looks from the outside and asks no worker: a timer that comes late, or an answer of the server. Shorter
// delays are no fault, and kept too: how quick others are is not judged while there are some.
func (w *world) probe(ctx context.Context) {
	_, err := w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: probeStream, Subjects: []string{probeSubject}, MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return // the server is away already: the torture has its reasons
	}
	for sleepSince := time.Now(); sleep(ctx, probeEvery); sleepSince = time.Now() {
		w.took(sleepSince, time.Since(sleepSince)-probeEvery)
		w.timed(ctx, func(ctx context.Context) { _, _ = w.js.Publish(ctx, probeSubject, nil) })
		for _, name := range []string{streamEvents, streamWake, "KV_" + bucketRuns} {
			w.timed(ctx, func(ctx context.Context) { _, _ = w.js.Stream(ctx, name) }) // it waits while the stream can't be written
		}
	}
}

// timed notes how long the server takes for a request. An answer that is an error is one too: only the time counts.
func (w *world) timed(ctx context.Context, request func(context.Context)) {
	sent := time.Now()
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request(within)
	if ctx.Err() == nil && w.nc.IsConnected() {
		w.took(sent, time.Since(sent))
	}
}

// took notes a delay.
func (w *world) took(since time.Time, delay time.Duration) {
	if delay > w.opts.Lease/6 {
		w.ledger.slow(since, time.Now())
	}
	if delay > busyFrom {
		w.ledger.slowish(since, time.Now())
	}
}
