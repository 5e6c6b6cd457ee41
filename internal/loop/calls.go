package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// invocation is the call as it goes out.
func (dr *drive) invocation(c OpenCall) Invocation {
	t, _ := dr.state.offered(c.Tool)
	return Invocation{
		Run: dr.id, User: dr.state.Task.User, Call: c.Call, Tool: c.Tool, Digest: t.Digest, Arguments: c.Arguments, Checked: true, Vars: dr.state.Task.Vars,
		Results: earlier(dr.state.Results),
	}
}

// earlier returns the results so far by call, for a guard to compare with. The list only grows, so what it was stays as it was
// while the call runs.
func earlier(results []CallResult) func() map[string]json.RawMessage {
	return func() map[string]json.RawMessage {
		byCall := make(map[string]json.RawMessage, len(results))
		for _, r := range results {
			byCall[r.Call] = r.Result
		}
		return byCall
	}
}

// runCall runs a tool whose repeat is harmless right away. A once tool is guarded first, then written down as started,
// and only then sent.
func (dr *drive) runCall(d RunCall) error {
	key := d.Key()
	if dr.flights.has(key) || dr.stopping() {
		return nil
	}
	inv := dr.invocation(d.OpenCall)
	tools := dr.w.Tools
	dr.flights.start(dr.ctx, key, func(ctx context.Context) landing {
		if problems := tools.Guard(ctx, inv); len(problems) > 0 {
			if ctx.Err() != nil {
				return func(*drive) error { return nil }
			}
			return func(dr *drive) error { return dr.observe(d.OpenCall, guarded(problems), 0) }
		}
		if d.Effect == EffectOnce {
			return func(dr *drive) error { return dr.launch(d.OpenCall, inv) }
		}
		return dr.send(ctx, d.OpenCall, inv)
	})
	return nil
}

func guarded(problems []string) Outcome {
	text, err := json.Marshal("The call was checked before it was run and was not let through: " + strings.Join(problems, "; "))
	if err != nil {
		text = []byte(`"The call was not let through."`)
	}
	return Outcome{Status: ObservedError, Result: text}
}

// launch writes down that a once call is about to be sent, makes sure that this worker can still own the run by its own
// clock, and sends it. The moment before started was appended must be younger than the lease, and so must the last
// confirmed heartbeat: a heartbeat confirmed late proves nothing.
func (dr *drive) launch(c OpenCall, inv Invocation) error {
	var moment time.Time
	stored, err := dr.commitEvent(func(s *State) Data {
		open := s.call(c.Call)
		if s.Ending != nil || open == nil || !open.sameStart(c) {
			return nil // ended, or started by another worker meanwhile: what is known of it does not count any more
		}
		moment = time.Now()
		return Started{Call: c.Call}
	})
	if err != nil || !stored {
		return err
	}
	if time.Since(moment) > dr.w.Lease || dr.lease.age() > dr.w.Lease {
		return errLeaseLost
	}
	if dr.state.Ending != nil || dr.state.call(c.Call) == nil {
		return nil // events that followed ours have ended the run
	}
	dr.sending[c.Call] = true
	dr.flights.start(dr.ctx, RunCall{c}.Key(), func(ctx context.Context) landing { return dr.send(ctx, c, inv) })
	return nil
}

// sameStart reports whether the call has been started as often as it had when other was looked at.
func (c *OpenCall) sameStart(other OpenCall) bool {
	return c.Started == other.Started && c.StartedAt.Equal(other.StartedAt) && c.Overdue == other.Overdue
}

// send calls the tool. It runs in a flight and must not touch the drive's state.
func (dr *drive) send(ctx context.Context, c OpenCall, inv Invocation) landing {
	began := time.Now()
	out := dr.w.Tools.Call(ctx, inv)
	took := time.Since(began)
	blob := ""
	if out.Truncated && len(out.Full) > 0 {
		blob = inv.Key()
		if err := dr.w.Blobs.PutBlob(context.WithoutCancel(ctx), blob, out.Full); err != nil {
			dr.log.Warn("a large result could not be stored whole", "call", c.Call, "error", err)
			blob = ""
		}
	}
	return func(dr *drive) error {
		switch out.Status {
		case ObservedCancelled:
			return dr.cutOff()
		case ObservedUnknown:
			delete(dr.sending, c.Call) // as after a crash: it is started, and has to be reconciled
			return nil
		case ObservedOK, ObservedError, ObservedSkipped:
		}
		return dr.observeWith(c, out, took, blob)
	}
}

// cutOff handles a call that was cancelled: with its run, which closes it, or with the drive, which another one follows.
func (dr *drive) cutOff() error {
	if dr.ctx.Err() != nil {
		return context.Cause(dr.ctx)
	}
	if dr.state.Ending == nil {
		return errors.New("a tool says that it was cancelled, and nobody cancelled it")
	}
	return nil
}

func (dr *drive) observe(c OpenCall, out Outcome, took time.Duration) error {
	return dr.observeWith(c, out, took, "")
}

func (dr *drive) observeWith(c OpenCall, out Outcome, took time.Duration, blob string) error {
	delete(dr.sending, c.Call)
	return dr.commit(func(s *State) Data {
		if s.call(c.Call) == nil {
			return nil
		}
		return Observation{
			Call: c.Call, Tool: c.Tool, Status: out.Status, Result: out.Result, Truncated: out.Truncated, Blob: blob,
			MS: took.Milliseconds(),
		}
	})
}

// awaitOutcome lets the time pass in which a call that another worker started may still be under way: the lease, for
// that worker to find out that it lost the run, and the tool's timeout.
func (dr *drive) awaitOutcome(d AwaitOutcome) error {
	if dr.sending[d.Call] {
		return nil // this drive has it in hand
	}
	patience := dr.w.Lease
	if err := dr.equip(); err != nil {
		return err
	}
	if spec, known := dr.tools.Spec(d.Tool); known {
		patience += spec.Timeout
	}
	return dr.commitScheduled(waitSchedule, func() time.Time { return dr.w.Now().Add(patience) },
		func(s *State, until time.Time) Data {
			if !owes(s, d) {
				return nil
			}
			return Wait{
				Until: until, Call: d.Call,
				Why: fmt.Sprintf("call %s of %s was started by a worker that is gone; it may still be under way", d.Call, d.Tool),
			}
		})
}

// reconcile asks what became of a started call: done is its observation, not_done starts it anew, anything else is for a
// person to find out.
func (dr *drive) reconcile(d Reconcile) error {
	if dr.flights.has(d.Key()) || dr.sending[d.Call] || dr.stopping() {
		return nil
	}
	inv := dr.invocation(d.OpenCall)
	tools := dr.w.Tools
	dr.flights.start(dr.ctx, d.Key(), func(ctx context.Context) landing {
		r := tools.Reconcile(ctx, inv, d.StartedAt)
		return func(dr *drive) error {
			switch r.Outcome {
			case "done":
				return dr.observe(d.OpenCall, Outcome{Status: ObservedOK, Result: orNull(r.Result)}, 0)
			case "not_done":
				return dr.launch(d.OpenCall, inv)
			default:
				text := []byte(`"The call was sent and the worker stopped; whether it took effect is not known."`)
				return dr.observe(d.OpenCall, Outcome{Status: ObservedUnknown, Result: text}, 0)
			}
		}
	})
	return nil
}

func orNull(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage("null")
	}
	return v
}
