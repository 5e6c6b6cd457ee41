package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Vet says whether a task that somebody wants to submit would be accepted, with an error in words for the sender where not. A task that names no id gets defaultID. The tenant must be valid.
func (w *Worker) Vet(ctx context.Context, tenant string, body []byte, defaultID string) (v Vetted, err error) {
	task, _, problem := ParseTask(body, defaultID)
	if problem == nil {
		v.Starts, problem = w.starts(task)
	}
	if problem != nil {
		return v, &InvalidTaskError{problem}
	}
	v.Run = task.ID
	if _, missing := w.Tools.Offer(task.Tools); len(missing) > 0 {
		return v, &InvalidTaskError{
			fmt.Errorf("no worker offers the tool %s; offered are %s", strings.Join(missing, ", "), w.toolNames()),
		}
	}
	id := RunID{Tenant: tenant, Run: task.ID}
	_, _, err = w.Heads.Load(ctx, id)
	if err == nil {
		v.Known = true
		return v, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return v, fmt.Errorf("look for run %s: %w", id, err)
	}
	page, err := w.Journal.Page(ctx, id, "", 0, 1)
	if err != nil {
		return v, fmt.Errorf("look for run %s: %w", id, err)
	}
	v.Known = len(page.Events) > 0
	switch {
	case v.Known:
	case w.isForLater(task):
		v.Known, err = w.Wakes.IsPlanned(ctx, id)
	default:
		var full bool
		if full, err = w.isFull(ctx, id); full {
			err = &FullError{w.fullMessage(tenant)}
		}
	}
	return v, err
}

// FullError says that a tenant has as many tasks waiting as it may have.
type FullError struct{ Message string }

// Error returns the message, in words for the sender.
func (e *FullError) Error() string { return e.Message }

// Vetted is what is known of a task that would be accepted.
type Vetted struct {
	Run    string
	Known  bool      // there is such a run or schedule already
	Starts time.Time // for the first time; zero: at once
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
