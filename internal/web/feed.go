package web

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"ratchet/internal/loop"
)

const (
	// feedOverlap is how many events before the newest the feed begins with: those that the stored states, which are
	// written at most once a second while a run works, do not contain yet.
	feedOverlap = 2000
	// feedIdle is how long the feed goes on after the last look at the console.
	feedIdle = 10 * time.Minute
	// feedCheck is how often the list is compared with the stored states that changed; longer where that takes long.
	feedCheck = 2 * time.Second
	// feedPatience is how long a page waits for the list to be up to date; it shows what there is then.
	feedPatience = 2 * time.Second
	headsAtOnce  = 1000
	queued       = 256 // events that may wait for a tab
)

// feed keeps the index up to date while somebody looks, and hands events on to the tabs that follow a run. However many
// tabs there are, events are read once.
type feed struct {
	store Store
	keep  time.Duration
	now   func() time.Time
	log   *slog.Logger
	index *index

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	looked chan struct{} // somebody looks

	mu     sync.Mutex
	last   time.Time     // when somebody looked last
	fresh  chan struct{} // closed while the index is up to date
	tabs   map[*tab]bool
	cursor loop.Cursor // the newest stored state that the index contains; used by the goroutine of follow alone
}

// tab is one open stream of events.
type tab struct {
	run    loop.RunID      // whose events it wants; zero: none
	events chan loop.Event // of that run
	woken  chan struct{}   // something has changed
	lost   chan struct{}   // closed where the tab was too slow
}

func newFeed(store Store, keep time.Duration, now func() time.Time, log *slog.Logger) *feed {
	f := &feed{
		store: store, keep: keep, now: now, log: log, index: newIndex(),
		looked: make(chan struct{}, 1), fresh: make(chan struct{}), tabs: map[*tab]bool{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// warm reads the stored states, so that the first page is quick, and then waits until somebody looks.
func (f *feed) warm() {
	f.wg.Go(func() {
		if err := f.catchUp(f.ctx); err != nil && f.ctx.Err() == nil {
			f.log.Warn("the console could not read the states of runs; it tries again when somebody looks", "error", err)
		}
		for {
			select {
			case <-f.looked:
				f.follow()
			case <-f.ctx.Done():
				return
			}
		}
	})
}

func (f *feed) close() {
	f.cancel()
	f.wg.Wait()
}

// use says that somebody looks, and waits for the index to be up to date. It reports whether it is.
func (f *feed) use(ctx context.Context) bool {
	f.mu.Lock()
	f.last = time.Now()
	fresh := f.fresh
	f.mu.Unlock()
	select {
	case f.looked <- struct{}{}:
	default: // it has been said
	}
	patience := time.NewTimer(feedPatience)
	defer patience.Stop()
	select {
	case <-fresh:
		return true
	case <-patience.C:
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

// follow keeps the index up to date until nobody looks any more.
func (f *feed) follow() {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	last, err := f.store.LastEvent(ctx)
	if err == nil {
		err = f.catchUp(ctx)
	}
	if err != nil {
		if f.ctx.Err() == nil {
			f.log.Warn("the console can't read the states of runs", "error", err)
			f.again()
		}
		return
	}
	f.setFresh(true)
	defer f.setFresh(false)
	after := max(min(f.index.state().seq, last), last-min(last, feedOverlap))
	var tailing sync.WaitGroup
	tailing.Go(func() {
		if err := f.store.Tail(ctx, after, f.take); err != nil {
			f.log.Error("the console can't follow events", "error", err)
		}
	})
	f.check(ctx)
	cancel()
	tailing.Wait()
}

// again has follow tried again a little later, for whoever looked is still waiting.
func (f *feed) again() {
	later := time.NewTimer(time.Second)
	defer later.Stop()
	select {
	case <-later.C:
	case <-f.ctx.Done():
		return
	}
	select {
	case f.looked <- struct{}{}:
	default:
	}
}

// check compares the index with the stored states again and again, until nobody looks.
func (f *feed) check(ctx context.Context) {
	wait, failed := feedCheck, false
	for f.watched() {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		began := time.Now()
		err := f.catchUp(ctx)
		if bad := err != nil && ctx.Err() == nil; bad != failed {
			if failed = bad; bad {
				f.log.Warn("the console can't read the states of runs at the moment", "error", err)
			}
		}
		wait = max(feedCheck, 50*time.Since(began))
	}
}

// watched reports whether somebody has a page open or opened one lately.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tabs) > 0 || time.Since(f.last) < feedIdle
}

func (f *feed) setFresh(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if yes {
		close(f.fresh)
	} else {
		f.fresh = make(chan struct{})
	}
}

// catchUp takes in the stored states that have changed since the last time.
func (f *feed) catchUp(ctx context.Context) error {
	changed := false
	for {
		heads, last, err := f.store.Changed(ctx, f.cursor, headsAtOnce)
		if err != nil {
			return err
		}
		if !last.Continues(f.cursor) {
			if err := f.rewind(ctx); err != nil {
				return err
			}
			changed = true
		}
		f.index.adopt(heads)
		changed = changed || len(heads) > 0
		f.cursor = last
		if len(heads) < headsAtOnce {
			break
		}
	}
	f.index.expire(f.now().Add(-f.keep))
	if changed {
		f.tell(nil)
	}
	return nil
}

// rewind empties the index where the journal ends before what it contains: it was restored from a backup, or the server went
// down before it had synced. What is stored now has another past.
func (f *feed) rewind(ctx context.Context) error {
	last, err := f.store.LastEvent(ctx)
	if err != nil {
		return err
	}
	if last < f.index.state().seq {
		f.log.Warn("the journal has lost its newest events, and the console forgets them too", "last", last)
		f.index.clear()
	}
	return nil
}

// take takes in an event and hands it on.
func (f *feed) take(ev loop.Event) {
	if known := f.index.apply(ev); !known {
		f.lookUp(ev.RunID)
	}
	f.tell(&ev)
}

// lookUp fills in what the index does not know of a run whose beginning it has not seen.
func (f *feed) lookUp(id loop.RunID) {
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	head, _, err := f.store.Load(ctx, id)
	if err == nil {
		f.index.adopt([]loop.Head{head})
	} else if !errors.Is(err, loop.ErrNotFound) && ctx.Err() == nil {
		f.log.Warn("the console can't read a run's state", "run", id.String(), "error", err)
	}
}

// open begins a stream of events for a tab.
func (f *feed) open(run loop.RunID) *tab {
	t := &tab{run: run, events: make(chan loop.Event, queued), woken: make(chan struct{}, 1), lost: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tabs[t] = true
	return t
}

func (f *feed) leave(t *tab) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tabs, t)
	f.last = time.Now()
}

// tell hands an event on, and wakes all tabs. One that has not taken its last events is let go: it comes back and reads
// from where it was.
func (f *feed) tell(ev *loop.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.tabs {
		if ev != nil && t.run == ev.RunID {
			select {
			case t.events <- *ev:
			default:
				close(t.lost)
				delete(f.tabs, t)
				continue
			}
		}
		select {
		case t.woken <- struct{}{}:
		default: // it knows
		}
	}
}
