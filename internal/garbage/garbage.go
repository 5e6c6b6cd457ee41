// Package garbage decides how much garbage a process lets lie before it is collected. Go collects when the heap has grown by
// a fixed percentage of what is in use (GOGC, 100). That suits neither a worker with few runs in hand, whose heap is a few
// megabytes and would be collected many times a second, nor one with thousands, of whose memory half or more would be
// garbage. Here the heap may have a size that nobody minds for nothing, and grows by less where more than that is in use.
package garbage

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The policy. Percentages are of what is in use, as GOGC's.
const (
	free  = 32 << 20 // bytes that the heap may have in any case, garbage included
	least = 50       // by which it may grow however large it is: half as much cost a busy worker a fifth more processor time
	most  = 400      // beyond which nothing is gained
)

// Bound applies the policy to this process until stop is called, after which the percentage is again what it was. It is for
// main packages, where the environment has no GOGC.
func Bound() (stop func()) {
	before := debug.SetGCPercent(most)
	b := &bound{percent: most}
	b.watch()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stopped = true
		debug.SetGCPercent(before)
	}
}

type bound struct {
	mu      sync.Mutex
	percent int
	stopped bool
}

// sentinel is an object that nobody refers to: each collection finds it, and tells us by that.
type sentinel struct{ *bound }

func (b *bound) watch() {
	runtime.SetFinalizer(&sentinel{b}, func(s *sentinel) {
		if s.adjust() {
			s.watch()
		}
	})
}

// adjust is called after each collection, and reports whether the policy still holds. To change the percentage stops
// everything for a moment, so small changes are left.
func (b *bound) adjust() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return false
	}
	if next := percent(inUse()); 10*max(next-b.percent, b.percent-next) > b.percent {
		b.percent = next
		debug.SetGCPercent(next)
	}
	return true
}

// inUse is what the last collection found in use on the heap, and what else the percentage is taken of: stacks and globals,
// bytes.
func inUse() (heap, base uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for i, s := range samples {
		if s.Value.Kind() != metrics.KindUint64 {
			continue // another Go has no such metric
		}
		if base += s.Value.Uint64(); i == 0 {
			heap = base
		}
	}
	return heap, base
}

// percent is by how much the heap may grow.
func percent(heap, base uint64) int {
	if heap >= free || base == 0 {
		return least
	}
	return int(min(max((free-heap)*100/base, least), most))
}
