package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// A drive is one worker's work on one run, from a wake-up until the run owes nothing. It keeps the run in memory and
// commits one event after another, without going back to the queue. All of its fields belong to the goroutine of
// [drive.run], except where said otherwise.
type drive struct {
	w     *Worker
	d     Delivery
	id    RunID
	log   *slog.Logger
	lease *lease

	ctx  context.Context // ends when the lease is lost or the grace period is over
	cut  context.CancelCauseFunc
	stop <-chan struct{} // closed when no new step may begin

	nudged  chan struct{} // somebody published an order for the run; written by Hear
	doubted chan struct{} // somebody claimed the run; written by HearClaim

	overdrawn atomic.Bool // the lease was lost; written by heartbeats

	head     Head // as stored last, with revision
	revision uint64
	savedN   uint64
	savedAt  time.Time

	state   State
	tail    uint64 // expected last sequence of the next append
	began   uint64 // n when the drive began
	tools   Toolbox
	opening []Message // of the prompt; nil until it is needed

	flights flights
	sending map[string]bool // once calls that this drive has sent and not observed
	seen    map[string]bool // calls whose child runs this drive has found at work
	armed   map[string]bool // schedules that this drive has published for its events
	lost    int             // tokens that a call cut off by a crash may have cost, not yet journaled

	from      string    // the worker that had the run and did not hand it over
	announced bool      // the observer knows of the drive
	resumed   time.Time // when something came back last; zero while nothing has
	steppedN  uint64    // n when the drive began to wait last

	measured float64 // tokens of the last prompt by the endpoint's count, for one by ours; 0 before the first
}

// Ways in which a drive ends without having settled its run.
var (
	errStepAside = errors.New("another worker owns the run")
	errHandOver  = errors.New("the run is handed over")
)

// later is a run that can't be driven now and is to be handed back.
type later struct {
	delay time.Duration
	why   string
}

func (l later) Error() string { return l.why }

// take handles one wake-up and settles it. taking ends when no new step may begin, work when steps in hand are cut.
func (w *Worker) take(taking, work context.Context, d Delivery) {
	w.Observer.Delivered(d)
	log := w.Log.With(logTenant, d.Tenant, logRun, d.Run, "wake", d.Seq)
	switch d.Run {
	case JobSweep:
		w.job(work, log, d, w.sweep)
		return
	case JobLearn:
		w.job(work, log, d, w.learn)
		return
	case JobTask:
		w.job(work, log, d, w.acceptPlanned)
		return
	case JobSum:
		w.job(work, log, d, w.sumUp)
		return
	}
	if !ValidID(d.Tenant) || !ValidID(d.Run) {
		w.buryWake(work, log, d, "invalid_task", "the wake-up's subject names no run")
		return
	}
	ctx, cut := context.WithCancelCause(WithRun(work, d.RunID, ""))
	defer cut(nil)
	dr := &drive{
		w: w, d: d, id: d.RunID, log: log, lease: newLease(d), ctx: ctx, cut: cut, stop: taking.Done(),
		nudged: make(chan struct{}, 1), doubted: make(chan struct{}, 1), flights: newFlights(), sending: map[string]bool{},
		seen: map[string]bool{}, armed: map[string]bool{},
	}
	err := dr.guarded()
	if dr.overdrawn.Load() {
		w.pulse.leave(dr.name())
	}
	dr.left(err)
	w.settle(dr, err)
}

// guarded drives the run. A panic in the fold, a strategy or a tool is a failed take-over and not the worker's end.
func (dr *drive) guarded() (err error) {
	defer func() {
		dr.w.release(dr)
		dr.flights.cut()
		if land := dr.flights.arrived(saveKey); land != nil {
			if saveErr := land(dr); err == nil { // the hand-over needs the revision of the last write
				err = saveErr
			}
		}
	}()
	defer recovered(&err)
	since := time.Now()
	if owned, err := dr.claim(); err != nil || !owned {
		return err
	}
	dr.announce(since)
	return dr.run()
}

