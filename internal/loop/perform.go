package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// perform begins what is owed and not under way, and commits what needs only to be written down. It reports whether an
// event was committed; then what is owed has to be looked at anew.
func (dr *drive) perform(duties []Duty) (committed bool, err error) {
	dr.abortObsolete()
	dr.saveSoon()
	before := dr.state.N
	for _, duty := range duties {
		if err := dr.begin(duty); err != nil {
			return false, err
		}
		if dr.state.N != before {
			return true, nil
		}
	}
	return false, nil
}

func (dr *drive) begin(duty Duty) error {
	switch d := duty.(type) {
	case Recall:
		return dr.recall()
	case AskModel:
		return dr.askModel(d)
	case RunCall:
		return dr.runCall(d)
	case Reconcile:
		return dr.reconcile(d)
	case Delegate:
		return dr.delegate(d)
	case AwaitOutcome:
		return dr.awaitOutcome(d)
	case CloseCall:
		return dr.closeCall(d)
	case Record:
		if err := dr.equip(); err != nil {
			return err
		}
		return dr.commit(func(s *State) Data {
			if !owes(s, d) {
				return nil
			}
			return d.Make(s, dr.tools)
		})
	case Put:
		return dr.put(d)
	case GiveAnswer:
		return dr.commit(func(s *State) Data {
			if !owes(s, d) {
				return nil
			}
			return Answer{Answer: d.Text, Usage: s.Usage}
		})
	case End:
		return dr.commit(func(s *State) Data {
			if !owes(s, d) {
				return nil
			}
			return d.Data
		})
	default:
		panic(fmt.Sprintf("loop: no effect for %T", d))
	}
}

// owes reports whether the duty is still due, paused or not: what is in hand is never thrown away for a pause.
func owes(s *State, d Duty) bool {
	key := d.Key()
	return slices.ContainsFunc(s.due(), func(other Duty) bool { return other.Key() == key })
}

// abortObsolete cuts off what is under way for a duty that is due no more. Calls are not among it: each of them ends in
// an observation.
func (dr *drive) abortObsolete() {
	if dr.flights.empty() {
		return
	}
	due := dr.state.due()
	for key := range dr.flights.active {
		needed := strings.TrimPrefix(key, summaryKey)
		if !strings.HasPrefix(needed, "model/") && !strings.HasPrefix(needed, "reconcile/") {
			continue
		}
		if !slices.ContainsFunc(due, func(d Duty) bool { return d.Key() == needed }) {
			dr.flights.abort(key)
		}
	}
}

// recall enters the run's session and asks memory.
func (dr *drive) recall() error {
	duty := Recall{}
	if dr.flights.has(duty.Key()) || dr.stopping() {
		return nil
	}
	task := dr.state.Task
	if task.Session == "" && dr.w.Memory == nil {
		return dr.commit(func(s *State) Data { return factsIfOwed(s, Facts{Facts: []Fact{}}) })
	}
	goal := dr.state.Trail
	dr.flights.start(dr.ctx, duty.Key(), func(ctx context.Context) landing {
		before, turn, err := dr.w.enter(ctx, dr.id, task.Session, goal)
		if err != nil {
			return failing(err)
		}
		if !turn {
			return (*drive).waitForTurn
		}
		facts := dr.w.remember(ctx, dr.id.Tenant, task, before)
		return func(dr *drive) error {
			err := dr.commit(func(s *State) Data { return factsIfOwed(s, facts) })
			if errors.Is(err, errStepAside) {
				return errors.Join(err, dr.w.leaveIfEnded(dr.ctx, dr.id))
			}
			return err
		}
	})
	return nil
}

func factsIfOwed(s *State, f Facts) Data {
	if s.Facts != nil || s.Ending != nil || s.Ended != nil {
		return nil
	}
	return f
}

// remember asks long-term memory. A run never fails for it.
func (w *Worker) remember(ctx context.Context, tenant string, t Task, before past) Facts {
	facts := Facts{Facts: []Fact{}, History: before.messages, Summary: before.summary}
	if w.Memory == nil {
		return facts
	}
	found, err := w.Memory.Recall(ctx, tenant, t.User, before.messages, t.Goal, w.Facts)
	if err != nil {
		facts.Degraded = clip(err.Error(), 500)
		return facts
	}
	facts.Facts = append(facts.Facts, found...)
	return facts
}

