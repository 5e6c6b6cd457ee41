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
	d     *Delivery
	id    RunID
	log   *slog.Logger
	lease *lease

	ctx  context.Context // ends when the lease is lost or the grace period is over
	cut  context.CancelCauseFunc
	stop <-chan struct{} // closed when no new step may begin

	news    chan struct{} // has an element when one of these was set, or a flight has landed
	nudged  atomic.Bool   // somebody published an order for the run; set by Hear
	doubted atomic.Bool   // somebody claimed the run; set by HearClaim

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

	limit   alarm // rings when the run's time is up
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

// take handles one wake-up and settles it. taking ends when no new step may begin, work when steps in hand are cut. A call of it
// lasts as long as the run is in hand, for thousands of runs at once, so there should be little on the stack: beyond 1.2 KB in
// all, a waiting run's stack has 8 KB in place of 4.
func (w *Worker) take(taking, work context.Context, d *Delivery) {
	w.Observer.Delivered(d)
	if dr := w.driveFor(taking, work, d); dr != nil {
		dr.ended(dr.guarded())
	}
}

// driveFor makes the drive of a wake-up. It is nil for one of no run, which is handled and settled: a job of the workers, or
// what is none of ours.
func (w *Worker) driveFor(taking, work context.Context, d *Delivery) *drive {
	log := w.Log.With(logTenant, d.Tenant, logRun, d.Run, "wake", d.Seq)
	if do := w.jobOf(taking, d); do != nil {
		w.job(work, log, d, do)
		return nil
	}
	if !ValidID(d.Tenant) || !ValidID(d.Run) {
		w.buryWake(work, log, d, "invalid_task", "the wake-up's subject names no run")
		return nil
	}
	ctx, cut := context.WithCancelCause(WithRun(work, d.RunID, ""))
	news := make(chan struct{}, 1)
	return &drive{
		w: w, d: d, id: d.RunID, log: log, lease: newLease(d), ctx: ctx, cut: cut, stop: taking.Done(),
		news: news, flights: newFlights(w.crew, news), sending: map[string]bool{},
		seen: map[string]bool{}, armed: map[string]bool{},
	}
}

// ended settles the wake-up of a drive that came to its end.
func (dr *drive) ended(err error) {
	if dr.overdrawn.Load() {
		dr.w.pulse.leave(dr.name())
	}
	dr.left(err)
	dr.w.settle(dr, err)
	dr.cut(nil)
}

// jobOf returns what is to be done for a wake-up that is a job of the workers; nil for one of a run.
func (w *Worker) jobOf(taking context.Context, d *Delivery) func(context.Context, *Delivery) error {
	switch d.Run {
	case JobSweep:
		return func(ctx context.Context, _ *Delivery) error { return w.sweep(ctx, taking.Done()) }
	case JobLearn:
		return w.learn
	case JobTask:
		return w.acceptPlanned
	case JobSum:
		return w.sumUp
	default:
		return nil
	}
}

// guarded drives the run. A panic in the fold, a strategy or a tool is a failed take-over and not the worker's end.
func (dr *drive) guarded() (err error) {
	defer func() {
		dr.w.release(dr)
		dr.limit.stop()
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

func (w *Worker) buryWake(ctx context.Context, log *slog.Logger, d *Delivery, reason, explanation string) {
	if err := w.Graveyard.Bury(ctx, *d, reason, explanation); err != nil {
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
	return isClosed(dr.stop)
}

// await waits for the first of: something in flight came back, an order was published, the run's time is up, the state
// is due to be saved, the drive is cut off.
func (dr *drive) await() error {
	dr.stepped()
	if dr.nudged.Load() || dr.doubted.Load() {
		return dr.heed()
	}
	timeUp := dr.limit.set(dr.timeLeft())
	select {
	case <-dr.news:
		return dr.heed()
	case <-timeUp:
		if left, bounded := dr.timeLeft(); !bounded || left > 0 {
			dr.limit.at = time.Time{} // it was set for an earlier time
			return nil
		}
		return dr.commit(timeUpIfRunning)
	case <-dr.ctx.Done():
		return context.Cause(dr.ctx)
	}
}

// tell wakes the drive where it waits.
func tell(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default: // it will look in any case
	}
}

// heed does what there is news of.
func (dr *drive) heed() error {
	if err := dr.heedClaim(); err != nil {
		return err
	}
	if dr.nudged.Swap(false) {
		clear(dr.seen)
		dr.peek()
	}
	return dr.land()
}

// alarm is a timer that is set anew only where its time has moved: that of a run at work hardly does from step to step.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero: it is not set
}

// alarmSlack is how much later than asked for an alarm may ring.
const alarmSlack = 50 * time.Millisecond

// set returns a channel that has an element some time before or soon after left has passed; nil where nothing is to be waited
// for. Whoever hears it looks at the clock.
func (a *alarm) set(left time.Duration, bounded bool) <-chan time.Time {
	if !bounded {
		return nil
	}
	at := time.Now().Add(left)
	switch early := at.Sub(a.at); {
	case a.timer == nil:
		a.timer = time.NewTimer(left)
	case a.at.IsZero(), early < -alarmSlack, early > time.Minute:
		a.timer.Reset(left)
	default:
		return a.timer.C
	}
	a.at = at
	return a.timer.C
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// heedClaim looks who owns the run where another worker has said that it does, before anything new is begun: whoever took
// it over begins that too.
func (dr *drive) heedClaim() error {
	if dr.doubted.Swap(false) {
		return dr.lookWhoOwns()
	}
	return nil
}

// lookWhoOwns heeds the word of another worker, which may also be that a child run has ended there.
func (dr *drive) lookWhoOwns() error {
	clear(dr.seen)
	return dr.w.persist(dr.ctx, "look who owns the run", dr.stillOwner)
}

// land takes what came back and commits it.
func (dr *drive) land() error {
	landings := dr.flights.take()
	if len(landings) > 0 {
		dr.resumed = time.Now()
	}
	for _, r := range landings {
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
