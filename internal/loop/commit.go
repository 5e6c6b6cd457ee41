package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// commit appends the event that build makes of the current state, and folds it. Where somebody moved the run on, the
// journal is read and build is asked again; it returns nil when the event is not owed any more. The result in hand is
// kept all the while: it is inside build.
func (dr *drive) commit(build func(*State) Data) error {
	_, err := dr.commitEvent(build)
	return err
}

// commitEvent is commit that says whether an event was stored.
func (dr *drive) commitEvent(build func(*State) Data) (stored bool, err error) {
	for failures := 0; ; failures++ {
		data := build(&dr.state)
		if data == nil {
			return false, nil
		}
		if stored, err := dr.append(data, failures); stored || err != nil {
			return stored, err
		}
	}
}

// append stores an event and folds it. Not stored without an error means that the run may have moved on, and the event is to
// be made again.
func (dr *drive) append(data Data, failures int) (stored bool, err error) {
	e := dr.w.event(dr.id, dr.state.N+1, dr.state.ofChild(data))
	e.Metadata = dr.state.Metadata()
	e.Seq, err = dr.w.Journal.Append(dr.ctx, e, dr.tail)
	if err == nil {
		dr.fold(e)
		return true, nil
	}
	if dr.ctx.Err() != nil {
		return false, context.Cause(dr.ctx)
	}
	if errors.Is(err, ErrRefused) {
		return false, fmt.Errorf("store event %d of %s: %w", e.N, dr.id, err)
	}
	if !errors.Is(err, ErrConflict) {
		if failures%10 == 0 {
			dr.log.Warn("an event could not be stored; the journal is read before another try", "event", e.Type(), "error", err)
		}
		pause(dr.ctx, failures, dr.w.longestPause())
	}
	// After any error the picture of the run is a guess: whether the event is stored is for the journal to say.
	before := dr.tail
	stored, reloadErr := dr.reloadFor(e)
	if reloadErr != nil || stored {
		return stored, reloadErr
	}
	if dr.tail == before && errors.Is(err, ErrConflict) {
		pause(dr.ctx, failures, dr.w.longestPause()) // with something that can't be seen yet
	}
	return false, nil
}

func (dr *drive) fold(e Event) {
	dr.state.step(e)
	dr.tail = e.Seq
}

// reload folds what others appended to the run. It returns errStepAside where another worker owns it.
func (dr *drive) reload() error {
	_, err := dr.reloadFor(Event{})
	return err
}

// reloadFor is reload that also says whether the event mine, whose append had an unknown outcome, is stored.
func (dr *drive) reloadFor(mine Event) (stored bool, err error) {
	err = dr.w.persist(dr.ctx, "read what moved the run on", func() error {
		if err := dr.stillOwner(); err != nil {
			return err
		}
		page, err := dr.w.Journal.Read(dr.ctx, dr.id, dr.tail)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if e.N != dr.state.N+1 {
				return &GapError{Run: dr.id, Want: dr.state.N + 1, Got: e.N}
			}
			dr.fold(e)
			if e.N == mine.N && e.Source == mine.Source && e.Time.Equal(mine.Time) && e.Type() == mine.Type() {
				stored = true
			}
		}
		dr.tail = page.Last
		return nil
	})
	return stored, err
}

// stillOwner returns errStepAside where the stored state names another owner.
func (dr *drive) stillOwner() error {
	head, _, err := dr.w.Heads.Load(dr.ctx, dr.id)
	if errors.Is(err, ErrNotFound) {
		return dr.showAgain()
	}
	if err != nil {
		return fmt.Errorf("load the state of %s: %w", dr.id, err)
	}
	if head.Owner == nil || *head.Owner != *dr.owner() {
		return errStepAside
	}
	return nil
}

// showAgain stores the state anew where it was deleted behind our back, with this drive as owner. Whoever finds it there
// already was faster, and owns the run.
func (dr *drive) showAgain() error {
	if err := dr.gone(ErrNotFound); errors.Is(err, errStepAside) {
		return err
	}
	h := dr.view()
	revision, err := dr.w.Heads.Save(dr.ctx, h, 0)
	if err != nil {
		return fmt.Errorf("store the state of %s anew: %w", dr.id, err)
	}
	dr.stored(h, revision)
	return nil
}

// commitScheduled is commit for an event that needs a schedule, which is published before it. Whoever loses the append
// to another owner may have replaced that one's schedule, and so wakes the run.
func (dr *drive) commitScheduled(name func(n uint64) string, at func() time.Time, build func(*State, time.Time) Data) error {
	for {
		n, due := dr.state.N+1, at()
		if build(&dr.state, due) == nil {
			return nil
		}
		if err := dr.w.persist(dr.ctx, "publish a schedule", func() error {
			return dr.schedule(dr.ctx, name(n), due)
		}); err != nil {
			return err
		}
		stored, err := dr.commitEvent(func(s *State) Data {
			if s.N+1 != n {
				return nil // the schedule's name is for another event
			}
			return build(s, due)
		})
		switch {
		case errors.Is(err, errStepAside):
			return dr.wakeAfterLoss(n)
		case err != nil:
			return err
		case stored:
			dr.armed[name(n)] = true
			return nil
		case slices.Contains(dr.state.Schedules, name(n)):
			continue // another worker's event n needs a schedule of this very name
		}
		if err := dr.w.Wakes.Unschedule(dr.ctx, dr.id, name(n)); err != nil {
			dr.log.Debug("a schedule that is not needed stays until it fires", "error", err)
		}
	}
}

func (dr *drive) wakeAfterLoss(n uint64) error {
	key := fmt.Sprintf("%s/%d/lost/%s", dr.id, n, dr.w.Name)
	if err := dr.w.persist(dr.ctx, "publish a wake-up", func() error {
		return dr.w.Wakes.Wake(dr.ctx, dr.id, key, Wake{})
	}); err != nil {
		return err
	}
	return errStepAside
}
