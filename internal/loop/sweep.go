package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// The sweep is the belt to the invariant's braces: it finds runs that owe something without a wake-up, wait past their
// deadline without a schedule, or ended without being closed, and wakes them. A wake-up too many does no harm. It also
// removes runs that have been kept long enough. It is a job that the queue delivers to one worker at a time. What it knows it
// keeps in memory and brings up to date from the states that changed since, so that no sweep but a worker's first reads all.

const (
	sweepPage   = 4000 // states read at once; for each page the server counts all there are
	sweepChecks = 500  // runs looked at in one sweep, the longest unchanged first in turn
	sweepLate   = 2 * time.Second
)

// sweeper is what a worker remembers between its sweeps.
type sweeper struct {
	mu     sync.Mutex
	cursor Cursor // the last state read
	front  Cursor // a state before which no run is left that was closed, or could be removed
	open   map[RunID]openRun
	queue  []RunID // open runs in the order in which they are to be looked at

	found atomic.Pointer[census]
}

type openRun struct {
	head Head
	seen time.Time // when this worker saw the state in this form
}

// job does a job of the workers that came as a wake-up, and settles it.
func (w *Worker) job(ctx context.Context, log *slog.Logger, d *Delivery, do func(context.Context, *Delivery) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beats sync.WaitGroup
	defer beats.Wait()
	done := make(chan struct{})
	beats.Go(func() { w.extendUntil(ctx, d, done) })
	err := func() (err error) {
		defer close(done)
		defer recovered(&err)
		return do(ctx, d)
	}()
	if err != nil {
		if ctx.Err() == nil {
			log.Warn("a job of the workers failed; it will be tried again", "job", d.Run, "error", err)
		}
		w.giveBack(log.Warn, d, backoff(d.Attempt))
		return
	}
	if err := d.Settler.Ack(ctx); err != nil {
		log.Warn("a job could not be acknowledged; it will be done again", "job", d.Run, "error", err)
	}
}

// extendUntil keeps a job with this worker until it is done.
func (w *Worker) extendUntil(ctx context.Context, d *Delivery, done <-chan struct{}) {
	tick := time.NewTicker(w.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.Settler.Extend(ctx); err != nil {
				w.Log.Warn("the lease of a job could not be extended", "job", d.Run, "error", err)
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// armSweep publishes the repeating schedule of the sweep. Every worker does at its start; the last one's counts.
func (w *Worker) armSweep(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := w.Wakes.Repeat(ctx, JobSweep, w.Sweep)
		if err == nil {
			return
		}
		w.Log.Warn("the sweep could not be scheduled; trying again", "error", err)
		pause(ctx, failures+4, w.longestPause())
	}
}

// sweep looks once. Of what can wait it begins nothing more once stop is closed.
func (w *Worker) sweep(ctx context.Context, stop <-chan struct{}) error {
	s := &w.sweeper
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := w.catchUp(ctx, s); err != nil {
		return err
	}
	idle, err := w.Wakes.Idle(ctx)
	if err != nil {
		return err
	}
	woken := 0
	for range min(len(s.queue), sweepChecks) {
		id := s.queue[0]
		s.queue = s.queue[1:]
		run, open := s.open[id]
		if !open {
			continue
		}
		s.queue = append(s.queue, id)
		lost, err := w.isLost(ctx, run, idle)
		if lost && err == nil {
			var waits bool
			waits, err = w.Wakes.Woken(ctx, id) // handed back, perhaps, for its tenant has all the slots it may have
			lost = !waits
		}
		if err != nil {
			return err
		}
		if !lost {
			continue
		}
		key := fmt.Sprintf("%s/%d/sweep/%d", id, run.head.N, w.Now().Unix())
		if err := w.Wakes.Wake(ctx, id, key, Wake{}); err != nil {
			return err
		}
		run.seen = w.Now()
		s.open[id] = run
		woken++
		w.Log.Warn("a run was found that nobody would have woken", "tenant", id.Tenant, "run", id.Run,
			"status", run.head.Status, "n", run.head.N)
	}
	if err := w.expireDue(ctx, stop); err != nil {
		return err
	}
	s.count(w.Now())
	w.Log.Debug("sweep done", "open", len(s.open), "woken", woken)
	return nil
}

// catchUp reads the states that changed since the last sweep of this worker.
func (w *Worker) catchUp(ctx context.Context, s *sweeper) error {
	if s.open == nil {
		s.open = map[RunID]openRun{}
	}
	for {
		heads, last, err := w.Heads.Changed(ctx, s.cursor, sweepPage)
		if err != nil {
			return err
		}
		if !last.Continues(s.cursor) {
			s.open, s.queue = map[RunID]openRun{}, nil
		}
		s.cursor = last
		for _, h := range heads {
			s.note(h, w.Now())
		}
		if len(heads) < sweepPage {
			return nil
		}
	}
}

func (s *sweeper) note(h Head, now time.Time) {
	id := RunID{Tenant: h.Tenant, Run: h.Run}
	if h.Closed || h.Unreadable || h.V > HeadVersion {
		delete(s.open, id)
		return
	}
	if _, known := s.open[id]; !known {
		s.queue = append(s.queue, id)
	}
	s.open[id] = openRun{head: h, seen: now}
}

// isLost reports whether nobody will wake the run. idle says that no wake-up waits for a worker.
func (w *Worker) isLost(ctx context.Context, run openRun, idle bool) (bool, error) {
	h, now := run.head, w.Now()
	settled := now.Sub(run.seen) > 2*w.Lease
	switch {
	case h.Owner != nil && settled:
		pending, err := w.Wakes.Pending(ctx, h.Owner.Wake)
		return !pending && err == nil, err
	case h.Owner != nil:
		return false, nil
	case h.Status == StatusRunning || h.Status.Final():
		return settled && idle, nil
	case h.overdue(now.Add(-sweepLate)):
		return true, nil
	case !settled:
		return false, nil
	}
	if ended, err := w.childEnded(ctx, h); ended || err != nil {
		return ended && idle, err
	}
	// It waits, and rightly so unless something was appended that its state does not show, or the last that it shows is lost.
	page, err := w.Journal.Read(ctx, RunID{Tenant: h.Tenant, Run: h.Run}, max(h.Seq, 1)-1)
	switch events := page.Events; {
	case len(events) > 0 && events[len(events)-1].Seq > h.Seq:
		return idle, nil
	case errors.Is(err, ErrNewer):
		return false, nil
	default:
		return len(events) == 0 && idle, err
	}
}

// childEnded reports whether a child run that the run waits for was closed, or is gone.
func (w *Worker) childEnded(ctx context.Context, h Head) (bool, error) {
	for _, run := range h.Children {
		child, _, err := w.Heads.Load(ctx, RunID{Tenant: h.Tenant, Run: run})
		switch {
		case errors.Is(err, ErrNotFound), err == nil && child.Closed:
			return true, nil
		case err != nil && !errors.Is(err, ErrNewer):
			return false, err
		}
	}
	return false, nil
}

// overdue reports whether a deadline that the run waits for had passed at the given time.
func (h Head) overdue(at time.Time) bool {
	return h.Question != nil && h.Question.Deadline.Before(at) ||
		h.Wait != nil && !h.Wait.Until.IsZero() && h.Wait.Until.Before(at)
}
