package loop

import (
	"fmt"
	"slices"
	"time"
)

// Step folds one event into the state of its run. It is pure: what it returns depends on its arguments alone. It
// panics on an event whose number does not follow; whoever reads a journal checks that first, see [Fold].
func Step(s State, e Event) State {
	s.step(e)
	return s
}

// step is Step in place. Only the newest state of a run may be stepped in any case, and a copy for each event is not free.
func (s *State) step(e Event) {
	if e.N != s.N+1 {
		panic(fmt.Sprintf("loop: event %d of %s follows event %d", e.N, e.RunID, s.N))
	}
	if s.N == 0 {
		s.RunID, s.First, s.Began = e.RunID, e.Seq, e.Time
	}
	s.countWork(e)
	s.N, s.Seq, s.Last = e.N, e.Seq, e.Time
	s.apply(e)
	if m, ok := modelMade(e.Data); ok {
		s.releaseNotes(m.Seen)
	}
	if st, ok := strategies[s.Task.Strategy]; ok && !isRetry(e.Data) {
		st.fold(s, e)
		s.hear(e, st.observe(s, e))
	}
	s.owing, s.owingAt = s.findDue(), s.N
	s.working = s.Ended == nil && !s.Paused && s.Facts != nil && len(s.due()) > 0
	s.lastByDriver = e.Cause == ""
}

// isRetry reports whether an event begins the run anew, which is the engine's business alone.
func isRetry(d Data) bool {
	r, ok := d.(Reflection)
	return ok && r.Retry > 0
}

// GapError says that a run's events are not numbered without gaps: its journal is broken.
type GapError struct {
	Run  RunID
	Want uint64
	Got  uint64
}

// Error says what is missing.
func (e *GapError) Error() string {
	return fmt.Sprintf("the journal of %s is broken: event %d is missing, event %d follows", e.Run, e.Want, e.Got)
}

// Fold folds events into s, in order. It stops with a *GapError where one does not follow the one before.
func Fold(s State, events []Event) (State, error) {
	for _, e := range events {
		if e.N != s.N+1 {
			return s, &GapError{Run: e.RunID, Want: s.N + 1, Got: e.N}
		}
		s.step(e)
	}
	return s, nil
}

// countWork adds the time since the last event to the time the run has worked. Time in a queue does not count: after
// an event made at the door only what the next one says of its own duration does.
func (s *State) countWork(e Event) {
	if !s.working {
		return
	}
	spent := max(e.Time.Sub(s.Last), 0)
	if !s.lastByDriver {
		spent = min(spent, duration(e.Data))
	}
	s.Worked += spent
}

// duration is how long it took to make the event.
func duration(d Data) time.Duration {
	if m, ok := modelMade(d); ok {
		return time.Duration(m.MS) * time.Millisecond
	}
	if o, ok := d.(Observation); ok {
		return time.Duration(o.MS) * time.Millisecond
	}
	return 0
}

// modelMade returns what the model call behind an event was like; ok is false for events that no model made.
func modelMade(d Data) (m Made, ok bool) {
	switch d := d.(type) {
	case Plan:
		return d.Made, true
	case Thought:
		return d.Made, true
	case Call:
		return d.Made, true
	case Rejection:
		return d.Made, true
	case Reflection:
		return d.Made, true
	case Summary:
		return d.Made, d.Usage != nil
	case Accepted, Facts, Started, Observation, Question, Reply, Note, Control, Timeout, Wait, Child, Answer, Failed, Cancelled:
	}
	return Made{}, false
}

// releaseNotes moves the notes that a prompt up to event seen contained into the transcript, before the reply to it.
func (s *State) releaseNotes(seen uint64) {
	var held []heldNote
	for _, note := range s.Notes {
		if note.n <= seen {
			s.add(entry{Message: note.message(), n: note.n, kind: fromPerson})
		} else {
			held = append(held, note)
		}
	}
	s.Notes = held
}

