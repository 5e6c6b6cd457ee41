package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"ratchet/internal/loop"
)

// A tenant that dumps thousands of tasks has all but the first few of them put into the bulk lane of their rank, which comes
// behind the lanes of its group's other tenants: so one of them with a single task does not wait for all that.
//
// A worker counts what it lets in itself. Only once that is much it asks the server how much of it still waits, so that
// tenants with few tasks cost nothing, and it forgets whom it has not heard of for long. Workers know nothing of each
// other: each may let a few runs of the same tenant into its lane.

const (
	// fewWaiting is how many new runs of a tenant and a rank a worker lets wait before the others go into the bulk lane.
	fewWaiting = 8
	// recountEvery is the least time between two looks at what waits of a tenant.
	recountEvery = 200 * time.Millisecond
	// tenantsKnown is about how many tenants are remembered, those heard of last.
	tenantsKnown = 4096
)

// floods remembers what was let in of each tenant.
type floods struct {
	mu          sync.Mutex
	now, before map[string]*tide // those heard of since now was begun, and those heard of before

	looked    sync.Mutex
	at        time.Time // when delivered was asked for
	delivered map[string]uint64
}

// tide is how many new runs of a tenant wait for their first slot, by the place of their rank in [ranks].
type tide struct {
	mu   sync.Mutex
	few  [4]int // in their lane, as far as this worker let them in
	bulk [4]int // in the bulk lane, the same
	at   time.Time
}

// of returns what is known of a tenant. When there are many, those not heard of for longest are forgotten.
func (f *floods) of(tenant string) *tide {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.now[tenant]; t != nil {
		return t
	}
	if f.now == nil || len(f.now) >= tenantsKnown/2 {
		f.now, f.before = make(map[string]*tide), f.now
	}
	t := f.before[tenant]
	if t == nil {
		t = new(tide)
	}
	f.now[tenant] = t
	return t
}

// floods reports whether the next run of a rank belongs into the bulk lane: too many of that rank wait, or some already lie
// there of the same rank, which go first, or of a higher one.
func (t *tide) floods(rank int) bool {
	for r := 1; r <= rank; r++ {
		if t.bulk[r] > 0 {
			return true
		}
	}
	return t.few[rank] >= fewWaiting
}

// isFlood says whether a new run goes into the bulk lane of its rank, and counts it. Where the server can't be asked, what was
// true last is.
func (b *Bus) isFlood(ctx context.Context, tenant string, rank loop.Rank) bool {
	if !loop.ValidID(tenant) {
		return false
	}
	t, r := b.floods.of(tenant), placeOf(rank)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.floods(r) && time.Since(t.at) > recountEvery {
		if err := b.recount(ctx, tenant, t); err != nil {
			b.log.Debug("can't count what waits of a tenant", "tenant", tenant, "error", err)
		}
		t.at = time.Now()
	}
	if t.floods(r) {
		t.bulk[r]++
		return true
	}
	t.few[r]++
	return false
}

// recount asks the server how many runs of a tenant no worker was given yet.
func (b *Bus) recount(ctx context.Context, tenant string, t *tide) error {
	delivered, err := b.deliveredUpTo(ctx)
	if err != nil {
		return err
	}
	for r, rank := range ranks {
		for lane, n := range map[string]*int{
			laneOf(loop.RunID{Tenant: tenant}, rank.rank): &t.few[r], bulkLaneOf(tenant, rank.rank): &t.bulk[r],
		} {
			if *n == 0 {
				continue
			}
			if *n, err = b.waitsIn(ctx, lane, tenant, delivered[durableWakes+"-"+lane]); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitsIn counts the wake-ups of a tenant in a lane after a sequence, up to as many as make a flood.
func (b *Bus) waitsIn(ctx context.Context, lane, tenant string, after uint64) (n int, err error) {
	filter := b.names.wakeIn(lane, loop.RunID{Tenant: tenant, Run: "*"})
	for n = range fewWaiting {
		msg, err := b.leaderNext(ctx, b.names.wake, filter, after)
		if errors.Is(err, errNoMessage) {
			return n, nil
		} else if err != nil {
			return n, b.explain(err)
		}
		after = msg.Seq
	}
	return fewWaiting, nil
}

// deliveredUpTo says for each lane of wake-ups up to which sequence they were delivered. It is asked for all tenants together.
func (b *Bus) deliveredUpTo(ctx context.Context) (map[string]uint64, error) {
	f := &b.floods
	f.looked.Lock()
	defer f.looked.Unlock()
	if time.Since(f.at) <= recountEvery {
		return f.delivered, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	infos, err := b.consumers(ctx, b.names.wake)
	if err != nil {
		return nil, err
	}
	f.at, f.delivered = time.Now(), map[string]uint64{}
	for name, info := range infos {
		f.delivered[name] = info.Delivered.Stream
	}
	return f.delivered, nil
}
