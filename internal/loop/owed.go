package loop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Duty is one thing a run owes: an effect, as a value. Its members are
//
//	Recall AskModel RunCall Reconcile Delegate    need the world, run side by side, and end in an event
//	CloseCall AwaitOutcome Record Put GiveAnswer  need only to be written down
//	End                                           is the final event
//
//sumtype:decl
type Duty interface {
	// Key identifies the duty in its run: the same key means the same duty, also after other events.
	Key() string
	duty()
}

type (
	// Recall asks memory and the session for what is known. It ends in Facts, or in Wait where it is not the run's turn.
	Recall struct{}
	// AskModel asks the model for the next message.
	AskModel struct {
		Purpose Purpose
		About   string // step of the plan, for calls that are made for several steps side by side
		Turn    int    // number of the turn, or of the try for that step, from 1
	}
	// RunCall runs a tool. For a once tool it ends in Started first, then, Started set, in the Observation.
	RunCall struct{ OpenCall }
	// Reconcile asks what became of a started call.
	Reconcile struct{ OpenCall }
	// Delegate writes down a child run that carries a call out, and begins it; or, once it has ended, reads what came of it.
	Delegate struct{ OpenCall }

	// AwaitOutcome lets the time pass in which a started call may still be under way.
	AwaitOutcome struct{ OpenCall }
	// CloseCall gives an open call an observation without running it.
	CloseCall struct {
		OpenCall
		Status ObservedStatus
		Text   string
	}
	// Record is an event that the strategy makes by itself.
	Record struct {
		What string // names it in the run
		// Make returns the event, of a state in which it is owed. It is pure and never returns nil.
		Make func(s *State, tools Toolbox) Data
	}
	// Put asks a person.
	Put struct {
		ID       string
		Question Question // without its deadline
	}
	// GiveAnswer ends the run well.
	GiveAnswer struct{ Text string }
	// End ends the run with Failed or Cancelled.
	End struct{ Data Data }
)

// Key returns recall.
func (Recall) Key() string { return "recall" }

// Key names the turn.
func (d AskModel) Key() string {
	return "model/" + string(d.Purpose) + "/" + d.About + "/" + strconv.Itoa(d.Turn)
}

// Key names the call.
func (d RunCall) Key() string { return "call/" + d.Call }

// Key names the call.
func (d Reconcile) Key() string { return "reconcile/" + d.Call }

// Key names the call.
func (d Delegate) Key() string { return "child/" + d.Call }

// Key names the call.
func (d AwaitOutcome) Key() string { return "await/" + d.Call }

// Key names the call.
func (d CloseCall) Key() string { return "close/" + d.Call }

// Key names the event.
func (d Record) Key() string { return "record/" + d.What }

// Key names the question.
func (d Put) Key() string { return "put/" + d.ID }

// Key returns answer.
func (GiveAnswer) Key() string { return "answer" }

// Key returns end.
func (End) Key() string { return "end" }

func (Recall) duty()       {}
func (AskModel) duty()     {}
func (RunCall) duty()      {}
func (Reconcile) duty()    {}
func (Delegate) duty()     {}
func (AwaitOutcome) duty() {}
func (CloseCall) duty()    {}
func (Record) duty()       {}
func (Put) duty()          {}
func (GiveAnswer) duty()   {}
func (End) duty()          {}

// Owed returns what must happen next, in the order in which it should begin. Nothing means that the run waits for a
// person, a time, its turn or its child, is paused, or has ended.
func (s *State) Owed() []Duty {
	if s.Paused {
		return nil
	}
	return s.due()
}

// due is Owed, whether the run is paused or not.
func (s *State) due() []Duty {
	if s.N > 0 && s.owingAt == s.N {
		return s.owing
	}
	return s.findDue()
}

func (s *State) findDue() []Duty {
	switch {
	case s.N == 0 || s.Ended != nil:
		return nil
	case s.Ending != nil:
		return s.closing()
	case s.Wait != nil && s.Wait.Session:
		return nil
	case s.Facts == nil:
		return []Duty{Recall{}}
	case s.Asking != nil:
		return []Duty{s.ask()}
	case s.Answering != nil:
		return []Duty{GiveAnswer{Text: *s.Answering}}
	}
	duties := s.openDuties()
	if len(s.Calls) == 0 && len(s.Escalate) > 0 && s.Question == nil {
		duties = append(duties, s.escalation())
	}
	if st, known := strategies[s.Task.Strategy]; known {
		duties = append(duties, s.allowed(st.next(s))...)
	}
	return duties
}

