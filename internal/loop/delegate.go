package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// childResult bounds what a child run's answer takes of the run above, in bytes of text. The whole of a longer one is kept
// beside it, as with the results of tools.
const childResult = 8 << 10

// delegate writes a child run down, or reads what came of one that has ended.
func (dr *drive) delegate(d Delegate) error {
	if dr.flights.has(d.Key()) || dr.stopping() {
		return nil
	}
	if d.Child != nil {
		dr.lookAt(d.OpenCall)
		return nil
	}
	inv, tools := dr.invocation(d.OpenCall), dr.w.Tools
	dr.flights.start(dr.ctx, d.Key(), func(ctx context.Context) landing {
		if problems := tools.Guard(ctx, inv); len(problems) > 0 {
			if ctx.Err() != nil {
				return func(*drive) error { return nil }
			}
			return func(dr *drive) error { return dr.observe(d.OpenCall, guarded(problems), 0) }
		}
		return func(dr *drive) error {
			return dr.commit(func(s *State) Data {
				if c := s.call(d.Call); s.Paused || c == nil || c.Child != nil || !owes(s, d) {
					return nil
				}
				return s.writeDown(d.OpenCall)
			})
		}
	})
	return nil
}

// lookAtChildren begins the child runs that are written down, if nobody has, and looks whether they have ended: each once
// in a drive, and again when word comes that something has happened. It reports whether one was not looked at, so that the
// run must not be parked.
func (dr *drive) lookAtChildren() (unseen bool) {
	if dr.state.Ending != nil || dr.state.Ended != nil {
		return false
	}
	for _, c := range dr.state.openChildren() {
		if dr.seen[c.Call] {
			continue
		}
		unseen = true
		if !dr.flights.has(Delegate{c}.Key()) && !dr.stopping() {
			dr.lookAt(c)
		}
	}
	return unseen
}

func (dr *drive) lookAt(c OpenCall) {
	first, problem := dr.state.firstOfChild(c)
	id, key := RunID{Tenant: dr.id.Tenant, Run: c.Child.Run}, dr.invocation(c).Key()
	dr.flights.start(dr.ctx, Delegate{c}.Key(), func(ctx context.Context) landing {
		var child lookedAt
		err := dr.w.persist(ctx, "look at a child run", func() (err error) {
			if problem != "" {
				child = lookedAt{ended: StatusFailed, text: problem}
				return nil
			}
			child, err = dr.w.lookAtChild(ctx, id, first, c.Child.Since)
			return err
		})
		if isGap(err) {
			child, err = lookedAt{ended: StatusFailed, text: "Its journal is broken."}, nil
		}
		if err != nil {
			return failing(err)
		}
		blob := ""
		if len(child.text) > childResult {
			blob = key
			if err := dr.w.Blobs.PutBlob(context.WithoutCancel(ctx), blob, []byte(child.text)); err != nil {
				dr.log.Warn("the answer of a child run could not be stored whole", "call", c.Call, "error", err)
				blob = ""
			}
		}
		return func(dr *drive) error { return dr.sawChild(c, child, blob) }
	})
}

// sawChild records that a child run has ended, and what came of it. What is known is recorded also where the run above is
// paused: it may be paused for longer than the child is kept.
func (dr *drive) sawChild(c OpenCall, child lookedAt, blob string) error {
	if child.ended == "" {
		dr.seen[c.Call] = true
		return dr.pauseToo(c, child)
	}
	if err := dr.commit(func(s *State) Data {
		if open := s.call(c.Call); open == nil || open.Child == nil || open.Child.Ended != "" || s.Ending != nil {
			return nil
		}
		return Child{Call: c.Call, Run: c.Child.Run, Status: child.ended, Usage: child.usage, Lost: child.lost}
	}); err != nil {
		return err
	}
	out := Outcome{Status: ObservedOK}
	switch child.ended {
	case StatusDone:
	case StatusCancelled:
		out.Status, child.text = ObservedCancelled, "The child run "+c.Child.Run+" was cancelled. "+child.text
	default:
		out.Status, child.text = ObservedError, "The child run "+c.Child.Run+" failed. "+child.text
	}
	out.Truncated = len(child.text) > childResult
	text, err := encodeJSON(clip(child.text, childResult))
	if err != nil {
		return fmt.Errorf("encode the answer of %s: %w", c.Child.Run, err)
	}
	out.Result = text
	return dr.commit(func(s *State) Data {
		if s.call(c.Call) == nil || s.Ending != nil {
			return nil
		}
		return Observation{
			Call: c.Call, Tool: c.Tool, Status: out.Status, Result: out.Result, Truncated: out.Truncated, Blob: blob, MS: child.ms,
		}
	})
}

// pauseToo pauses a child run that was begun while the run above was being paused: the door that took the order may have
// looked for it too early.
func (dr *drive) pauseToo(c OpenCall, child lookedAt) error {
	if child.begun {
		if err := dr.reload(); err != nil {
			return err
		}
	}
	if !dr.state.Paused || child.paused {
		return nil
	}
	return dr.orderChild(c.Child.Run, Control{Op: OpPause, By: "run " + dr.id.Run})
}

// stopChild cancels a child run. An order that comes before the child ends it all the same.
func (dr *drive) stopChild(run string) error {
	return dr.orderChild(run, Control{Op: OpCancel, Reason: "the run above it has ended or been cancelled", By: "run " + dr.id.Run})
}

