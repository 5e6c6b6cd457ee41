package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// The door takes tasks, replies and controls. It checks a message, appends at most one event for it, publishes a
// wake-up if that event made a run owe something that owed nothing, and acks. It calls no model and no tool, and waits
// for nothing but the store.

const (
	doorTries    = 5               // failures after which a message whose event is not stored is a dead letter
	deployPeriod = time.Minute     // how long a tool that this worker does not know may be on its way
	deployRetry  = 5 * time.Second // how often such a task is looked at again
	inlineEvent  = 8 << 10         // a first event up to this size travels in the wake-up
)

// Outcomes of queue messages, for those who ask through the API.
const (
	OutcomeAccepted  = "accepted"
	OutcomeDuplicate = "duplicate"
	OutcomeStale     = "stale"
	OutcomeUnknown   = "unknown"
	OutcomeInvalid   = "invalid"
	OutcomeFinished  = "finished"
)

// verdict is what the door decided about a message. The message is acked unless later is set.
type verdict struct {
	status  string
	message string
	bury    string        // reason of the dead letter, if it is one
	later   time.Duration // give it back for so long
	run     string        // that it is about, as far as it was read
	trace   Trace         // of that run, once it is known
}

// answerDoor handles one inbox message and settles it.
func (w *Worker) answerDoor(ctx context.Context, d Delivery) {
	w.Observer.Delivered(&d)
	v, err := w.decide(ctx, d)
	if err == nil && v.bury == "" && v.later == 0 {
		w.done(ctx, d, v)
		return
	}
	log := w.doorLog(d, v)
	switch {
	case err != nil && ctx.Err() != nil:
		return // the lease ends and another worker takes it
	case err != nil && d.Attempt >= doorTries && isPoison(err):
		log.Error("a message failed too often and is put aside as a dead letter", "error", err, "deliveries", d.Attempt)
		v.status, v.message, v.bury = OutcomeInvalid, err.Error(), "failed"
	case err != nil:
		log.Warn("a message could not be handled; it will be delivered again", "error", err, "deliveries", d.Attempt)
		w.giveBack(log.Warn, &d, backoff(d.Attempt))
		return
	case v.later > 0:
		w.giveBack(log.Warn, &d, v.later)
		return
	}
	if v.bury != "" {
		if err := w.Graveyard.Bury(ctx, d, v.bury, v.message); err != nil {
			log.Error("a dead letter could not be stored; the message stays in the queue", "error", err)
			w.giveBack(log.Warn, &d, backoff(d.Attempt))
			return
		}
		log.Warn("a message can't be processed and is put aside as a dead letter", "reason", v.bury, "error", v.message)
	}
	w.done(ctx, d, v)
}

// done takes a message that was handled out of the queue.
func (w *Worker) done(ctx context.Context, d Delivery, v verdict) {
	if err := d.Settler.Ack(ctx); err != nil {
		w.doorLog(d, v).Warn("a handled message could not be acknowledged; it will be delivered again", "error", err)
	}
	w.Outcomes.Tell(d, v.status, v.message)
}

// doorLog is the log with what is known of a message and of its run.
func (w *Worker) doorLog(d Delivery, v verdict) *slog.Logger {
	log := w.Log.With(logTenant, d.Tenant, logRun, cmp.Or(d.Run, v.run), "kind", d.Kind, "sequence", d.Seq)
	if v.trace != (Trace{}) {
		log = log.With(logTrace, v.trace.TraceID())
	}
	return log
}

func (w *Worker) giveBack(warn func(string, ...any), d *Delivery, delay time.Duration) {
	if !d.Since.IsZero() && time.Since(d.Since) > w.Lease && d.Kind != DeliverWake {
		return // it has been delivered to another worker by now
	}
	if err := d.Settler.Nak(delay); err != nil {
		warn("a message could not be given back; it will be delivered again after the lease", "error", err)
	}
}

// backoff is the delay before the next delivery: 0.5 s, doubling up to 30 s.
func backoff(attempt uint64) time.Duration {
	return min(500*time.Millisecond<<min(attempt-1, 10), 30*time.Second)
}

