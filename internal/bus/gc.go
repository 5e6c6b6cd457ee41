package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"ratchet/internal/loop"
)

// What an operator clears away. Workers remove what belongs to a run when it expires; what is left lies there because a schedule
// was lost, a worker died at the wrong moment, or an older version left it. All of it needs JetStream.

// CollectOptions say what is left over.
type CollectOptions struct {
	Keep time.Duration // how long a run stays after its end; 0: not at all
	// Age is how old something that no run refers to has to be: it may be new, and its run about to refer to it; 1h.
	Age    time.Duration
	Remove bool // else it is only counted
}

// Litter is one kind of what is left.
type Litter struct {
	What  string `json:"what"`
	Count int    `json:"count"`
	Bytes uint64 `json:"bytes"`
	Stays string `json:"stays,omitempty"` // why it is not removed; empty: it is
}

// Collection is what Collect found, and what it removed of it.
type Collection struct {
	Litter  []Litter
	Removed int // things
}

// Collect finds what is left of runs that ended too long ago, and of runs that are gone, and removes it where that is wanted: in
// the order and with the checks of the expiry, so that it may be interrupted, repeated, and done while workers work. A run that
// has not ended is never touched. What could not be removed stays, and is named in the error. It holds the ids of all runs in memory.
func (b *Bus) Collect(ctx context.Context, opts CollectOptions) (Collection, error) {
	now := time.Now()
	c := &collector{
		bus: b, before: now.Add(-opts.Keep), left: now.Add(-cmp.Or(opts.Age, time.Hour)), remove: opts.Remove,
		runs: map[loop.RunID]bool{}, catalogues: map[string]bool{},
	}
	for _, look := range []func(context.Context) error{
		c.expired, c.journals, c.results, c.pieces, c.conversations, c.markers, c.offers,
	} {
		if err := look(ctx); err != nil {
			return c.found, err
		}
	}
	return c.found, errors.Join(c.failures...)
}

// collector is a Collect that goes on.
type collector struct {
	bus        *Bus
	before     time.Time // runs that ended before it are past their keep
	left       time.Time // what was stored before it is old
	remove     bool
	runs       map[loop.RunID]bool // that have a state or a journal
	catalogues map[string]bool     // digests that some run refers to
	found      Collection
	failures   []error
}

// maxFailures is how many failures are told.
const maxFailures = 10

// drop removes one thing, if that is wanted. What was changed in the meantime is in use again, and stays.
func (c *collector) drop(do func() error) {
	if !c.remove {
		return
	}
	err := do()
	switch {
	case err == nil:
		c.found.Removed++
	case !errors.Is(err, loop.ErrConflict) && len(c.failures) < maxFailures:
		c.failures = append(c.failures, err)
	}
}

func (c *collector) add(l Litter) {
	if l.Count > 0 {
		c.found.Litter = append(c.found.Litter, l)
	}
}

// expired finds runs that were closed and are past their keep.
func (c *collector) expired(ctx context.Context) error {
	l := Litter{What: "runs past their time (the size is that of their journals)"}
	var doomed []loop.Head
	for after := (loop.Cursor{}); ; {
		heads, last, err := c.bus.Changed(ctx, after, scanMost)
		if err != nil {
			return err
		}
		for _, h := range heads {
			c.runs[loop.RunID{Tenant: h.Tenant, Run: h.Run}] = true
			if h.Closed && !h.Unreadable && h.V == loop.HeadVersion && h.Updated.Before(c.before) {
				doomed = append(doomed, loop.Head{Tenant: h.Tenant, Run: h.Run})
			}
		}
		if after = last; len(heads) < scanMost {
			break
		}
	}
	for _, h := range doomed {
		id := loop.RunID{Tenant: h.Tenant, Run: h.Run}
		head, revision, err := c.bus.Load(ctx, id)
		if err != nil || !head.Closed || !head.Updated.Before(c.before) {
			continue // it has expired, or begun anew
		}
		j, err := c.bus.weigh(ctx, id)
		if err != nil {
			return err
		}
		l.Count, l.Bytes = l.Count+1, l.Bytes+j.bytes
		c.drop(func() error { return c.expire(ctx, id, head, revision) })
	}
	c.add(l)
	return nil
}

func (c *collector) expire(ctx context.Context, id loop.RunID, head loop.Head, revision uint64) error {
	stores := loop.Config{Journal: c.bus, Heads: c.bus, Sessions: c.bus, Blobs: c.bus}
	if err := loop.Expire(ctx, stores, id, head, revision); err != nil {
		return err
	}
	delete(c.runs, id)
	return c.bus.Unschedule(ctx, id, "expire") // of a worker that had one for each run; it would fire for nothing
}

// weight is what there is of a run's journal.
type weight struct {
	bytes uint64
	last  stored
	ended bool
}

// weigh reads the journal of a run.
func (b *Bus) weigh(ctx context.Context, id loop.RunID) (w weight, err error) {
	err = b.scan(ctx, b.names.events, b.names.journal(id), 0, func(msg stored) bool {
		w.bytes += sizeOf(msg)
		w.last = msg
		event, err := b.event(msg)
		w.ended = err == nil && event.Final()
		return true
	})
	if err != nil {
		return w, fmt.Errorf("look at the journal of %s: %w", id, err)
	}
	return w, nil
}

// sizeOf is about what a message takes in a stream.
func sizeOf(msg stored) uint64 {
	size := len(msg.Subject) + len(msg.Data)
	for name, values := range msg.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	return uint64(size)
}

// gone reports whether nothing is left of a run but what refers to it.
func (c *collector) gone(ctx context.Context, id loop.RunID) (bool, error) {
	if c.runs[id] {
		return false, nil
	}
	if checkRun(id) != nil {
		return false, nil // not of our making
	}
	_, _, err := c.bus.Load(ctx, id) // it may have begun after the others were listed
	if err == nil || errors.Is(err, loop.ErrNewer) {
		return false, nil
	} else if !errors.Is(err, loop.ErrNotFound) {
		return false, err
	}
	_, err = c.bus.leaderNext(ctx, c.bus.names.events, c.bus.names.journal(id), 0)
	if errors.Is(err, errNoMessage) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("look for the journal of %s: %w", id, c.bus.explain(err))
	}
	return false, nil
}

// old reports whether a message was stored long enough ago to be left over.
func (c *collector) old(msg stored) bool {
	at := msg.storedAt()
	return !at.IsZero() && at.Before(c.left)
}
