package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Learning is queued work of its own: it never delays an answer, survives crashes, and is done once for a run.

// How often learning from one run is tried: in all, and while memory is away, which is an hour then.
const (
	learnTries = 5
	awayTries  = 125
)

// learnJob is the body of the job.
type learnJob struct {
	Run string `json:"run"`
}

// queueLearning queues the learning from an answered run.
func (w *Worker) queueLearning(ctx context.Context, s *State) error {
	_, answered := s.Ended.(Answer)
	if !answered || w.Memory == nil || !w.Learn || s.Task.Learn != nil && !*s.Task.Learn {
		return nil
	}
	return w.Wakes.Job(ctx, s.Tenant, JobLearn, fmt.Sprintf("%s/%d", s.Run, s.Seq), learnJob{Run: s.Run})
}

// learn asks the model for the durable facts of an ended run and stores them.
func (w *Worker) learn(ctx context.Context, d *Delivery) error {
	var job learnJob
	if err := json.Unmarshal(d.Body, &job); err != nil || !ValidID(d.Tenant) || !ValidID(job.Run) || w.Memory == nil {
		w.Log.Warn("a learning job can't be done; it is dropped", "tenant", d.Tenant, "body", clip(string(d.Body), 200))
		return nil
	}
	id := RunID{Tenant: d.Tenant, Run: job.Run}
	l, err := w.load(ctx, id)
	if err != nil {
		return err
	}
	if l.state.Ended == nil {
		return nil // it has expired, or began anew under its id
	}
	ctx = WithRun(ctx, id, l.state.Trace().Traceparent())
	t := &l.state.Task
	err = w.Memory.Learn(ctx, id.Tenant, t.User, id.Run, l.state.Trail, func(ctx context.Context, messages []Message) (string, error) {
		reply, err := w.Model.Complete(ctx, ModelRequest{
			Run: id, Purpose: PurposeLearn, Model: t.Model, Fallback: t.FallbackModels, Messages: messages, JSON: true,
		})
		return reply.Text, err
	})
	var fault *ModelError
	final := errors.Is(err, ErrUseless) || errors.As(err, &fault) && !fault.Passing
	tries := uint64(learnTries)
	if errors.Is(err, ErrAway) {
		tries = awayTries
	}
	if err != nil && (final || d.Attempt >= tries) {
		LogFor(ctx, w.Log).Warn("nothing was learned from a run", "error", err)
		return nil
	}
	return err
}