// errStored says that a message's event is in the journal and its wake-up is not out yet: such a message is delivered
// again until it is.
var errStored = errors.New("the event is stored")

// isPoison reports whether it is the message that fails, and not the store, which may be full, denied or out of reach.
// What the store can't take now stays in the queue.
func isPoison(err error) bool {
	if errors.Is(err, errStored) {
		return false
	}
	return errors.Is(err, ErrRefused) || errors.Is(err, errPanic) || isGap(err)
}

func (w *Worker) decide(ctx context.Context, d Delivery) (v verdict, err error) {
	defer recovered(&err)
	if !ValidID(d.Tenant) {
		return invalid("the tenant in the subject is no valid id"), nil
	}
	switch d.Kind {
	case DeliverTask:
		return w.acceptTask(ctx, d)
	case DeliverReply, DeliverControl:
		if !ValidID(d.Run) {
			return verdict{status: OutcomeUnknown, message: "the run in the subject is no valid id", bury: "unknown_run"}, nil
		}
		if d.Kind == DeliverReply {
			return w.acceptReply(ctx, d)
		}
		return w.acceptControl(ctx, d)
	case DeliverWake:
	}
	return verdict{}, fmt.Errorf("no door for a message of kind %s", d.Kind)
}

func invalid(message string) verdict {
	return verdict{status: OutcomeInvalid, message: message, bury: string(FailInvalidTask)}
}

// cause names the queue message an event came from.
func (d Delivery) cause() string { return fmt.Sprintf("%s:%d:%d", d.Stream, d.Seq, d.Time.UnixNano()) }

func (w *Worker) acceptTask(ctx context.Context, d Delivery) (v verdict, err error) {
	task, unknown, problem := ParseTask(d.Body, d.DefaultID)
	defer func() { v.run = task.ID }()
	if len(unknown) > 0 {
		w.warnOnce("task "+strings.Join(unknown, ","), "a task has fields that mean nothing here; they are ignored", "fields", unknown)
	}
	redriveOf := redrive(&task, d)
	if problem == nil {
		_, problem = w.starts(task)
	}
	return w.accept(ctx, d, Accepted{Task: task, RedriveOf: redriveOf, Traceparent: d.traceparent()}, problem)
}

// accept begins the run of a task, or plans it where it is for later. A problem with it is for the sender; first holds as
// much of its first event as the task tells.
func (w *Worker) accept(ctx context.Context, d Delivery, first Accepted, problem error) (verdict, error) {
	task := first.Task
	id := RunID{Tenant: d.Tenant, Run: task.ID}
	if problem == nil {
		specs, missing := w.Tools.Offer(task.Tools)
		if len(missing) == 0 {
			if w.isForLater(task) {
				return w.plan(ctx, d, id, task)
			}
			if full, err := w.isFull(ctx, id); full || err != nil {
				return verdict{status: OutcomeInvalid, message: w.fullMessage(id.Tenant), bury: reasonFull}, err
			}
			first.Tools, first.Prompt = offered(specs, task), strategies[task.Strategy].prompt()
			first.Catalogue = w.pin(ctx, specs)
			return w.begin(ctx, d, id, task.Metadata, first)
		}
		if w.Now().Sub(d.Time) < deployPeriod {
			return verdict{later: deployRetry}, nil
		}
		problem = fmt.Errorf("no worker offers the tool %s; offered are %s", strings.Join(missing, ", "), w.toolNames())
	}
	if !ValidID(task.ID) {
		return invalid(problem.Error()), nil
	}
	v, err := w.begin(ctx, d, id, task.Metadata, Failed{Reason: FailInvalidTask, Message: problem.Error()})
	if err == nil {
		v = invalid(problem.Error())
	}
	return v, err
}

func (w *Worker) toolNames() string {
	specs, _ := w.Tools.Offer(nil)
	return strings.Join(NewToolbox(specs).Names(), ", ")
}

// Headers of a task that is published again from a dead letter.
const (
	headerRedrive   = "Ratchet-Redrive"    // how often it was
	headerRedriveOf = "Ratchet-Redrive-Of" // the id of its first run, for a task that names none
)