// waitForTurn parks a run whose session is busy; the run before it wakes it when it is closed.
func (dr *drive) waitForTurn() error {
	return dr.commit(func(s *State) Data {
		if s.Facts != nil || s.Ending != nil || s.Ended != nil || s.Wait != nil {
			return nil
		}
		if s.Task.OnBusy == BusyReject {
			return Failed{Reason: FailInvalidTask, Message: "session " + s.Task.Session + " is busy, and the task says on_busy: reject"}
		}
		return Wait{Session: true, Why: "another run of session " + s.Task.Session + " goes first"}
	})
}

// request is a model call as the strategy wants it. The opening of the prompt is made once for a drive.
func (dr *drive) request(d AskModel) (ModelRequest, error) {
	s := &dr.state
	if dr.opening == nil {
		if err := dr.equip(); err != nil {
			return ModelRequest{}, err
		}
		dr.opening = strategies[s.Task.Strategy].opening(s, dr.tools)
	}
	r := s.request(dr.tools, dr.opening, d)
	r.Run, r.Purpose, r.Model, r.Fallback, r.Options = dr.id, d.Purpose, s.Task.Model, s.Task.FallbackModels, s.Task.endpointOptions()
	return r, nil
}

// request is a model call with all that the strategy has a say in. opening is the strategy's.
func (s *State) request(tools Toolbox, opening []Message, d AskModel) ModelRequest {
	if d.postMortem() {
		return s.postMortemRequest()
	}
	return strategies[s.Task.Strategy].request(s, tools, opening, d)
}

// equip finds the tools that were offered to the run when it began.
func (dr *drive) equip() error {
	failures := 0
	return dr.w.persist(dr.ctx, "load what the tools said", func() error {
		tools, gone, note, err := dr.w.toolbox(dr.ctx, &dr.state, failures >= catalogueGets)
		if err != nil {
			failures++
			return err
		}
		if len(gone) > 0 {
			dr.log.Warn("tools that were offered to a run are gone", "tools", gone)
		}
		if note != "" && dr.state.Catalogue != "" {
			dr.w.warnOnce("catalogue "+dr.state.Catalogue, "a run's prompt may not be what it was", "why", note,
				"catalogue", dr.state.Catalogue, "tenant", dr.id.Tenant, "run", dr.id.Run)
		}
		tools.texts = dr.w.texts
		dr.tools = tools
		return nil
	})
}

func (dr *drive) askModel(d AskModel) error {
	key := d.Key()
	underWay := !dr.flights.empty() && (dr.flights.has(key) || dr.flights.has(summaryKey+key))
	if underWay || dr.stopping() {
		return nil
	}
	request, err := dr.request(d)
	if err != nil {
		return err
	}
	squeezed := request.squeeze(d, dr.room())
	if ready, err := dr.prepare(d, &request); !ready || err != nil {
		return err
	}
	if stream := dr.w.Stream; stream != nil && d.Purpose == PurposeStep {
		request.Tokens = func(piece string) { stream(dr.id, d.Turn, piece) }
	}
	seen, size := dr.state.N, rawEstimate(&request)
	dr.flights.start(dr.ctx, key, func(ctx context.Context) landing {
		reply, err := dr.w.complete(ctx, &request)
		reply.Seen, reply.Room = seen, squeezed
		return func(dr *drive) error {
			if err != nil {
				return dr.modelFailed(d, err)
			}
			dr.measure(size, reply.Usage)
			return dr.modelReplied(d, reply)
		}
	})
	return nil
}

// complete makes a model call. The reply is never nil.
func (w *Worker) complete(ctx context.Context, r *ModelRequest) (*ModelReply, error) {
	began := time.Now()
	reply, err := w.Model.Complete(ctx, *r)
	reply.MS = time.Since(began).Milliseconds()
	return &reply, err
}

func (dr *drive) modelReplied(d AskModel, reply *ModelReply) error {
	err := dr.commit(func(s *State) Data {
		if !owes(s, d) {
			return nil
		}
		return withMade(s.judged(dr.tools, d, reply), s, reply, dr.lost)
	})
	if errors.Is(err, ErrRefused) {
		// Within the bounds of a reply, but not of an event: escapes can make text longer.
		err = dr.commit(func(s *State) Data {
			if !owes(s, d) {
				return nil
			}
			return withMade(s.unheard(d, reply, "The message is too long to be recorded. Send a shorter one."), s, reply, dr.lost)
		})
	}
	if err == nil {
		dr.lost = 0
	}
	return err
}

