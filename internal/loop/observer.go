package loop

import (
	"context"
	"errors"
	"time"
)

// Observer is told what a worker does with runs, beyond what can be seen at its other seams: for traces and metrics. Its
// methods are called by many goroutines, by that of a drive for one run, and must not block. They may read a State that
// they are given until they return.
type Observer interface {
	// Delivered tells that a message of a queue was taken in hand.
	Delivered(d *Delivery)
	// Driving tells that the worker has claimed a run. What it returns is the context of all that it then does for the run.
	Driving(ctx context.Context, d Driving) context.Context
	// Stepped tells of one step: a result was taken, judged and committed, and the next effects are under way.
	Stepped(ctx context.Context, s Stepped)
	// Driven tells that the worker is done with a run that it drove, before the wake-up is settled.
	Driven(ctx context.Context, d Driven)
}

// Driving is the beginning of a drive.
type Driving struct {
	State   *State
	Worker  string
	Wake    uint64    // stream sequence of the wake-up
	Attempt uint64    // number of its delivery
	From    string    // the worker that had the run and did not hand it over; empty: none
	Since   time.Time // when the wake-up was taken in hand
}

// Stepped is one step of a drive.
type Stepped struct {
	Took   time.Duration // what the worker itself needed: not the model, the tools or memory
	Behind uint64        // events that the stored state does not show yet
}

// Driven is the end of a drive.
type Driven struct {
	State   *State
	Outcome DriveOutcome
	Err     error // why, where it is neither parked nor ended
}

// DriveOutcome says how a drive ended.
type DriveOutcome string

// The outcomes of a drive.
const (
	DriveEnded       DriveOutcome = "ended"        // the run has ended, and all that follows its end was done
	DriveParked      DriveOutcome = "parked"       // the run owes nothing and waits
	DriveHandedOver  DriveOutcome = "handed_over"  // on purpose, to another worker
	DriveLeaseLost   DriveOutcome = "lease_lost"   // no extension of the lease was confirmed in time
	DriveSteppedBack DriveOutcome = "stepped_back" // another worker had taken the run over
	DriveFailed      DriveOutcome = "failed"       // another attempt follows
)

// Unobserved is the Observer of a worker that nobody watches.
type Unobserved struct{}

// Delivered does nothing.
func (Unobserved) Delivered(*Delivery) {}

// Driving returns ctx.
func (Unobserved) Driving(ctx context.Context, _ Driving) context.Context { return ctx }

// Stepped does nothing.
func (Unobserved) Stepped(context.Context, Stepped) {}

// Driven does nothing.
func (Unobserved) Driven(context.Context, Driven) {}

// announce tells that the run is claimed. From here on context and log know its trace.
func (dr *drive) announce(since time.Time) {
	trace := dr.state.Trace()
	dr.log = dr.log.With(logTrace, trace.TraceID())
	dr.ctx = dr.w.Observer.Driving(WithRun(dr.ctx, dr.id, trace.Traceparent()), Driving{
		State: &dr.state, Worker: dr.w.Name, Wake: dr.d.Seq, Attempt: dr.d.Attempt, From: dr.from, Since: since,
	})
	dr.announced = true
}

// stepped tells of the time since something came back that led to a commit, when the drive has nothing to do but wait.
func (dr *drive) stepped() {
	if dr.state.N != dr.steppedN && !dr.resumed.IsZero() {
		dr.w.Observer.Stepped(dr.ctx, Stepped{Took: time.Since(dr.resumed), Behind: dr.state.N - dr.savedN})
	}
	dr.steppedN, dr.resumed = dr.state.N, time.Time{}
}

// left tells how the drive came out.
func (dr *drive) left(err error) {
	if !dr.announced {
		return
	}
	d := Driven{State: &dr.state, Err: err}
	switch {
	case err == nil && dr.state.Ended != nil:
		d.Outcome = DriveEnded
	case err == nil:
		d.Outcome = DriveParked
	case errors.Is(err, errStepAside):
		d.Outcome = DriveSteppedBack
	case errors.Is(err, errHandOver), errors.Is(err, errShutdown), errors.Is(err, ErrNewer):
		d.Outcome = DriveHandedOver
	case errors.Is(err, errLeaseLost):
		d.Outcome = DriveLeaseLost
	default:
		d.Outcome = DriveFailed
	}
	dr.w.Observer.Driven(dr.ctx, d)
}
