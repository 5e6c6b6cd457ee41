package bus

import (
	"context"
	"fmt"
	"time"

	"ratchet/internal/loop"
)

// DefaultID is the id of the run of a task that names none and lies at this place in the queue.
func DefaultID(stream string, seq uint64, stored time.Time) string {
	return defaultID(loop.Delivery{Stream: stream, Seq: seq, Time: stored})
}

// CheckVersion is checkVersion, for there is only one version of the server to test with.
var CheckVersion = checkVersion

// IsConflict is isConflict.
var IsConflict = isConflict

// Known is known.
func (b *Bus) Known(ctx context.Context, stream string) (uint64, error) { return b.known(ctx, stream) }

// TenantsRemembered is how many of so many tenants are remembered that had a task each.
func TenantsRemembered(tenants int) int {
	var f floods
	for i := range tenants {
		f.of(fmt.Sprint("t", i))
	}
	return len(f.now) + len(f.before)
}
