package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// Worker takes messages from both queues and moves runs forward. It is stateless between messages: any number of them
// may share the queues, and any may die at any moment.
type Worker struct {
	Config
	source string // URI reference in events

	mu     sync.Mutex
	inHand map[RunID]*drive
	slots  slots
	queues queues

	texts    *toolTexts // that are made of sets of tools
	warnings warned
	sweeper  sweeper
	shelf    shelf
	boxes    toolboxes
	pulse    pulse
	fresh    fresh
	crew     *crew // of the goroutines of deliveries and flights
}

var (
	errLeaseLost = errors.New("the lease on the wake-up was lost")
	errShutdown  = errors.New("the worker is shutting down")
)

// NewWorker returns a worker that does nothing until Run.
func NewWorker(c Config) (*Worker, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Worker{
		Config: c, source: "/" + c.Prefix + "/worker/" + c.Name, inHand: map[RunID]*drive{}, texts: &toolTexts{},
		slots: newSlots(c.MaxRunning), crew: newCrew(),
	}, nil
}

// Run takes work until ctx ends. Then it takes none, finishes the steps in hand, cuts them off after the grace period,
// hands every run over that still owes something, and returns nil.
func (w *Worker) Run(ctx context.Context) error {
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var pulls, beats sync.WaitGroup
	beats.Go(func() { w.heartbeats(work) })
	beats.Go(func() { w.armSweep(ctx) })
	beats.Go(func() {
		offered, _ := w.Tools.Offer(nil)
		w.pin(ctx, offered) // so that no task has to wait for it
	})
	pulls.Go(func() {
		doors := puller{w: w, name: "inbox", full: doorStuck, source: w.Inbox, free: newFree(w.Doors), handle: func(d *Delivery) { w.answerDoor(work, *d) }}
		doors.run(ctx)
	})
	pulls.Go(func() {
		drives := puller{w: w, name: "wake-ups", source: w.WakeQueue, free: newFree(w.Concurrency), handle: w.wakeHandler(ctx, work)}
		drives.lanes, _ = w.WakeQueue.(Lanes)
		drives.run(ctx)
	})
	<-ctx.Done()
	grace := time.AfterFunc(w.Grace, func() { cut(errShutdown) })
	defer grace.Stop()
	pulls.Wait()
	cut(nil)
	beats.Wait()
	w.crew.dismiss()
	return nil
}

// pause sleeps for 50 ms, doubling with every failure up to the longest, with jitter, or until ctx ends.
func pause(ctx context.Context, failures int, longest time.Duration) {
	d := min(50*time.Millisecond<<min(failures, 10), longest)
	sleep(ctx, d/2+rand.N(d/2))
}

// longestPause is how long work may lie still before it is tried again what failed: so much shorter than a lease that an
// outage costs little more than it lasts.
func (w *Worker) longestPause() time.Duration { return min(w.Lease/4, 5*time.Second) }

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// persist calls f until it succeeds or ctx ends, and returns the context's cause then. What the engine has to write is
// never given up for a fault of the store: either it can be written, or the lease ends and another worker does it.
func (w *Worker) persist(ctx context.Context, what string, f func() error) error {
	for failures := 0; ; failures++ {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errStepAside) || errors.Is(err, ErrNewer) || errors.Is(err, ErrRefused) || isGap(err) {
			return err
		}
		if failures%10 == 0 {
			LogFor(ctx, w.Log).Warn("the store does not take or give what it must; trying again", "what", what, "error", err)
		}
		pause(ctx, failures, w.longestPause())
	}
}

func isGap(err error) bool {
	var gap *GapError
	return errors.As(err, &gap)
}

var errPanic = errors.New("panic")

// recovered turns a panic into an error with its stack. To be called as: defer recovered(&err).
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
	}
}

// Hear tells the worker that an order for a run was published, so that a call in hand can be cut off before the next
// append finds out.
func (w *Worker) Hear(id RunID) {
	w.mu.Lock()
	dr := w.inHand[id]
	w.mu.Unlock()
	if dr == nil {
		return
	}
	dr.nudged.Store(true)
	tell(dr.news)
}

// HearClaim tells the worker that another one has claimed a run. The queue may give a wake-up to another worker although
// its owner is well, after a restart of the server for one; an owner that wins all its appends would not find out.
func (w *Worker) HearClaim(id RunID, worker string) {
	w.mu.Lock()
	dr := w.inHand[id]
	w.mu.Unlock()
	if dr == nil || worker == w.Name {
		return
	}
	dr.doubted.Store(true)
	tell(dr.news)
}

// heartbeats extends the lease of every run in hand at a third of it, and cuts off those whose last confirmed extension
// is older than the lease by this process's own clock.
func (w *Worker) heartbeats(ctx context.Context) {
	tick := time.NewTicker(max(w.Lease/12, time.Millisecond))
	defer tick.Stop()
	var beats sync.WaitGroup
	defer beats.Wait()
	defer w.pulse.leave(heartLoop)
	for {
		w.pulse.enter(heartLoop, "no heartbeat", heartStuck)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		for _, dr := range w.inHand {
			switch age := dr.lease.age(); {
			case age > w.Lease:
				w.lose(dr)
			case age > w.Lease/3 && dr.lease.begin():
				beats.Go(func() { dr.lease.extend(ctx, w.Lease/3) })
			}
		}
		w.mu.Unlock()
	}
}