// busy reports whether a call is open or a person is to be heard first.
func (s *State) busy() bool { return len(s.Calls) > 0 || len(s.Escalate) > 0 || s.Question != nil }

// closing gives every open call an observation, then ends the run.
func (s *State) closing() []Duty {
	if len(s.Calls) == 0 {
		if f, failed := s.Ending.(Failed); failed {
			if ask, ok := s.postMortem(f); ok {
				return []Duty{ask}
			}
		}
		return []Duty{End{Data: s.final()}}
	}
	duties := make([]Duty, 0, len(s.Calls))
	for _, c := range s.Calls {
		d := CloseCall{OpenCall: c, Status: ObservedCancelled, Text: "The run was ended before this call was done."}
		if c.Started {
			d.Status = ObservedUnknown
			d.Text = "The run was ended after this call was sent; whether it took effect is unknown."
		}
		duties = append(duties, d)
	}
	return duties
}

func (s *State) final() Data {
	if f, ok := s.Ending.(Failed); ok {
		f.Usage = s.Usage
		return f
	}
	return s.Ending
}

func (s *State) ask() Duty {
	id := s.nextQuestion()
	return Put{ID: id, Question: Question{
		Question: id, Kind: KindAsk, Text: s.Asking.Question, AnswerSchema: s.Asking.AnswerSchema,
	}}
}

func (s *State) nextQuestion() string { return fmt.Sprintf("q%d", s.questionCount+1) }

// openDuties is what the open calls need. Approvals are asked for one at a time; the other calls do not wait for them.
func (s *State) openDuties() []Duty {
	var duties []Duty
	asking := s.Question != nil
	for _, c := range s.Calls {
		switch {
		case c.Approval == approvalRefused:
			duties = append(duties, CloseCall{OpenCall: c, Status: ObservedError, Text: strings.TrimSpace(c.Refusal)})
		case c.Approval == approvalNeeded:
			if !asking {
				asking = true
				duties = append(duties, s.approvalOf(c))
			}
		case s.delegates(c.Tool):
			duties = append(duties, childDuties(c)...)
		case c.Started && c.Waiting == nil:
			duties = append(duties, AwaitOutcome{c})
		case c.Started && !c.Overdue:
		case c.Started:
			duties = append(duties, Reconcile{c})
		default:
			duties = append(duties, RunCall{c})
		}
	}
	return duties
}

func (s *State) approvalOf(c OpenCall) Duty {
	id := s.nextQuestion()
	return Put{ID: id, Question: Question{
		Question: id, Kind: KindApproval, Text: "May I call " + c.Tool + " with these arguments?",
		Call: c.Call, Tool: c.Tool, Arguments: c.Arguments,
	}}
}

func (s *State) escalation() Duty {
	id, c := s.nextQuestion(), s.Escalate[0]
	return Put{ID: id, Question: Question{
		Question: id, Kind: KindEscalation, AnswerSchema: []byte(outcomeSchema),
		Call: c.Call, Tool: c.Tool, Arguments: c.Arguments,
		Text: "A call of " + c.Tool + " was sent and no answer to it came back. It must not be repeated blindly, and " +
			"nobody can tell whether it took effect. Please look, then say done (with the result, if there is one), not_done, " +
			"or give_up.",
	}}
}

// allowed leaves out model calls while the run waits for the model, and those that its limits no longer allow. Once
// nothing else is owed or open, the run ends as the limit demands.
func (s *State) allowed(duties []Duty) []Duty {
	isAsk := func(d Duty) bool { _, model := d.(AskModel); return model }
	if !slices.ContainsFunc(duties, isAsk) {
		return duties
	}
	end := s.spentLimit()
	if end == nil && s.Wait == nil {
		return duties
	}
	duties = slices.DeleteFunc(duties, isAsk)
	if end != nil && len(duties) == 0 && !s.busy() {
		if ask, ok := s.postMortem(s.failure()); ok {
			return []Duty{ask}
		}
		return []Duty{end}
	}
	return duties
}

// spentLimit is the end that a limit on model calls demands; nil where there is none.
func (s *State) spentLimit() Duty {
	l := s.Task.Limits
	switch {
	case s.Turns-s.turnsBefore >= l.MaxSteps:
		return End{Data: Failed{
			Reason: FailStepsExhausted, Usage: s.Usage,
			Message: fmt.Sprintf("The run used all of its %d model turns without reaching an answer.", l.MaxSteps),
		}}
	case s.tokensSpent():
		return End{Data: s.outOfTokens(fmt.Sprintf("The run used %d tokens; its limit is %s.", s.tokensUsed(), s.sayLimit()))}
	default:
		return nil
	}
}
