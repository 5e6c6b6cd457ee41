package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// poisonAt is the take-over without progress, counted from 1, that ends a run as poisoned.
const poisonAt = 5

// ownerBusy is the delay after which a wake-up is looked at again while another one's owner drives the run.
const ownerBusy = 300 * time.Millisecond

// claim makes this worker the run's owner by compare-and-set and folds the run's journal. Not owned without an error
// means that there is nothing to drive: the run does not exist, or has ended and everything after its end was done.
func (dr *drive) claim() (owned bool, err error) {
	if dr.d.Attempt == 1 {
		if owned, err := dr.claimFresh(); owned || err != nil {
			return owned, err
		}
	}
	for {
		owned, err := dr.tryClaim()
		if errors.Is(err, ErrConflict) {
			continue
		}
		return owned, err
	}
}

// claimFresh claims a run that no worker has seen yet, from the event in its first wake-up, without a read.
func (dr *drive) claimFresh() (claimed bool, err error) {
	first, known := dr.w.fresh.take(dr.id)
	if !known {
		first, known = dr.firstEvent()
	}
	if !known {
		return false, nil
	}
	e := first.event
	dr.state, dr.tail = Step(State{RunID: dr.id}, e), e.Seq
	dr.head = Head{Claim: Claim{N: 1}, Owner: dr.owner()}
	h := dr.view()
	revision, err := dr.w.Heads.Save(dr.ctx, h, first.revision)
	if errors.Is(err, ErrConflict) {
		dr.state, dr.head = State{}, Head{}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", dr.id, err)
	}
	dr.claimed(h, revision)
	return true, nil
}

// firstEvent reads the event in the wake-up; known is false for a wake-up without one: a schedule's or another event's.
func (dr *drive) firstEvent() (first firstEvent, known bool) {
	var wake Wake
	if json.Unmarshal(dr.d.Body, &wake) != nil || len(wake.Event) == 0 || wake.Seq == 0 || wake.Revision == 0 {
		return firstEvent{}, false // the state is read
	}
	e, err := DecodeEvent(wake.Event)
	if err != nil || e.RunID != dr.id || e.N != 1 {
		return firstEvent{}, false // the journal is read instead
	}
	e.Seq = wake.Seq
	return firstEvent{e, wake.Revision}, true
}

func (dr *drive) owner() *Owner {
	return &Owner{Worker: dr.w.Name, Wake: dr.d.Seq, Delivery: dr.d.Attempt}
}

func (dr *drive) claimed(h Head, revision uint64) {
	dr.head, dr.revision = h, revision
	dr.savedN, dr.savedAt = h.N, time.Now()
	dr.began = dr.state.N
	dr.d.Header, dr.d.Body = nil, nil // which the queue keeps, and nobody here needs any more
	dr.w.hold(dr)
}

// tryClaim reads the stored state and claims the run where that is allowed. ErrConflict means: look again.
func (dr *drive) tryClaim() (owned bool, err error) {
	head, revision, err := dr.w.Heads.Load(dr.ctx, dr.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return dr.claimUnknown()
	case err != nil:
		return false, fmt.Errorf("load the state of %s: %w", dr.id, err)
	case head.Closed:
		return false, dr.meetClosed(head, revision)
	case head.Unreadable:
		dr.log.Warn("the stored state of a run is not one of ours; it is made anew from the journal")
		return dr.claimStored(Head{}, revision)
	}
	if err := dr.mayClaim(head.Owner); err != nil {
		return false, err
	}
	return dr.claimStored(head, revision)
}

// mayClaim says whether the run may be taken from its owner: the newest delivery of a wake-up owns, and a different
// wake-up has to wait until the owner's message is gone. The owner may already have looked for the last time, so
// acking ours here would lose the run.
func (dr *drive) mayClaim(owner *Owner) error {
	switch {
	case owner == nil:
		return nil
	case owner.Wake == dr.d.Seq && owner.Delivery >= dr.d.Attempt:
		return errStepAside
	case owner.Wake == dr.d.Seq:
		return nil
	}
	pending, err := dr.w.Wakes.Pending(dr.ctx, owner.Wake)
	if err != nil {
		return fmt.Errorf("look for the wake-up of %s's owner: %w", dr.id, err)
	}
	if pending {
		dr.w.Hear(dr.id)
		return later{delay: ownerBusy, why: "the run is being driven with another wake-up"}
	}
	return nil
}

