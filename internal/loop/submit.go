package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Vet says whether a task that somebody wants to submit would be accepted: the id of its run, whether there is such a
// run already, and an error in words for the sender. A task that names no id gets defaultID. The tenant must be valid.
func (w *Worker) Vet(ctx context.Context, tenant string, body []byte, defaultID string) (run string, known bool, err error) {
	task, _, problem := ParseTask(body, defaultID)
	if problem != nil {
		return "", false, &InvalidTaskError{problem}
	}
	if _, missing := w.Tools.Offer(task.Tools); len(missing) > 0 {
		return "", false, &InvalidTaskError{
			fmt.Errorf("no worker offers the tool %s; offered are %s", strings.Join(missing, ", "), w.toolNames()),
		}
	}
	id := RunID{Tenant: tenant, Run: task.ID}
	_, _, err = w.Heads.Load(ctx, id)
	if err == nil {
		return task.ID, true, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return "", false, fmt.Errorf("look for run %s: %w", id, err)
	}
	page, err := w.Journal.Page(ctx, id, "", 0, 1)
	if err != nil {
		return "", false, fmt.Errorf("look for run %s: %w", id, err)
	}
	return task.ID, len(page.Events) > 0, nil
}

// InvalidTaskError says why a task can't be accepted.
type InvalidTaskError struct{ Problem error }

// Error returns the problem, in words for the sender.
func (e *InvalidTaskError) Error() string { return e.Problem.Error() }

// Peek returns the view of a run that has no stored state yet, from its journal; ErrNotFound where it has no journal.
func (w *Worker) Peek(ctx context.Context, id RunID) (Head, error) {
	l, err := w.load(ctx, id)
	if err != nil {
		return Head{}, err
	}
	if l.state.N == 0 {
		return Head{}, ErrNotFound
	}
	return ViewOf(&l.state), nil
}
