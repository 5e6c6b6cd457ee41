package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// interrupt cancels the runs of the session that were there before this one.
func (w *Worker) interrupt(ctx context.Context, state *State) error {
	s, _, err := w.Sessions.LoadSession(ctx, state.Tenant, state.Task.Session)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look whom run %s interrupts: %w", state.RunID, err)
	}
	mine := slices.Index(s.Runs, state.Run)
	for _, run := range s.Runs[:max(mine, 0)] {
		other := RunID{Tenant: state.Tenant, Run: run}
		order, err := json.Marshal(Control{Op: OpCancel, Reason: "interrupted by run " + state.Run, By: state.Task.User})
		if err != nil {
			return fmt.Errorf("encode an order: %w", err)
		}
		if err := w.Orders.Order(ctx, other, order); err != nil {
			return fmt.Errorf("cancel run %s, which %s interrupts: %w", other, state.RunID, err)
		}
	}
	return nil
}

// unfinished says what a cancelled run had done, for the next run of its session; empty for other runs.
func (s *State) unfinished() string {
	if _, cancelled := s.Ended.(Cancelled); !cancelled || len(s.Plan) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("(This was interrupted. What was done by then:")
	for _, step := range s.Plan {
		fmt.Fprintf(&b, " %s [%s]", clip(step.Step, headStep), step.Status)
		if step.Result != "" {
			fmt.Fprintf(&b, ": %s", clip(string(step.Result), headResult))
		}
		b.WriteString(";")
	}
	return strings.TrimSuffix(b.String(), ";") + ")"
}
