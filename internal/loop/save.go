package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ratchet/internal/plan"
)

// saveEvery is how often the state of a working run is stored, without waiting for it.
const saveEvery = time.Second

// Sizes in bytes of texts in the stored state, which must stay small however long the run.
const (
	headText   = 1 << 10
	headStep   = 200
	headResult = 300
	headSteps  = 24
)

// view is the run's state as it is stored.
func (dr *drive) view() Head {
	h := ViewOf(&dr.state)
	h.Owner, h.Claim = dr.head.Owner, dr.head.Claim
	if h.First == 0 {
		h.First = dr.head.First
	}
	return h
}

// ViewOf returns the stored form of a state, without owner and claim.
func ViewOf(s *State) Head {
	h := Head{
		V: HeadVersion, Run: s.Run, Tenant: s.Tenant, Status: s.Status(), N: s.N, Seq: s.Seq, First: s.First,
		Strategy: s.Task.Strategy, Goal: clip(s.Task.Goal, headText), Session: s.Task.Session, User: s.Task.User,
		Model: s.Task.Model, Plan: clipPlan(s.Plan), Question: clipQuestion(s.Question), Wait: s.Wait, Turns: s.Turns,
		Rejections: s.Rejections, Usage: s.Usage, Lost: s.Lost, Started: s.Began, Updated: s.Last, Metadata: s.Metadata(),
		Parent: s.Parent,
	}
	for _, c := range s.openChildren() {
		h.Children = append(h.Children, c.Child.Run)
	}
	switch d := s.Ended.(type) {
	case Answer:
		h.Answer = clip(d.Answer, headText)
	case Failed:
		h.Reason, h.Message = d.Reason, clip(d.Message, headText)
	case Cancelled:
		h.Message = clip(d.Reason, headText)
	default: // it has not ended
	}
	return h
}

func clipPlan(p plan.Plan) plan.Plan {
	out := make(plan.Plan, 0, min(len(p), headSteps))
	for _, s := range p[:min(len(p), headSteps)] {
		out = append(out, plan.Step{
			Step: clip(s.Step, headStep), Status: s.Status, Result: plan.Result(clip(string(s.Result), headResult)),
		})
	}
	return out
}

// clipQuestion keeps what is needed to answer the question; arguments too large for the state are in the journal.
func clipQuestion(q *Question) *Question {
	if q == nil {
		return nil
	}
	c := *q
	c.Text = clip(c.Text, 2*headText)
	if len(c.Arguments) > 2*headText {
		c.Arguments = nil
	}
	if len(c.AnswerSchema) > 2*headText {
		c.AnswerSchema = nil
	}
	return &c
}

// save stores the state and waits for it. Who loses the write to another owner steps aside.
func (dr *drive) save(h Head) error {
	return dr.w.persist(dr.ctx, "store the state", func() error {
		revision, err := dr.w.Heads.Save(dr.ctx, h, dr.revision)
		if err == nil {
			dr.stored(h, revision)
			return nil
		}
		stored, revision, loadErr := dr.w.Heads.Load(dr.ctx, dr.id)
		switch {
		case errors.Is(loadErr, ErrNotFound):
			return dr.gone(err)
		case loadErr != nil:
			return fmt.Errorf("%w, and then: %w", err, loadErr)
		case sameWrite(stored, h):
			dr.stored(h, revision) // the write whose answer was lost
			return nil
		case stored.Owner == nil || *stored.Owner != *dr.owner():
			return errStepAside
		default:
			dr.revision = revision
			return err
		}
	})
}

// gone handles a state that was deleted: with its run, which has expired, or behind our back. No state is ever made for
// an empty journal.
func (dr *drive) gone(cause error) error {
	page, err := dr.w.Journal.Read(dr.ctx, dr.id, max(dr.state.First, 1)-1)
	if err != nil {
		return fmt.Errorf("%w, and then: %w", cause, err)
	}
	if len(page.Events) == 0 {
		return errStepAside
	}
	dr.revision = 0
	return cause
}

func sameWrite(a, b Head) bool {
	sameOwner := (a.Owner == nil && b.Owner == nil) || (a.Owner != nil && b.Owner != nil && *a.Owner == *b.Owner)
	return sameOwner && a.N == b.N && a.Claim == b.Claim && a.Closed == b.Closed && a.Status == b.Status
}

func (dr *drive) stored(h Head, revision uint64) {
	dr.head, dr.revision, dr.savedN, dr.savedAt = h, revision, h.N, time.Now()
}

const saveKey = "save"

// saveSoon stores the state on the side if it is due. At most one such write is under way.
func (dr *drive) saveSoon() {
	if dr.state.N == dr.savedN || time.Since(dr.savedAt) < saveEvery || dr.flights.has(saveKey) {
		return
	}
	h, revision, heads := dr.view(), dr.revision, dr.w.Heads
	timeout := dr.w.Lease / 2
	dr.savedAt = time.Now()
	dr.flights.start(context.WithoutCancel(dr.ctx), saveKey, func(ctx context.Context) landing {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		revision, err := heads.Save(ctx, h, revision)
		return func(dr *drive) error {
			if err == nil {
				dr.stored(h, revision)
				return nil
			}
			dr.log.Debug("the state could not be stored on the side", "error", err)
			return dr.recheck()
		}
	})
}

// recheck reads the stored state after a lost write: another owner means stepping aside, else its revision counts.
func (dr *drive) recheck() error {
	head, revision, err := dr.w.Heads.Load(dr.ctx, dr.id)
	if errors.Is(err, ErrNotFound) {
		return dr.showAgain()
	}
	if err != nil {
		return nil // the next write tries again
	}
	if head.Owner == nil || *head.Owner != *dr.owner() {
		return errStepAside
	}
	dr.head, dr.revision = head, revision
	return nil
}

// settleSave waits for a write on the side, so that the next one has its revision.
func (dr *drive) settleSave() error {
	for dr.flights.has(saveKey) {
		select {
		case <-dr.news:
			if err := dr.land(); err != nil {
				return err
			}
		case <-dr.ctx.Done():
			return context.Cause(dr.ctx)
		}
	}
	return nil
}

// park stores the state of a run that owes nothing. After it the wake-up may be acked.
func (dr *drive) park() error {
	if err := dr.settleSave(); err != nil {
		return err
	}
	if err := dr.rearm(); err != nil {
		return err
	}
	h := dr.view()
	h.Owner, h.Claim = nil, Claim{N: dr.state.N, Resting: true}
	return dr.save(h)
}

// rearm publishes the schedules again that this drive has not published itself: its wake-up may have been one of them,
// fired early, or an event may be another worker's that was thought gone.
func (dr *drive) rearm() error {
	for _, d := range dr.state.Deadlines() {
		if dr.armed[d.Schedule] {
			continue
		}
		if err := dr.w.persist(dr.ctx, "publish a schedule again", func() error {
			return dr.schedule(dr.ctx, d.Schedule, d.At)
		}); err != nil {
			return err
		}
	}
	return nil
}
