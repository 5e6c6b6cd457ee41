package loop

import (
	"context"
	"sync/atomic"
	"time"
)

// lease is the time for which the queue leaves a wake-up with this worker. It is measured by the process's monotonic
// clock from the last extension that the server confirmed.
type lease struct {
	settler   Settler
	origin    time.Time    // the reading of the monotonic clock that confirmed counts from
	confirmed atomic.Int64 // nanoseconds since origin at which the last confirmed extension was sent
	beating   atomic.Bool
}

// newLease returns the lease of a delivery.
func newLease(d *Delivery) *lease {
	l := &lease{settler: d.Settler, origin: d.Since}
	if l.origin.IsZero() {
		l.origin = time.Now()
	}
	return l
}

// age is the time since the last confirmed extension was sent.
func (l *lease) age() time.Duration {
	return time.Since(l.origin) - time.Duration(l.confirmed.Load())
}

// begin reports whether the caller is to call extend: at most one extension is under way.
func (l *lease) begin() bool { return l.beating.CompareAndSwap(false, true) }

// extend asks the server for a new lease. A failure shows in age.
func (l *lease) extend(ctx context.Context, timeout time.Duration) {
	defer l.beating.Store(false)
	sent := time.Since(l.origin)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if l.settler.Extend(ctx) == nil {
		l.confirmed.Store(int64(sent))
	}
}
