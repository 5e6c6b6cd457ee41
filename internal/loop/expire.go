package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Expiry is part of the sweep, so that a finished run has nothing in the queue while it is kept. The states of all runs come
// in the order of their last change, and the last change of a run that has ended is its closing: those whose time has come
// lie in front, with runs between them that have not ended. The sweep goes on from where that front was, removes what is due,
// and ends at runs that are not. It works for half of its interval at most; what is left is the next one's.
//
// A worker knows the front only of its own sweeps; another one begins at the oldest state, where it finds little but runs that
// have not ended. Where the clocks of workers differ, or a run was closed long after its end, one that is not due may lie before
// others that are. Those on its page go too; those behind it wait until it is due.

const (
	expiryPage     = 250 // states read at once
	expiryAtOnce   = 8   // runs removed side by side
	expiryFailures = 10  // runs that could not be removed, after which the sweep leaves the others to the next one
)

// expireDue removes the runs that ended longer than Keep ago, the longest closed first, until it comes to those that are not
// due, its time is over, or stop is closed.
func (w *Worker) expireDue(ctx context.Context, stop <-chan struct{}) error {
	s, until := &w.sweeper, time.Now().Add(w.Sweep/2)
	at, removed, failures := s.front, 0, 0
	defer func() {
		if removed > 0 {
			w.Log.Info("finished runs have expired", "runs", removed)
		}
	}()
	for time.Now().Before(until) && !isClosed(stop) && failures < expiryFailures {
		heads, last, err := w.Heads.Changed(ctx, at, expiryPage)
		if err != nil {
			return err
		}
		due, early := w.due(heads)
		gone, errs := w.expireAll(ctx, due)
		removed, failures = removed+gone, failures+len(errs)
		for _, err := range errs {
			w.Log.Warn("a finished run could not be removed; the next sweep tries again", "error", err)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case early && gone > 0:
			continue // others have come into the page
		case early:
			return nil
		case len(heads) < expiryPage:
			return nil
		}
		if at = last; failures == 0 {
			s.front = last
		}
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// due returns the runs whose time has come, and reports whether there is one that was closed and whose time has not.
func (w *Worker) due(heads []Head) (due []RunID, early bool) {
	for _, h := range heads {
		switch {
		case !h.Closed || h.Unreadable || h.V > HeadVersion:
		case w.isDue(h):
			due = append(due, RunID{Tenant: h.Tenant, Run: h.Run})
		default:
			early = true
		}
	}
	return due, early
}

// isDue reports whether a run that was closed has been kept for as long as it has to be.
func (w *Worker) isDue(h Head) bool { return !w.Now().Before(h.Updated.Add(w.Keep)) }

// doomed is a run that is being removed, with its state as it was read just before.
type doomed struct {
	id       RunID
	head     Head
	revision uint64
}

// expireAll removes runs that were closed and are due, and returns how many it did. One that another sweep has removed, or whose
// id has begun anew, is left alone; but results and what was said go by the id, so where that happens between the purge and
// them, to a worker that stood still for so long, they are the new run's. The states go last: where it is interrupted, it can
// be done again.
func (w *Worker) expireAll(ctx context.Context, ids []RunID) (removed int, failures []error) {
	var mu sync.Mutex
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, err)
	}
	var purged []doomed
	sideBySide(ids, func(id RunID) {
		head, revision, err := w.Heads.Load(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrNewer), err == nil && (!head.Closed || !w.isDue(head)):
			return
		case err == nil:
			err = w.Journal.Purge(ctx, id, head.Seq)
		}
		if err != nil {
			failed(fmt.Errorf("purge the journal of %s: %w", id, err))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		purged = append(purged, doomed{id, head, revision})
	})
	if len(purged) == 0 {
		return 0, failures
	}
	all := make([]RunID, len(purged))
	for i, d := range purged {
		all[i] = d.id
	}
	if err := w.Blobs.DeleteBlobs(ctx, all...); err != nil {
		return 0, append(failures, fmt.Errorf("delete the results of %d runs: %w", len(all), err))
	}
	sideBySide(purged, func(d doomed) {
		switch err := w.forgetRun(ctx, d); {
		case err == nil:
			mu.Lock()
			defer mu.Unlock()
			removed++
		case !errors.Is(err, ErrConflict):
			failed(err)
		}
	})
	return removed, failures
}

// sideBySide calls do with each of a few at once.
func sideBySide[T any](all []T, do func(T)) {
	next := make(chan T)
	var hands sync.WaitGroup
	for range min(expiryAtOnce, len(all)) {
		hands.Go(func() {
			for x := range next {
				do(x)
			}
		})
	}
	for _, x := range all {
		next <- x
	}
	close(next)
	hands.Wait()
}

// expire removes all there is of a run that was closed, its state last: where it is interrupted, it can be done again.
func (w *Worker) expire(ctx context.Context, id RunID, head Head, revision uint64) error {
	if err := w.Journal.Purge(ctx, id, head.Seq); err != nil {
		return fmt.Errorf("purge the journal of %s: %w", id, err)
	}
	if err := w.Blobs.DeleteBlobs(ctx, id); err != nil {
		return fmt.Errorf("delete the results of %s: %w", id, err)
	}
	return w.forgetRun(ctx, doomed{id, head, revision})
}

// forgetRun removes what is left of a run without journal and results: what it said in its session, and its state.
func (w *Worker) forgetRun(ctx context.Context, d doomed) error {
	if err := w.forgetSaid(ctx, d.id, d.head.Session); err != nil {
		return err
	}
	if err := w.Heads.Delete(ctx, d.id, d.revision); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete the state of %s: %w", d.id, err)
	}
	return nil
}

// Expire removes all there is of a run that was closed, as a sweep does once its time has come. head and revision are what is
// stored; ErrConflict: the state was changed meanwhile. Of the configuration it needs Journal, Heads, Sessions and Blobs.
func Expire(ctx context.Context, stores Config, id RunID, head Head, revision uint64) error {
	return (&Worker{Config: stores}).expire(ctx, id, head, revision)
}
