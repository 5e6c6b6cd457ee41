package loop

import (
	"cmp"
	"context"
	"fmt"
)

// Everything that a prompt is made of is in the run's journal or named by it: the task, what memory and the session knew,
// the version of the texts, what the tools said. So the prompt of any turn can be made again.

// PromptView is one model call of a run, made again from the run's journal.
type PromptView struct {
	Run     string  `json:"run"`
	Turn    int     `json:"turn"`  // from 1
	Turns   int     `json:"turns"` // that the run has, one that is under way or due included
	N       uint64  `json:"n,omitempty"`
	Purpose Purpose `json:"purpose"`
	About   string  `json:"about,omitempty"` // step of the plan that it is about, or retry
	Model   string  `json:"model,omitempty"` // which one answered, or is asked; empty: the worker's default
	Prompt  string  `json:"prompt"`          // version of the texts

	Messages []Message `json:"messages"`
	JSON     bool      `json:"json,omitempty"`  // a JSON object is asked for
	Tools    []string  `json:"tools,omitempty"` // offered beside the messages, in the endpoint's own form
	Stop     []string  `json:"stop,omitempty"`
	Note     string    `json:"note,omitempty"` // in what the messages may differ from what was sent
}

// NoTurnError says that a run has no such turn.
type NoTurnError struct {
	Run   RunID
	Turn  int // what was asked for; 0: the last
	Turns int // how many there are
}

// Error says how many there are.
func (e *NoTurnError) Error() string {
	switch {
	case e.Turns == 0:
		return "the model has not been asked anything in run " + e.Run.Run
	case e.Turns == 1:
		return fmt.Sprintf("run %s has one turn; there is no turn %d", e.Run.Run, e.Turn)
	default:
		return fmt.Sprintf("run %s has the turns 1 to %d; there is no turn %d", e.Run.Run, e.Turns, e.Turn)
	}
}

// Prompt returns the model call of one turn of a run, 0 being the last; a call that is under way or due is the last. Turns
// are counted in the order in which their replies were stored. It fails with ErrNotFound where there is no such run, with
// [*NoTurnError], and with ErrNewer where the run is of a newer version.
func (w *Worker) Prompt(ctx context.Context, id RunID, turn int) (PromptView, error) {
	l, err := w.load(ctx, id)
	if err != nil {
		return PromptView{}, err
	}
	if l.state.N == 0 {
		return PromptView{}, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	if err := l.state.drivable(); err != nil {
		return PromptView{}, err
	}
	at, replies, open := turnAt(&l.state, l.events, turn)
	if at == 0 {
		return PromptView{}, &NoTurnError{Run: id, Turn: turn, Turns: replies + open}
	}
	s, err := Fold(State{RunID: id}, l.events[:at])
	if err != nil {
		return PromptView{}, err
	}
	v := PromptView{Run: id.Run, Turn: cmp.Or(turn, replies+open), Turns: replies + open, Model: s.Task.Model, Prompt: s.promptVersion()}
	ask, room := s.nextAsk(), 0
	if v.Turn <= replies {
		reply := l.events[nthReply(l.events, v.Turn)]
		made, _ := modelMade(reply.Data)
		v.N, v.Model = reply.N, cmp.Or(made.Model, v.Model)
		ask, room = s.askOf(reply), made.Room
	}
	tools, _, note, err := w.toolbox(ctx, &s, false)
	if err != nil {
		return PromptView{}, err
	}
	v.fill(&s, tools, ask, room)
	v.Note = note
	return v, nil
}

// fill makes the call of the state in which it was made. room is what it was cut to, 0 where it was not.
func (v *PromptView) fill(s *State, tools Toolbox, ask AskModel, room int) {
	r := s.request(tools, strategies[s.Task.Strategy].opening(s, tools), ask)
	if room > 0 {
		r.squeeze(ask, room)
	}
	v.Purpose, v.About, v.Messages, v.JSON, v.Stop = ask.Purpose, ask.About, r.Messages, r.JSON, r.Stop
	if len(r.Tools) > 0 {
		v.Tools = NewToolbox(r.Tools).Names()
	}
}

// turnAt finds the turn, 0 being the last: how many events its prompt was made of, 0 where there is no such turn. replies
// is how many turns the model has answered, open is 1 where it is to be asked now.
func turnAt(s *State, events []Event, turn int) (at uint64, replies, open int) {
	for i := range events {
		if answersTurn(events[i].Data) {
			replies++
		}
	}
	if s.nextAsk() != (AskModel{}) {
		open = 1
	}
	if turn == 0 {
		turn = replies + open
	}
	switch {
	case turn < 1 || turn > replies+open:
		return 0, replies, open
	case turn > replies:
		return s.N, replies, open
	}
	e := events[nthReply(events, turn)]
	made, _ := modelMade(e.Data)
	return min(cmp.Or(made.Seen, made.Asked, e.N-1), e.N-1), replies, open
}

// nthReply is the place of the event in which the model's turn ended.
func nthReply(events []Event, turn int) int {
	for i := range events {
		if answersTurn(events[i].Data) {
			if turn--; turn == 0 {
				return i
			}
		}
	}
	panic("loop: no such turn")
}

// answersTurn reports whether the event is what a turn of the model became. What a model says in a Summary is none.
func answersTurn(d Data) bool {
	made, ok := modelMade(d)
	switch d.(type) {
	case Call:
		return made.Model != "" || made.Usage != nil // else it is a step of the plan
	case Summary:
		return false
	default:
		return ok
	}
}

// nextAsk is the first model call that is owed; empty where there is none.
func (s *State) nextAsk() AskModel {
	for _, d := range s.due() {
		if ask, model := d.(AskModel); model {
			return ask
		}
	}
	return AskModel{}
}

// askOf is the model call that ended in the event; s is the run as it was when the model was asked.
func (s *State) askOf(reply Event) AskModel {
	about, purpose := "", PurposeStep
	switch d := reply.Data.(type) {
	case Reflection:
		purpose = PurposeReflect
		if d.Retry > 0 {
			return AskModel{Purpose: purpose, About: aboutRetry, Turn: d.Retry}
		}
	case Rejection:
		about = d.Step
	case Call:
		if len(d.Calls) > 0 {
			about = d.Calls[0].Step
		}
	case Plan, Thought, Accepted, Facts, Started, Observation, Question, Reply, Note, Control, Timeout, Wait, Child, Summary, Answer,
		Failed, Cancelled:
	}
	for _, d := range s.due() {
		if ask, model := d.(AskModel); model && ask.About == about {
			return ask
		}
	}
	if about != "" {
		purpose = PurposeFill
	}
	return AskModel{Purpose: purpose, About: about, Turn: s.Turns + 1}
}