func (dr *drive) orderChild(run string, c Control) error {
	return dr.w.persist(dr.ctx, "send an order to a child run", func() error {
		return dr.w.order(dr.ctx, RunID{Tenant: dr.id.Tenant, Run: run}, c)
	})
}

func (w *Worker) order(ctx context.Context, id RunID, c Control) error {
	order, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode an order: %w", err)
	}
	if err := w.Orders.Order(ctx, id, order); err != nil {
		return fmt.Errorf("send %s to run %s: %w", c.Op, id, err)
	}
	return nil
}

// passDown hands pause and resume on to the child runs that are at work. One that has not begun yet is paused by whoever
// begins it.
func (w *Worker) passDown(ctx context.Context, id RunID, c Control) error {
	l, err := w.load(ctx, id)
	if err != nil {
		return err
	}
	for _, open := range l.state.openChildren() {
		child := RunID{Tenant: id.Tenant, Run: open.Child.Run}
		_, _, err := w.Heads.Load(ctx, child)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for run %s: %w", child, err)
		}
		if err := w.order(ctx, child, c); err != nil {
			return err
		}
	}
	return nil
}

// wakeParent wakes the run above an ended child run, and sends word to whoever is driving it.
func (w *Worker) wakeParent(ctx context.Context, s *State) error {
	parent := RunID{Tenant: s.Tenant, Run: s.Parent}
	if err := w.Wakes.Wake(ctx, parent, fmt.Sprintf("%s/child/%s/%d", parent, s.Run, s.Seq), Wake{}); err != nil {
		return fmt.Errorf("wake %s, the run above: %w", parent, err)
	}
	w.Hear(parent)
	w.Wakes.Claimed(parent, w.Name)
	return nil
}

// lookedAt is a child run as the run above finds it.
type lookedAt struct {
	begun  bool // just now, by whoever looked
	paused bool
	ended  Status // empty while it is at work
	text   string // the answer, or why there is none
	usage  *Usage
	lost   int
	ms     int64 // from its first event to its last
}

// lookAtChild begins the child run where there is none, with its first event, and says where it stands. Whether it has
// ended only its journal can say: it wakes the run above before its final state is stored.
func (w *Worker) lookAtChild(ctx context.Context, id RunID, first Accepted, since time.Time) (lookedAt, error) {
	head, _, err := w.Heads.Load(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return lookedAt{}, fmt.Errorf("load the state of %s: %w", id, err)
	}
	if err == nil && head.N > 1 && head.Status != "" && !head.Status.Final() {
		page, err := w.Journal.Read(ctx, id, head.Seq-1)
		if err != nil {
			return lookedAt{}, fmt.Errorf("read the journal of %s: %w", id, err)
		}
		if n := len(page.Events); n > 0 && !page.Events[n-1].Final() {
			return lookedAt{paused: head.Status == StatusPaused}, nil
		}
	}
	l, err := w.load(ctx, id)
	if err != nil {
		return lookedAt{}, err
	}
	if l.state.N == 0 {
		return w.beginChild(ctx, l, first, since)
	}
	return w.childStands(ctx, l, first)
}

// beginChild stores the first event of a child run and publishes its wake-up.
func (w *Worker) beginChild(ctx context.Context, l loaded, first Accepted, since time.Time) (lookedAt, error) {
	if w.Now().Sub(since) > w.Keep {
		return lookedAt{ended: StatusFailed, text: "What became of it is not known any more: its record has expired."}, nil
	}
	e := w.event(l.state.RunID, 1, first)
	e.Metadata = first.Task.Metadata
	seq, err := w.Journal.Append(ctx, e, l.tail)
	if err != nil {
		return lookedAt{}, fmt.Errorf("store the first event of child run %s: %w", e.RunID, err)
	}
	e.Seq = seq
	if err := w.wakeFor(ctx, e, loaded{}); err != nil {
		return lookedAt{}, err
	}
	return lookedAt{begun: true}, nil
}

// childStands says where a child run stands that has a journal. One that nobody has claimed yet is woken again: whoever
// stored its first event may have been stopped before that.
func (w *Worker) childStands(ctx context.Context, l loaded, first Accepted) (lookedAt, error) {
	s := &l.state
	is, accepted := l.events[0].Data.(Accepted)
	switch {
	case !accepted:
		return lookedAt{ended: StatusCancelled, text: "It was cancelled before it began."}, nil
	case is.Parent != first.Parent || is.ParentCall != first.ParentCall:
		return lookedAt{ended: StatusFailed, text: "Another run has its id."}, nil
	case s.Ended == nil:
		if s.N > 1 || l.head.Owner != nil {
			return lookedAt{paused: s.Paused}, nil
		}
		return lookedAt{paused: s.Paused, begun: true}, w.wakeFor(ctx, l.events[0], l)
	}
	usage := s.Usage
	looked := lookedAt{ended: s.Status(), usage: &usage, lost: s.Lost, ms: s.Last.Sub(s.Began).Milliseconds()}
	switch d := s.Ended.(type) {
	case Answer:
		looked.text = d.Answer
	case Failed:
		looked.text = fmt.Sprintf("Its reason is %s: %s", d.Reason, d.Message)
	case Cancelled:
		looked.text = d.Reason
	default:
		return lookedAt{}, fmt.Errorf("run %s ended in a %s", s.RunID, l.events[len(l.events)-1].Type())
	}
	return looked, nil
}
