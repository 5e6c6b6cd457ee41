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
)

// probe measures how quick the machine and the server are while nobody harms them. Where they are too slow to keep a lease
// alive, that is a fault too, of nobody's doing: an engine may then lose runs that it should not lose on a machine with
// time to spare. It looks from the outside and asks no worker: a timer that comes late, or a stored message whose
// acknowledgement does.
func (w *world) probe(ctx context.Context) {
	_, err := w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: probeStream, Subjects: []string{probeSubject}, MaxMsgsPerSubject: 1, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return // the server is away already: the torture has its reasons
	}
	slow := w.opts.Lease / 6
	for sleepSince := time.Now(); sleep(ctx, probeEvery); sleepSince = time.Now() {
		if late := time.Since(sleepSince) - probeEvery; late > slow {
			w.ledger.slow(sleepSince, time.Now())
		}
		sent := time.Now()
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := w.js.Publish(within, probeSubject, nil)
		cancel()
		if took := time.Since(sent); took > slow && ctx.Err() == nil && w.nc.IsConnected() {
			w.ledger.slow(sent, time.Now())
		}
		_ = err // an answer that fails is one too: only the time counts
	}
}
