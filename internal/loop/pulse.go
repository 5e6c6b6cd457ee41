package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// How long something may take before it counts as stuck: well beyond what it takes with the store away.
const (
	fetchStuck = time.Minute     // asking a queue for work, which takes a few seconds
	doorStuck  = 2 * time.Minute // until one of the messages at the door is handled; each waits for nothing but the store
	heartStuck = 30 * time.Second
	driveStuck = time.Minute // until a drive ends whose lease was lost
)

const heartLoop = "heartbeats"

// pulse is where the worker's loops stand, for [Worker.Alive].
type pulse struct {
	mu    sync.Mutex
	loops map[string]standing
}

// lose cuts a drive off that has lost its lease, and expects it to end.
func (w *Worker) lose(dr *drive) {
	dr.cut(errLeaseLost)
	if !dr.overdrawn.Swap(true) {
		w.pulse.enter(dr.name(), "has lost its lease and does not end", driveStuck)
	}
}

// name tells drives apart, also those of one run.
func (dr *drive) name() string {
	return fmt.Sprintf("run %s, wake-up %d, delivery %d", dr.id, dr.d.Seq, dr.d.Attempt)
}

// standing is what a loop is doing, since when, and for how long it may.
type standing struct {
	doing string
	since time.Time
	limit time.Duration // 0: for any time
}

func (p *pulse) enter(loop, doing string, limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loops == nil {
		p.loops = map[string]standing{}
	}
	p.loops[loop] = standing{doing, time.Now(), limit}
}

func (p *pulse) leave(loop string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.loops, loop)
}

// Alive returns an error that says what of the worker does not move any more, and will not by itself: a queue that does
// not answer, a door that lets nothing through, heartbeats that have stopped, a drive that has lost its run and does not
// end. A worker that waits for models, for people or for a store that is away is alive, and so is one that does not run.
func (w *Worker) Alive() error {
	var stuck []error
	w.pulse.mu.Lock()
	defer w.pulse.mu.Unlock()
	for name, at := range w.pulse.loops {
		if took := time.Since(at.since); at.limit > 0 && took > at.limit {
			stuck = append(stuck, fmt.Errorf("%s: %s for %s", name, at.doing, took.Round(time.Second)))
		}
	}
	slices.SortFunc(stuck, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(stuck...)
}

// Load is how busy a worker is.
type Load struct {
	InHand int // runs that it drives
	Slots  int // as many as it could

	Open  map[Status]int // runs that have not ended, of all workers, as the last sweep found them; nil: it was not this worker's
	Swept time.Time      // when that was
}

// Load returns how busy the worker is.
func (w *Worker) Load() Load {
	l := Load{Slots: w.Concurrency}
	w.mu.Lock()
	l.InHand = len(w.inHand)
	w.mu.Unlock()
	if found := w.sweeper.found.Load(); found != nil {
		l.Open, l.Swept = found.open, found.at
	}
	return l
}

// census is what a sweep found.
type census struct {
	open map[Status]int
	at   time.Time
}

// count notes how many runs are open by now.
func (s *sweeper) count(now time.Time) {
	c := census{open: map[Status]int{StatusRunning: 0, StatusWaiting: 0, StatusPaused: 0}, at: now}
	for _, run := range s.open {
		if !run.head.Status.Final() {
			c.open[run.head.Status]++
		}
	}
	s.found.Store(&c)
}