func (n heldNote) message() Message {
	return Message{Role: "user", Content: "The person says, while you work: " + n.text}
}

func (s *State) apply(e Event) {
	switch d := e.Data.(type) {
	case Accepted:
		s.Task, s.Tools, s.Prompt, s.Catalogue, s.Traceparent = d.Task, d.Tools, d.Prompt, d.Catalogue, d.Traceparent
		s.Parent, s.ParentCall, s.Chain = d.Parent, d.ParentCall, d.Chain
		s.say(e, "user", d.Task.Goal)
	case Facts:
		s.Facts, s.Wait = &d, nil
	case Plan:
		s.made(d.Made)
		s.Plan = d.Plan
	case Thought:
		s.made(d.Made)
		s.Plan, s.Asking, s.Answering = d.Plan, d.Ask, d.Answer
	case Call:
		if d.Model != "" || d.Usage != nil {
			s.made(d.Made)
		}
		if d.Plan != nil {
			s.Plan = d.Plan
		}
		s.openCalls(d.Calls)
	case Rejection:
		s.rejected(d)
	case Reflection:
		s.made(d.Made)
		if isRetry(d) {
			s.tryAgain(d)
		}
	case Started:
		if c := s.call(d.Call); c != nil {
			c.Started, c.StartedAt, c.Waiting, c.Overdue = true, e.Time, nil, false
		}
	case Observation:
		s.observed(d)
	case Question:
		s.put(e, d)
	case Reply:
		s.replied(e, d)
	case Note:
		s.say(e, "user", d.Text)
		s.Notes = append(s.Notes, heldNote{e.N, d.Text})
	case Control:
		s.controlled(d)
	case Timeout:
		s.timedOut(d, e.Time)
	case Wait:
		s.waits(e.N, d)
	case Summary:
		s.paid(d.Made)
		s.summarized(d)
	case Child:
		s.childMoved(e, d)
	case Answer:
		s.Answering, s.Ended = nil, d
		s.say(e, "assistant", d.Answer)
	case Failed:
		s.Ended = d
		s.say(e, "assistant", "I could not do this: "+d.Message)
	case Cancelled:
		s.Ended = d
		if text := s.unfinished(); text != "" {
			s.say(e, "assistant", text)
		}
	default:
		panic(fmt.Sprintf("loop: no fold for %T", d))
	}
}

func (s *State) say(e Event, role, text string) {
	s.Trail = append(s.Trail, SessionMessage{Role: role, Text: text, Run: s.Run, N: e.N, Time: e.Time})
}

// made counts an accepted model turn.
func (s *State) made(m Made) {
	s.spent(m)
	s.Rejections = 0
}

func (s *State) spent(m Made) {
	s.Turns++
	s.Wait, s.ModelTries = nil, 0
	s.paid(m)
	if m.Usage != nil {
		s.lastUsage = *m.Usage
	}
}

// paid counts what a model call has cost, also one that is no turn.
func (s *State) paid(m Made) {
	s.Lost += m.Lost
	if m.Usage != nil {
		s.Usage = s.Usage.Add(*m.Usage)
	}
}

func (s *State) rejected(d Rejection) {
	s.spent(d.Made)
	s.Rejections = d.Attempt
	if d.Repeat != "" {
		if s.repeats == nil {
			s.repeats = map[string]repeat{}
		}
		r := s.repeats[d.Repeat]
		r.refused++
		s.repeats[d.Repeat] = r
		if r.refused > 1 {
			s.end(Failed{Reason: FailNoProgress, Message: "The run kept asking for the same tool call that leads nowhere. " + d.Error})
			return
		}
	}
	if s.Rejections > s.Task.Limits.MaxRejections {
		s.end(Failed{
			Reason:  FailRejectionsExhausted,
			Message: fmt.Sprintf("The model's reply could not be used %d times in a row; the last problem: %s", s.Rejections, d.Error),
		})
	}
}