// settle does with the wake-up what the outcome of the drive asks for. Only the owner acks, and only once the run owes
// nothing and its state is stored; whoever is not the owner does neither ack nor nak.
func (w *Worker) settle(dr *drive, err error) {
	var wait later
	var gap *GapError
	switch {
	case err == nil:
		if err := dr.d.Settler.Ack(dr.ctx); err != nil {
			dr.log.Warn("a wake-up could not be acknowledged; it will be delivered again", "error", err)
		}
	case errors.Is(err, errStepAside):
		dr.log.Debug("another worker owns the run")
	case errors.As(err, &wait):
		dr.log.Debug("the wake-up is handed back", "why", wait.why)
		dr.giveBack(wait.delay)
	case errors.As(err, &gap):
		w.buryWake(dr.ctx, dr.log, dr.d, "journal_gap", gap.Error())
	case errors.Is(err, errHandOver), errors.Is(err, errShutdown):
		w.handOver(dr, 0)
	case errors.Is(err, ErrNewer):
		w.warnOnce("newer "+dr.id.String(), "a run was written by a newer version and is left for a newer worker",
			"tenant", dr.id.Tenant, "run", dr.id.Run, "error", err)
		w.handOver(dr, 5*time.Second)
	case errors.Is(err, errLeaseLost):
		dr.log.Warn("the lease was lost; another worker goes on with the run")
	case dr.head.Claim.Attempts > 2*poisonAt:
		w.buryWake(dr.ctx, dr.log, dr.d, string(FailPoisoned), err.Error())
	default:
		dr.log.Error("a run could not be driven; another attempt follows", "error", err, "attempts", dr.head.Claim.Attempts)
		dr.giveBack(backoff(uint64(max(dr.head.Claim.Attempts, 1))))
	}
}

// giveBack hands the wake-up back, unless its lease has passed: the queue would take the run from its next owner for the
// word of its last one.
func (dr *drive) giveBack(delay time.Duration) {
	if dr.lease.age() < dr.w.Lease {
		dr.w.giveBack(dr.log.Warn, dr.d, delay)
	}
}

// handOver marks in the state that the run was handed over on purpose, so that no attempt is counted, and then gives the
// wake-up back. Whoever loses that write does neither.
func (w *Worker) handOver(dr *drive, delay time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(dr.ctx), w.Lease/2)
	defer cancel()
	if dr.revision > 0 && !dr.head.Closed {
		h := dr.head
		if dr.state.N > 0 {
			h = dr.view()
		}
		h.Owner, h.Claim.Resting = nil, true
		if _, err := w.Heads.Save(ctx, h, dr.revision); err != nil {
			dr.log.Warn("a run could not be handed over; it goes on after the lease", "error", err)
			return
		}
	}
	dr.giveBack(delay)
}

func (w *Worker) buryWake(ctx context.Context, log *slog.Logger, d Delivery, reason, explanation string) {
	if err := w.Graveyard.Bury(ctx, d, reason, explanation); err != nil {
		log.Error("a dead letter could not be stored; the wake-up stays in the queue", "error", err)
		w.giveBack(log.Warn, d, backoff(d.Attempt))
		return
	}
	log.Error("a wake-up can't be processed and is put aside as a dead letter", "reason", reason, "error", explanation)
	if err := d.Settler.Ack(ctx); err != nil {
		log.Warn("a wake-up could not be acknowledged; it will be delivered again", "error", err)
	}
}

// hold enters the drive, which has just claimed its run, among those that get heartbeats and orders. An earlier drive of
// the same run in this worker is not its owner any more; it might not find out for as long as it wins its appends.
func (w *Worker) hold(dr *drive) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.inHand[dr.id]; before != nil && before != dr {
		before.cut(errStepAside)
	}
	w.inHand[dr.id] = dr
}

func (w *Worker) release(dr *drive) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inHand[dr.id] == dr {
		delete(w.inHand, dr.id)
	}
}

// run performs what is owed until nothing is. It returns nil when the wake-up may be acked.
func (dr *drive) run() error {
	if dr.state.Ended == nil {
		if err := dr.state.drivable(); err != nil {
			return err
		}
	}
	if err := dr.overdue(); err != nil {
		return err
	}
	fresh := true
	for {
		if dr.state.Ended != nil {
			return dr.close()
		}
		if err := dr.heedClaim(); err != nil {
			return err
		}
		duties := dr.duties(fresh)
		if dr.givesWay(duties) {
			return errHandOver
		}
		progress, err := dr.perform(duties)
		if err != nil {
			return err
		}
		fresh = false
		if progress {
			continue
		}
		unseen := dr.lookAtChildren()
		if dr.flights.empty() {
			if len(duties) > 0 || unseen {
				return errHandOver // the worker is stopping
			}
			return dr.park()
		}
		if err := dr.await(); err != nil {
			return err
		}
	}
}

