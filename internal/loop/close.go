package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// close does what follows a run's final event, in an order in which any step may be done again: whoever meets an ended
// run that is not closed does it anew. After it the wake-up may be acked.
func (dr *drive) close() error {
	s := &dr.state
	if err := dr.settleSave(); err != nil {
		return err
	}
	if s.Task.Session != "" {
		if err := dr.w.persist(dr.ctx, "write the session", func() error { return dr.w.leave(dr.ctx, s) }); err != nil {
			return err
		}
	}
	if s.Parent != "" {
		if err := dr.w.persist(dr.ctx, "wake the run above", func() error { return dr.w.wakeParent(dr.ctx, s) }); err != nil {
			return err
		}
	}
	if err := dr.w.persist(dr.ctx, "queue the learning", func() error { return dr.w.queueLearning(dr.ctx, s) }); err != nil {
		return err
	}
	if err := dr.w.persist(dr.ctx, "queue the summary", func() error { return dr.w.queueSummary(dr.ctx, s) }); err != nil {
		return err
	}
	h := dr.view()
	h.Owner, h.Closed, h.Claim = nil, true, Claim{N: s.N, Resting: true}
	if err := dr.save(h); err != nil {
		return err
	}
	dr.logEnd()
	return dr.w.persist(dr.ctx, "remove the run's schedules", func() error { return dr.unschedule(dr.ctx) })
}

func (dr *drive) logEnd() {
	s := &dr.state
	args := []any{"status", s.Status(), "events", s.N, "turns", s.Turns, "tokens", s.Usage.Total(), "worked", s.Worked}
	if f, failed := s.Ended.(Failed); failed {
		dr.log.Warn("run ended", append(args, "reason", f.Reason, "message", clip(f.Message, 300))...)
		return
	}
	dr.log.Info("run ended", args...)
}

// unschedule removes what may still be armed.
func (dr *drive) unschedule(ctx context.Context) error {
	for _, name := range dr.state.Schedules {
		if err := dr.w.Wakes.Unschedule(ctx, dr.id, name); err != nil {
			return fmt.Errorf("remove schedule %s of %s: %w", name, dr.id, err)
		}
	}
	return nil
}

// Bounds of a stored conversation.
const (
	sessionVersion  = 1
	sessionMessages = 100
	sessionText     = 8 << 10
)

// updateSession changes a session by compare-and-set. change reports whether there is something to store.
func (w *Worker) updateSession(ctx context.Context, tenant, session string, change func(*Session) bool) (Session, error) {
	for {
		s, revision, err := w.Sessions.LoadSession(ctx, tenant, session)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Session{}, fmt.Errorf("load session %s/%s: %w", tenant, session, err)
		}
		if !change(&s) {
			return s, nil
		}
		s.V = sessionVersion
		s.Messages = s.Messages[max(len(s.Messages)-sessionMessages, 0):]
		err = w.Sessions.SaveSession(ctx, tenant, session, s, revision)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrConflict) {
			return Session{}, fmt.Errorf("store session %s/%s: %w", tenant, session, err)
		}
	}
}

// enter puts the run into the queue of its session, with its goal, and reports whether it is its turn. before is what the
// run is shown of the session. Without a session it is always the run's turn.
func (w *Worker) enter(ctx context.Context, id RunID, session string, trail []SessionMessage) (before past, turn bool, err error) {
	if session == "" {
		return past{}, true, nil
	}
	s, err := w.updateSession(ctx, id.Tenant, session, func(s *Session) bool {
		changed := s.add(trail)
		if !slices.Contains(s.Runs, id.Run) {
			s.Runs, changed = append(s.Runs, id.Run), true
		}
		return w.dropGone(ctx, id, s) || changed
	})
	if err != nil || s.Runs[0] != id.Run {
		return past{}, false, err
	}
	return w.before(s, id.Run), true, nil
}

// dropGone removes runs before id that are closed or have expired: nobody would wake those behind them.
func (w *Worker) dropGone(ctx context.Context, id RunID, s *Session) (changed bool) {
	for len(s.Runs) > 0 && s.Runs[0] != id.Run {
		first := RunID{Tenant: id.Tenant, Run: s.Runs[0]}
		head, _, err := w.Heads.Load(ctx, first)
		gone := err == nil && head.Closed
		if errors.Is(err, ErrNotFound) {
			page, err := w.Journal.Read(ctx, first, 0)
			gone = err == nil && len(page.Events) == 0
		}
		if !gone {
			return changed
		}
		s.Runs, changed = s.Runs[1:], true
	}
	return changed
}

// leave writes what was said into the session, takes the run out of its queue and wakes the next one.
func (w *Worker) leave(ctx context.Context, state *State) error {
	s, err := w.updateSession(ctx, state.Tenant, state.Task.Session, func(s *Session) bool {
		changed := s.add(state.Trail)
		if i := slices.Index(s.Runs, state.Run); i >= 0 {
			s.Runs, changed = slices.Delete(s.Runs, i, i+1), true
		}
		return changed
	})
	if err != nil || len(s.Runs) == 0 {
		return err
	}
	next := RunID{Tenant: state.Tenant, Run: s.Runs[0]}
	if err := w.Wakes.Wake(ctx, next, fmt.Sprintf("%s/turn/%s/%d", next, state.Run, state.Seq), Wake{}); err != nil {
		return fmt.Errorf("wake %s, the next run of the session: %w", next, err)
	}
	return nil
}

// forgetSaid removes what was said in a run that expires from its session, and the session with its last message.
func (w *Worker) forgetSaid(ctx context.Context, id RunID, session string) error {
	if session == "" {
		return nil
	}
	of := func(m SessionMessage) bool { return m.Run == id.Run }
	s, err := w.updateSession(ctx, id.Tenant, session, func(s *Session) bool {
		before := len(s.Messages)
		s.moveMark(id.Run)
		s.Messages = slices.DeleteFunc(s.Messages, of)
		return len(s.Messages) != before
	})
	if err != nil || len(s.Messages)+len(s.Runs) > 0 {
		return err
	}
	now, revision, err := w.Sessions.LoadSession(ctx, id.Tenant, session)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && len(now.Messages)+len(now.Runs) > 0:
		return nil
	case err != nil:
		return fmt.Errorf("load session %s/%s: %w", id.Tenant, session, err)
	}
	if err := w.Sessions.DeleteSession(ctx, id.Tenant, session, revision); err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("delete session %s/%s: %w", id.Tenant, session, err)
	}
	return nil
}

// leaveIfEnded takes a run out of its session once more where it has ended: whoever entered it was late, and its closing
// may have been before that.
func (w *Worker) leaveIfEnded(ctx context.Context, id RunID) error {
	l, err := w.load(ctx, id)
	if err != nil || l.state.Ended == nil || l.state.Task.Session == "" {
		return err
	}
	return w.leave(ctx, &l.state)
}

// add appends the messages that are not there yet, and reports whether there were any.
func (s *Session) add(messages []SessionMessage) (changed bool) {
	for _, m := range messages {
		known := slices.ContainsFunc(s.Messages, func(o SessionMessage) bool { return o.Run == m.Run && o.N == m.N })
		if !known {
			m.Text = clip(m.Text, sessionText)
			s.Messages, changed = append(s.Messages, m), true
		}
	}
	return changed
}