// end sets the run on its way to an end; the first cause wins, except that a cancel overrules a failure.
func (s *State) end(d Data) {
	if s.Ended != nil {
		return
	}
	s.owingAt = 0
	_, cancelling := s.Ending.(Cancelled)
	_, cancel := d.(Cancelled)
	if s.Ending == nil || (cancel && !cancelling) {
		s.Ending = d
	}
	s.Question, s.Asking, s.Answering, s.Wait, s.Escalate, s.Paused = nil, nil, nil, nil, nil, false
}

func (s *State) openCalls(calls []ToolCall) {
	s.callCount += len(calls)
	open := make([]OpenCall, 0, len(s.Calls)+len(calls))
	open = append(open, s.Calls...)
	for _, c := range calls {
		o := OpenCall{ToolCall: c}
		if s.needsApproval(c.Tool) {
			o.Approval = approvalNeeded
		}
		open = append(open, o)
	}
	s.Calls = open
}

func (s *State) observed(d Observation) {
	c := s.call(d.Call)
	if c == nil {
		return
	}
	call := c.ToolCall
	s.lastCall = call
	kept := make([]OpenCall, 0, len(s.Calls))
	for _, o := range s.Calls {
		if o.Call != d.Call {
			kept = append(kept, o)
		}
	}
	s.Calls = kept
	switch d.Status {
	case ObservedOK:
		s.Results = append(s.Results, CallResult{d.Call, d.Result})
		if call.Effect == EffectOnce {
			s.effects = append(s.effects, call.Tool+" "+clip(string(call.Arguments), 300))
		}
	case ObservedUnknown:
		s.unsure = s.unsure || s.Ending != nil
		if s.Ending == nil {
			s.Escalate = append(s.Escalate, call)
		}
	case ObservedError, ObservedCancelled, ObservedSkipped:
	}
	s.countRepeat(fingerprint(call.Tool, call.Arguments), digest([]byte(d.Status), d.Result))
}

func (s *State) countRepeat(print, result string) {
	if s.repeats == nil {
		s.repeats = map[string]repeat{}
	}
	r := s.repeats[print]
	if r.result != result {
		r = repeat{result: result}
	}
	r.count++
	s.repeats[print], s.sameAgain = r, r.count
	s.mostRepeats = max(s.mostRepeats, r.count)
}

func (s *State) put(e Event, d Question) {
	s.Question, s.questionN, s.Asking = &d, e.N, nil
	s.questionCount++
	if s.asked == nil {
		s.asked = map[string]replyKey{}
	}
	s.asked[d.Question] = replyKey{}
	if d.Kind == KindEscalation {
		s.Escalate = slices.DeleteFunc(s.Escalate, func(c ToolCall) bool { return c.Call == d.Call })
	}
	s.Schedules = append(s.Schedules, questionSchedule(e.N))
	s.say(e, "assistant", d.Text)
}

func (s *State) controlled(d Control) {
	switch d.Op {
	case OpCancel:
		s.end(Cancelled{Reason: d.Reason, By: d.By})
	case OpPause:
		s.Paused = s.Ended == nil && s.Ending == nil
	case OpResume:
		s.Paused = false
	default: // no worker of ours writes another one
	}
}

func (s *State) waits(n uint64, d Wait) {
	if !d.Until.IsZero() {
		s.Schedules = append(s.Schedules, waitSchedule(n))
	}
	if c := s.call(d.Call); c != nil {
		c.Waiting, c.waitN = &d, n
		return
	}
	s.Wait, s.waitN, s.ModelTries = &d, n, d.Attempt
}

// Names of a run's schedules; the number of the event each was published for makes them differ.
func questionSchedule(n uint64) string { return fmt.Sprintf("question-%d", n) }
func waitSchedule(n uint64) string     { return fmt.Sprintf("wait-%d", n) }