// duties is what is owed now. A run that waits for its turn in its session looks once whether it has come.
func (dr *drive) duties(fresh bool) []Duty {
	s := &dr.state
	if fresh && !s.Paused && s.Ending == nil && s.Wait != nil && s.Wait.Session {
		return []Duty{Recall{}}
	}
	return s.Owed()
}

// stopping reports whether no new step may begin.
func (dr *drive) stopping() bool {
	select {
	case <-dr.stop:
		return true
	default:
		return false
	}
}

// await waits for the first of: something in flight came back, an order was published, the run's time is up, the state
// is due to be saved, the drive is cut off.
func (dr *drive) await() error {
	dr.stepped()
	var timeUp <-chan time.Time
	if left, bounded := dr.timeLeft(); bounded {
		t := time.NewTimer(left)
		defer t.Stop()
		timeUp = t.C
	}
	select {
	case <-dr.flights.landed:
		dr.resumed = time.Now()
		return dr.land()
	case <-dr.nudged:
		clear(dr.seen)
		dr.peek()
		return nil
	case <-dr.doubted:
		return dr.lookWhoOwns()
	case <-timeUp:
		return dr.commit(timeUpIfRunning)
	case <-dr.ctx.Done():
		return context.Cause(dr.ctx)
	}
}

// heedClaim looks who owns the run where another worker has said that it does, before anything new is begun: whoever took
// it over begins that too.
func (dr *drive) heedClaim() error {
	select {
	case <-dr.doubted:
		return dr.lookWhoOwns()
	default:
		return nil
	}
}

// lookWhoOwns heeds the word of another worker, which may also be that a child run has ended there.
func (dr *drive) lookWhoOwns() error {
	clear(dr.seen)
	return dr.w.persist(dr.ctx, "look who owns the run", dr.stillOwner)
}

// land takes what came back and commits it.
func (dr *drive) land() error {
	for _, r := range dr.flights.take() {
		if err := r(dr); err != nil {
			return err
		}
	}
	return nil
}

// timeLeft is how long the run may still work.
func (dr *drive) timeLeft() (left time.Duration, bounded bool) {
	s := &dr.state
	if s.Task.Limits.Timeout <= 0 || s.Ending != nil || s.Facts == nil {
		return 0, false
	}
	left = s.timeout() - s.Worked
	if s.working && s.lastByDriver {
		left -= dr.w.Now().Sub(s.Last)
	}
	return max(left, 0), true
}

// overdue records deadlines that have passed by this worker's clock, before anything else is done.
func (dr *drive) overdue() error {
	if left, bounded := dr.timeLeft(); bounded && left == 0 && len(dr.state.Owed()) > 0 {
		if err := dr.commit(timeUpIfRunning); err != nil {
			return err
		}
	}
	for {
		open := dr.state.Deadlines()
		if len(open) == 0 || dr.w.Now().Before(open[0].At) {
			return nil
		}
		passed, before := open[0], dr.state.N
		if err := dr.commit(func(s *State) Data {
			if !slices.Contains(s.Deadlines(), passed) {
				return nil
			}
			return passed.Timeout
		}); err != nil {
			return err
		}
		if dr.state.N == before {
			return fmt.Errorf("the deadline of %s at %s can't be recorded", dr.id, passed.At)
		}
	}
}

func timeUpIfRunning(s *State) Data {
	if s.Ending != nil || s.Ended != nil {
		return nil
	}
	return Timeout{What: TimeoutRun}
}

// peek looks into the journal for the order that was published, which its door is about to append.
func (dr *drive) peek() {
	journal, id, tail := dr.w.Journal, dr.id, dr.tail
	dr.flights.start(dr.ctx, "peek", func(ctx context.Context) landing {
		for delay := 2 * time.Millisecond; delay < time.Second && ctx.Err() == nil; delay *= 2 {
			sleep(ctx, delay)
			if page, err := journal.Read(ctx, id, tail); err == nil && page.Last > tail {
				return (*drive).reload
			}
		}
		return func(*drive) error { return nil }
	})
}