// redrive gives a task that was a dead letter its new id, and returns the old one.
func redrive(t *Task, d Delivery) (of string) {
	k := d.Header[headerRedrive]
	if len(k) == 0 {
		return ""
	}
	of = t.ID
	if first := d.Header[headerRedriveOf]; len(first) > 0 && t.ID == d.DefaultID && ValidID(first[0]) {
		of = first[0]
	}
	suffix := "-r" + k[0]
	if id := of[:min(len(of), max(64-len(suffix), 0))] + suffix; ValidID(id) {
		t.ID = id
		return of
	}
	return ""
}

func offered(specs []ToolSpec, t Task) []OfferedTool {
	out := make([]OfferedTool, len(specs))
	for i, s := range specs {
		out[i] = OfferedTool{Name: s.Name, Digest: s.Digest, Effect: s.Effect, Approve: s.Approve || matchesAny(t.Approve, s.Name), Delegate: s.Delegate}
	}
	return out
}

// begin appends a run's first event. Where the run exists already it is the same run: nothing starts twice.
func (w *Worker) begin(ctx context.Context, d Delivery, id RunID, metadata json.RawMessage, first Data) (verdict, error) {
	e := w.event(id, 1, first)
	e.Cause = d.cause()
	if usable := (Task{Metadata: metadata}); usable.validateExtras() == nil && string(metadata) != "null" {
		e.Metadata = metadata
	}
	seq, err := w.Journal.Append(ctx, e, 0)
	if errors.Is(err, ErrConflict) {
		return w.meet(ctx, d, id)
	}
	if err != nil {
		return verdict{}, fmt.Errorf("store the first event of %s: %w", id, err)
	}
	e.Seq = seq
	return verdict{status: OutcomeAccepted}, stored(w.wakeFor(ctx, e, loaded{}))
}

func stored(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errStored, err)
}

// meet handles a task whose run exists already.
func (w *Worker) meet(ctx context.Context, d Delivery, id RunID) (verdict, error) {
	l, err := w.load(ctx, id)
	if err != nil {
		return verdict{}, err
	}
	if l.state.N == 0 {
		return verdict{}, fmt.Errorf("the journal of %s holds messages and no event of ours: purge its subjects", id)
	}
	v := verdict{status: OutcomeDuplicate, message: "a task with this id was accepted before"}
	if e := l.causedBy(d); e != nil {
		v = verdict{status: OutcomeAccepted}
		return v, stored(w.wakeFor(ctx, *e, l))
	}
	return v, w.wakeUnclosed(ctx, l)
}

// wakeFor publishes the wake-up for an event. Its key is the event's, so that a repeat is stored once; the sequence is
// part of it because the id of an expired run may be used again. The first event is shown in the run's state as well, so
// that a run can be seen and found before a worker has a slot for it; l is the run before, as far as it was loaded.
func (w *Worker) wakeFor(ctx context.Context, e Event, l loaded) error {
	wake := Wake{Seq: e.Seq}
	if e.N == 1 && l.head.V == 0 {
		var err error
		if wake, err = w.show(ctx, e); err != nil {
			return err
		}
	}
	if first, accepted := e.Data.(Accepted); accepted {
		wake.Rank = Rank(first.Task.Priority)
	}
	if err := w.Wakes.Wake(ctx, e.RunID, fmt.Sprintf("%s/%d", e.ID(), e.Seq), wake); err != nil {
		return fmt.Errorf("publish the wake-up for event %s: %w", e.ID(), err)
	}
	return nil
}

