package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Tasks with not_before or every are not runs yet. The door stores them with the queue, which brings each back as a job of
// the workers when its time has come, and the job accepts it like any other task.

// Planned is a task that begins later.
type Planned struct {
	Task    Task      `json:"task"`
	At      time.Time `json:"at,omitzero"`     // when; zero: as Every says
	Every   string    `json:"every,omitempty"` // rule for repeating
	Created time.Time `json:"created"`
}

// occurrence is the form of the time in the id of a run of a repeated task, which is <id>-<time>.
const occurrence = "20060102T150405Z"

// maxRepeated is how long the id of a repeated task may be.
const maxRepeated = 64 - len("-"+occurrence)

// notBefore is the time before which the task may not begin; zero where it names none, or none that can be read.
func (t Task) notBefore() time.Time {
	at, err := time.Parse(time.RFC3339, t.NotBefore)
	if err != nil {
		return time.Time{}
	}
	return at
}

// starts returns when the task begins for the first time; zero: at once. The error is for the sender.
func (w *Worker) starts(t Task) (time.Time, error) {
	now := w.Now()
	at := t.notBefore()
	if t.Every == "" {
		if !at.After(now) {
			return time.Time{}, nil
		}
		return at, nil
	}
	if at.Before(now) {
		at = now
	}
	return w.Wakes.Upcoming(t.Every, at)
}

// isForLater reports whether the task is to be planned. A time that has passed means at once.
func (w *Worker) isForLater(t Task) bool { return t.Every != "" || t.notBefore().After(w.Now()) }

// plan stores a task for later. The same id again is the same task, as with those that begin at once.
func (w *Worker) plan(ctx context.Context, d Delivery, id RunID, t Task) (verdict, error) {
	l, err := w.load(ctx, id)
	if err != nil {
		return verdict{}, err
	}
	if l.state.N > 0 { // cancelled before it came, or a task with the same id
		return w.meet(ctx, d, id)
	}
	p := Planned{Task: t, Every: t.Every, Created: d.Time.UTC()}
	if at := t.notBefore(); at.After(w.Now()) {
		p.At = at.UTC()
	}
	err = w.Wakes.Plan(ctx, id, p)
	if errors.Is(err, ErrConflict) {
		return verdict{status: OutcomeDuplicate, message: "a task with this id is planned already"}, nil
	}
	return verdict{status: OutcomeAccepted}, err
}

// acceptPlanned accepts a task whose time has come.
func (w *Worker) acceptPlanned(ctx context.Context, d *Delivery) error {
	var p Planned
	if err := json.Unmarshal(d.Body, &p); err != nil || !ValidID(d.Tenant) || !ValidID(p.Task.ID) {
		w.Log.Warn("a planned task can't be read; it is dropped", "tenant", d.Tenant, "body", clip(string(d.Body), 200))
		return nil
	}
	t := p.Task
	if p.At.After(w.Now().Add(time.Second)) { // the server's clock is ahead, or was
		return w.planAgain(ctx, d.Tenant, p)
	}
	if !p.At.IsZero() && p.Every != "" {
		p.At = time.Time{} // from now on by the rule
		return w.planAgain(ctx, d.Tenant, p)
	}
	schedule := ""
	if p.At.IsZero() {
		schedule = t.ID
		t.ID += "-" + d.Time.UTC().Format(occurrence)
	}
	t.Every, t.NotBefore = "", ""
	v, err := w.accept(ctx, *d, Accepted{Task: t, Schedule: schedule}, t.validate())
	switch {
	case err != nil:
		return err
	case v.later > 0:
		return fmt.Errorf("task %s: no worker offers its tools at the moment", t.ID)
	case v.bury != "":
		w.Log.Warn("a planned task can't be accepted and is put aside as a dead letter", "tenant", d.Tenant, "task", t.ID, "error", v.message)
		return w.Graveyard.Bury(ctx, *d, v.bury, v.message)
	}
	return nil
}

// planAgain stores a task anew whose schedule has fired.
func (w *Worker) planAgain(ctx context.Context, tenant string, p Planned) error {
	err := w.Wakes.Plan(ctx, RunID{Tenant: tenant, Run: p.Task.ID}, p)
	if errors.Is(err, ErrConflict) {
		return nil // it has been done
	}
	return err
}

// cancelPlanned removes a task that has not begun. The order to cancel then becomes the run's first event, for the task may
// be on its way.
func (w *Worker) cancelPlanned(ctx context.Context, id RunID) error {
	_, _, err := w.Heads.Load(ctx, id)
	if err == nil || !errors.Is(err, ErrNotFound) {
		return err
	}
	_, err = w.Wakes.Unplan(ctx, id)
	return err
}
