package bus

import (
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