// show stores the state of a run that has one event. The wake-up it returns saves the driver its first reads.
func (w *Worker) show(ctx context.Context, e Event) (Wake, error) {
	wake := Wake{Seq: e.Seq}
	state := Step(State{RunID: e.RunID}, e)
	// Runs of a session take their turns in the order in which they were accepted.
	if _, _, err := w.enter(ctx, e.RunID, state.Task.Session, state.Trail); err != nil {
		return wake, err
	}
	if state.Task.OnBusy == BusyInterrupt {
		if err := w.interrupt(ctx, &state); err != nil {
			return wake, err
		}
	}
	h := ViewOf(&state)
	h.Claim = Claim{N: e.N, Resting: true}
	revision, err := w.Heads.Save(ctx, h, 0)
	if errors.Is(err, ErrConflict) {
		return wake, w.leaveIfEnded(ctx, e.RunID) // this event's message was delivered before
	}
	if err != nil {
		return wake, fmt.Errorf("store the first state of %s: %w", e.RunID, err)
	}
	if encoded, err := e.Encode(); err == nil && len(encoded) <= inlineEvent {
		wake.Event, wake.Revision = encoded, revision
		w.fresh.put(e, revision)
	}
	return wake, nil
}

// wakeUnclosed publishes a wake-up for a run that has ended and was not closed.
func (w *Worker) wakeUnclosed(ctx context.Context, l loaded) error {
	if l.state.Ended == nil || l.head.Closed {
		return nil
	}
	key := fmt.Sprintf("%s/%d/%d/close", l.state.RunID, l.state.N, l.state.Seq)
	return w.Wakes.Wake(ctx, l.state.RunID, key, Wake{})
}

func (w *Worker) acceptReply(ctx context.Context, d Delivery) (verdict, error) {
	reply, unknown, problem := parseReply(d.Body)
	if len(unknown) > 0 {
		w.warnOnce("reply "+strings.Join(unknown, ","), "a reply has fields that mean nothing here; they are ignored", "fields", unknown)
	}
	if problem != nil {
		return verdict{status: OutcomeInvalid, message: problem.Error(), bury: "invalid_reply"}, nil
	}
	return w.turn(ctx, d, func(s *State) (Data, verdict) {
		if s.N == 0 {
			return nil, verdict{
				status: OutcomeUnknown, bury: "unknown_run",
				message: "there is no run " + d.RunID.String() + "; a reply can't come before its question",
			}
		}
		if early := w.tooEarly(s, reply, d); early > 0 {
			return nil, verdict{later: early}
		}
		return w.judgeReply(s, reply)
	})
}

// replyPeriod is how long a reply may wait for its question.
const replyPeriod = 30 * time.Second

// tooEarly is the delay after which a reply is to be looked at again, because it may be to a question that the journal does
// not show yet; 0 where it is not. Who listens on a plain subscription is shown a question while the server is still storing
// it, or another one in its place, and a fast reply can be at the door first. The door can tell: the question is owed.
func (w *Worker) tooEarly(s *State, r Reply, d Delivery) time.Duration {
	age := w.Now().Sub(d.Time)
	if age >= replyPeriod || !s.owesQuestion() || r.Question != "" && r.Question != s.nextQuestion() {
		return 0
	}
	return min(max(age/2, 20*time.Millisecond), time.Second)
}

// owesQuestion reports whether the next question is due to be put.
func (s *State) owesQuestion() bool {
	return slices.ContainsFunc(s.due(), func(d Duty) bool { _, put := d.(Put); return put })
}

func (w *Worker) acceptControl(ctx context.Context, d Delivery) (verdict, error) {
	control, unknown, problem := parseControl(d.Body)
	if len(unknown) > 0 {
		w.warnOnce("control "+strings.Join(unknown, ","), "a control has fields that mean nothing here; they are ignored", "fields", unknown)
	}
	if problem != nil {
		return verdict{status: OutcomeInvalid, message: problem.Error(), bury: "invalid_control"}, nil
	}
	if control.Op == OpCancel {
		if err := w.cancelPlanned(ctx, d.RunID); err != nil {
			return verdict{}, err
		}
	}
	v, err := w.turn(ctx, d, func(s *State) (Data, verdict) { return judgeControl(s, control) })
	if err == nil && v.status == OutcomeAccepted && control.Op != OpCancel {
		err = stored(w.passDown(ctx, d.RunID, control))
	}
	return v, err
}