// claimUnknown claims a run that has no stored state. No state is ever made for an empty journal.
func (dr *drive) claimUnknown() (owned bool, err error) {
	if err := dr.read(0); err != nil || dr.state.N == 0 {
		return false, err
	}
	dr.head = Head{Claim: Claim{N: dr.state.N}, Owner: dr.owner()}
	h := dr.view()
	revision, err := dr.w.Heads.Save(dr.ctx, h, 0)
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", dr.id, err)
	}
	dr.claimed(h, revision)
	// An event may have come in between the read and the claim, and been woken with a message that now waits for us.
	return true, dr.reload()
}

// claimStored claims a run with the revision that was read, then reads its journal and counts the attempt.
func (dr *drive) claimStored(head Head, revision uint64) (owned bool, err error) {
	rested := head.Claim.Resting || head.V == 0
	h := head
	h.V, h.Run, h.Tenant, h.Owner = HeadVersion, dr.id.Run, dr.id.Tenant, dr.owner()
	h.Claim = Claim{N: head.Claim.N, Attempts: head.Claim.Attempts + 1}
	if rested {
		h.Claim = Claim{N: head.N}
	}
	newRevision, err := dr.w.Heads.Save(dr.ctx, h, revision)
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", dr.id, err)
	}
	dr.claimed(h, newRevision)
	if head.Owner != nil {
		dr.from = head.Owner.Worker
	}
	if head.Owner != nil && head.Owner.Worker != dr.w.Name {
		dr.w.Wakes.Claimed(dr.id, dr.w.Name)
	}
	if err := dr.read(max(h.First, 1) - 1); err != nil {
		return false, err
	}
	dr.began = dr.state.N
	if dr.state.N == 0 {
		return false, dr.forget()
	}
	return true, dr.countAttempt(rested)
}

// read folds the whole journal of the run.
func (dr *drive) read(after uint64) error {
	return dr.w.persist(dr.ctx, "read the journal", func() error {
		page, err := dr.w.Journal.Read(dr.ctx, dr.id, after)
		if err != nil {
			return err
		}
		state, err := Fold(State{RunID: dr.id}, page.Events)
		if err != nil {
			return err
		}
		dr.state, dr.tail = state, page.Last
		return nil
	})
}

// countAttempt starts the count anew where the run has moved on since it was claimed last, and ends it as poisoned
// where it has not for too long.
func (dr *drive) countAttempt(rested bool) error {
	switch {
	case rested:
		return nil
	case dr.state.N > dr.head.Claim.N:
		dr.head.Claim = Claim{N: dr.state.N, Attempts: 1}
		if err := dr.save(dr.view()); err != nil {
			return err
		}
	case dr.head.Claim.Attempts >= poisonAt && dr.state.Ended == nil:
		dr.log.Error("a run is given up: no worker gets past its last event", "n", dr.state.N)
		dr.state.end(Failed{
			Reason:  FailPoisoned,
			Message: fmt.Sprintf("The run was taken over %d times without getting past event %d.", dr.head.Claim.Attempts, dr.state.N),
		})
	}
	return dr.countLost()
}

// countLost adds the estimated cost of model calls that the worker before us may have paid for and never recorded.
func (dr *drive) countLost() error {
	if dr.state.drivable() != nil {
		return nil // it is left to a newer worker
	}
	for _, duty := range dr.state.Owed() {
		ask, model := duty.(AskModel)
		if !model {
			continue
		}
		r, err := dr.request(ask)
		if err != nil {
			return err
		}
		lost := rawEstimate(&r)
		if dr.w.SummaryModel != "" && lost > dr.w.Window {
			lost += digestBytes / bytesPerToken // it may have been a summary, whose prompt is shorter
		}
		dr.lost += lost
	}
	return nil
}

// forget removes the state of a run whose journal is gone: it has expired.
func (dr *drive) forget() error {
	if err := dr.w.Heads.Delete(dr.ctx, dr.id, dr.revision); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete the state of %s: %w", dr.id, err)
	}
	return nil
}

// meetClosed handles a wake-up for a run that has ended and was closed: there is nothing to do, unless its time has come. The
// sweep finds that by itself; workers of before had a schedule for it.
func (dr *drive) meetClosed(head Head, revision uint64) error {
	if !dr.w.isDue(head) {
		return nil
	}
	dr.log.Info("a finished run has expired", "ended", head.Updated)
	return dr.w.expire(dr.ctx, dr.id, head, revision)
}

// schedule publishes a wake-up for a time, not sooner than a second from now.
func (dr *drive) schedule(ctx context.Context, what string, at time.Time) error {
	if soon := dr.w.Now().Add(time.Second); at.Before(soon) {
		at = soon
	}
	if err := dr.w.Wakes.Schedule(ctx, dr.id, what, at); err != nil {
		return fmt.Errorf("schedule %s of %s: %w", what, dr.id, err)
	}
	return nil
}