// withMade notes in a model-made event what a call cut off by a crash may have cost, and of how the prompt was made what the
// journal does not tell otherwise. s is the run before the event.
func withMade(d Data, s *State, reply *ModelReply, lost int) Data {
	note := func(m Made) Made {
		m.Lost, m.Room = lost, reply.Room
		if m.Seen == 0 && reply.Seen != s.N {
			m.Asked = reply.Seen
		}
		return m
	}
	switch d := d.(type) {
	case Plan:
		d.Made = note(d.Made)
		return d
	case Thought:
		d.Made = note(d.Made)
		return d
	case Call:
		d.Made = note(d.Made)
		return d
	case Rejection:
		d.Made = note(d.Made)
		return d
	case Reflection:
		d.Made = note(d.Made)
		return d
	default:
		return d
	}
}

// causeContextLength is the cause of a fault that a shorter prompt can cure.
const causeContextLength = "context_length"

// How often in a row a run waits for a model that fails, after the adapter's own short retries, and for how long the first
// time. Doubled each time, that is twenty minutes of outage. Waits for a turn are not counted: where many runs share what an
// endpoint takes, some wait for their turn often, and nothing is wrong.
const (
	modelTries = 8
	modelPause = 5 * time.Second
)

// modelFailed parks the run where the fault may pass, and ends it where it can't.
func (dr *drive) modelFailed(d AskModel, err error) error {
	if dr.ctx.Err() != nil {
		return context.Cause(dr.ctx)
	}
	var fault *ModelError
	if !errors.As(err, &fault) {
		if errors.Is(err, context.Canceled) {
			return nil // cut off because it is not owed any more
		}
		fault = &ModelError{Cause: "transport", Message: err.Error(), Passing: true}
	}
	dr.log.Warn("the model could not be asked", "cause", fault.Cause, "error", fault.Message, "passing", fault.Passing)
	if d.postMortem() {
		return dr.commit(func(s *State) Data {
			if !owes(s, d) {
				return nil
			}
			return s.failure() // as it would have without a look back
		})
	}
	if fault.Cause == causeContextLength && d.Purpose == PurposeStep && owes(&dr.state, d) {
		request, err := dr.request(d)
		if err != nil {
			return err
		}
		if made, err := dr.makeRoom(d, &request, rawEstimate(&request)*bytesPerToken/4*3); made || err != nil {
			return err
		}
	}
	if !fault.Passing || !fault.Unsent && dr.state.ModelTries >= modelTries {
		return dr.commit(func(s *State) Data {
			if !owes(s, d) {
				return nil
			}
			return Failed{Reason: FailModelError, Message: clip(fault.Error(), 2<<10), Usage: s.Usage}
		})
	}
	wait, counted := max(fault.After, modelPause<<dr.state.ModelTries), 1
	if fault.Unsent {
		wait, counted = fault.After, 0
	}
	return dr.commitScheduled(waitSchedule, func() time.Time { return dr.w.Now().Add(wait) },
		func(s *State, until time.Time) Data {
			if !owes(s, d) {
				return nil
			}
			return Wait{Until: until, Why: "the model can't be asked: " + clip(fault.Error(), 500), Attempt: s.ModelTries + counted}
		})
}

// put asks a person, with the deadline of the task.
func (dr *drive) put(d Put) error {
	q := d.Question
	if q.Kind == KindApproval {
		sum, err := dr.w.Tools.Digest(q.Arguments)
		if err != nil {
			return fmt.Errorf("digest the arguments of %s: %w", q.Call, err)
		}
		q.ArgumentsSHA256 = sum
	}
	patience := time.Duration(dr.state.Task.Ask.Timeout)
	return dr.commitScheduled(questionSchedule, func() time.Time { return dr.w.Now().Add(patience) },
		func(s *State, deadline time.Time) Data {
			if !owes(s, d) {
				return nil
			}
			q.Deadline = deadline.UTC().Truncate(time.Millisecond)
			return q
		})
}

// closeCall gives a call its observation without running it. A call in hand is cut off first, and its result counts if
// it has one.
func (dr *drive) closeCall(d CloseCall) error {
	if key := (RunCall{d.OpenCall}).Key(); dr.flights.has(key) {
		dr.flights.hurry(key)
		return nil
	}
	if d.Child != nil && d.Child.Ended == "" {
		if err := dr.stopChild(d.Child.Run); err != nil {
			return err
		}
	}
	text, err := json.Marshal(d.Text)
	if err != nil {
		return fmt.Errorf("encode why call %s was not run: %w", d.Call, err)
	}
	return dr.commit(func(s *State) Data {
		if !owes(s, d) {
			return nil
		}
		return Observation{Call: d.Call, Tool: d.Tool, Status: d.Status, Result: text}
	})
}