func judgeControl(s *State, c Control) (Data, verdict) {
	done := verdict{status: OutcomeAccepted}
	switch {
	case s.N == 0 && c.Op != OpCancel:
		return nil, verdict{status: OutcomeUnknown, message: "there is no such run", bury: "unknown_run"}
	case s.Ended != nil:
		return nil, verdict{status: OutcomeFinished, message: "the run has ended"}
	case c.Op == OpPause && (s.Paused || s.Ending != nil), c.Op == OpResume && !s.Paused:
		return nil, done
	case c.Op == OpCancel:
		if _, cancelling := s.Ending.(Cancelled); cancelling {
			return nil, done
		}
	}
	return c, done
}

// turn appends what judge makes of the run's state, if anything. Where the event made a run owe something that owed
// nothing before, the run is woken.
func (w *Worker) turn(ctx context.Context, d Delivery, judge func(*State) (Data, verdict)) (v verdict, err error) {
	var trace Trace
	defer func() { v.trace = trace }()
	for {
		l, err := w.load(ctx, d.RunID)
		if err != nil {
			return verdict{}, err
		}
		if l.state.N > 0 {
			trace = l.state.Trace()
		}
		if e := l.causedBy(d); e != nil {
			return verdict{status: OutcomeAccepted}, stored(w.wakeIfTurned(ctx, l, *e))
		}
		data, v := judge(&l.state)
		if data == nil {
			return v, w.wakeUnclosed(ctx, l)
		}
		e := w.event(d.RunID, l.state.N+1, data)
		e.Cause, e.Metadata = d.cause(), l.state.Metadata()
		seq, err := w.Journal.Append(ctx, e, l.tail)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return verdict{}, fmt.Errorf("store a %s of %s: %w", d.Kind, d.RunID, err)
		}
		e.Seq = seq
		l.events = append(l.events, e)
		return v, stored(w.wakeIfTurned(ctx, l, e))
	}
}

// wakeIfTurned publishes a wake-up if the run owed nothing before the event e, one of its own, and something after it; and
// for the second event of a child run in any case: whoever stored the first one may have been stopped before it published
// the wake-up, and nobody will do it again once the run above has ended.
func (w *Worker) wakeIfTurned(ctx context.Context, l loaded, e Event) error {
	before, err := Fold(State{}, l.events[:e.N-1])
	if err != nil {
		return err
	}
	owedBefore := before.N > 0 && len(before.Owed()) > 0 && (before.Parent == "" || before.N > 1)
	after := Step(before, e)
	if owedBefore || len(after.Owed()) == 0 {
		return nil
	}
	return w.wakeFor(ctx, e, l)
}

// event makes an event of this worker, to be appended.
func (w *Worker) event(id RunID, n uint64, data Data) Event {
	return Event{RunID: id, N: n, Time: w.Now().UTC().Truncate(time.Microsecond), Source: w.source, Data: data}
}

// loaded is a run as its journal has it.
type loaded struct {
	head   Head // zero where there is none
	state  State
	events []Event
	tail   uint64 // expected last sequence of the next append
}

// causedBy finds the event that came from this queue message.
func (l loaded) causedBy(d Delivery) *Event {
	cause := d.cause()
	for i := range l.events {
		if l.events[i].Cause == cause {
			return &l.events[i]
		}
	}
	return nil
}

// load reads a run from its journal. A run that does not exist has an empty state.
func (w *Worker) load(ctx context.Context, id RunID) (loaded, error) {
	head, _, err := w.Heads.Load(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return loaded{}, fmt.Errorf("load the state of %s: %w", id, err)
	}
	page, err := w.Journal.Read(ctx, id, max(head.First, 1)-1)
	if err != nil {
		return loaded{}, fmt.Errorf("read the journal of %s: %w", id, err)
	}
	if page.Foreign > 0 {
		w.warnOnce("foreign "+id.String(), "the journal of a run holds messages that are no events of ours; they are skipped",
			"tenant", id.Tenant, "run", id.Run, "messages", page.Foreign)
	}
	state, err := Fold(State{RunID: id}, page.Events)
	if err != nil {
		return loaded{}, err
	}
	return loaded{head: head, state: state, events: page.Events, tail: page.Last}, nil
}
