package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ratchet/internal/plan"
)

// dagState is what plan_execute knows of its plan.
type dagState struct {
	steps   plan.DAG             // with status and result as they stand; nil before the first plan
	calls   map[string]string    // step of each call
	cut     []string             // steps of whose result only an excerpt is known
	replans int                  // plans that were written after the first, since a person last allowed them
	ready   []readyStep          // those that can start, in the order of the plan
	skips   []plan.Skip          // those that never can, and are not marked so yet
	talks   map[string][]Message // by step: refused fills and the corrections, in turn
	asked   map[string]string    // steps whose unknown outcome a question is about, by question
	spent   string               // question about spent replans
	ended   bool                 // the last event ended the last step
}

// readyStep is a step that can start, with its arguments as they go out, or why there are none.
type readyStep struct {
	step    plan.DAGStep
	args    json.RawMessage
	problem string
}

// failed returns the last failed step of the plan, or nil.
func (d *dagState) failed() *plan.DAGStep {
	for i := len(d.steps) - 1; i >= 0; i-- {
		if d.steps[i].Status == plan.Failed {
			return &d.steps[i]
		}
	}
	return nil
}

// results are those of done steps, by id.
func (d *dagState) results() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(d.steps))
	for _, s := range d.steps {
		if s.Status == plan.Done {
			out[s.ID] = s.Result
		}
	}
	return out
}

func (planExecute) fold(s *State, e Event) {
	d := &s.dag
	before := d.steps == nil || d.steps.Ended()
	d.ended = false
	switch data := e.Data.(type) {
	case Plan:
		d.adopt(data)
		s.Plan = slices.Clone(data.Plan)
	case Call:
		for _, c := range data.Calls {
			if d.calls == nil {
				d.calls = map[string]string{}
			}
			d.calls[c.Call] = c.Step
			delete(d.talks, c.Step)
			s.mark(c.Step, plan.Running, nil)
		}
	case Observation:
		s.observedStep(data)
	case Rejection:
		if data.Step != "" {
			if d.talks == nil {
				d.talks = map[string][]Message{}
			}
			d.talks[data.Step] = append(d.talks[data.Step], Message{Role: "assistant", Content: cmpOr(data.Reply, "(nothing)")},
				Message{Role: "user", Content: "This was not used. " + data.Error})
		}
	case Question:
		switch {
		case data.Kind != KindEscalation:
		case data.Call == "":
			d.spent = data.Question
		default:
			if d.asked == nil {
				d.asked = map[string]string{}
			}
			d.asked[data.Question] = d.calls[data.Call]
		}
	case Reply:
		s.repliedStep(data)
	case Timeout:
		s.silentStep(data)
	case Accepted, Facts, Thought, Reflection, Started, Note, Control, Wait, Child, Summary, Answer, Failed, Cancelled:
		return
	}
	if d.steps != nil {
		s.schedule()
		d.ended = !before && d.steps.Ended()
	}
}

// adopt takes a plan over. Steps that stay keep what came of them.
func (d *dagState) adopt(p Plan) {
	before := d.steps
	d.steps = slices.Clone(p.DAG)
	for i := range d.steps {
		if j := before.Index(d.steps[i].ID); j >= 0 && d.steps[i].Status != plan.Pending {
			d.steps[i] = before[j]
		}
	}
	if !p.Created {
		d.replans++
	}
	d.talks, d.ready = nil, nil
	d.cut = slices.DeleteFunc(d.cut, func(id string) bool {
		i := d.steps.Index(id)
		return i < 0 || d.steps[i].Status != plan.Done
	})
}

// mark sets where a step stands, in the plan and in the form of it that people see.
func (s *State) mark(id string, status plan.Status, result json.RawMessage) {
	i := s.dag.steps.Index(id)
	if i < 0 {
		return
	}
	s.dag.steps[i].Status, s.dag.steps[i].Result = status, result
	if i >= len(s.Plan) {
		return
	}
	s.Plan = slices.Clone(s.Plan)
	s.Plan[i].Status, s.Plan[i].Result = status, shownResult(result)
}

func (s *State) observedStep(o Observation) {
	id := o.Step
	if id == "" {
		id = s.dag.calls[o.Call]
	}
	switch o.Status {
	case ObservedOK:
		if o.Truncated {
			s.dag.cut = append(s.dag.cut, id)
		}
		s.mark(id, plan.Done, o.Result)
	case ObservedError, ObservedCancelled:
		s.mark(id, plan.Failed, o.Result)
	case ObservedSkipped:
		s.mark(id, plan.Skipped, o.Result)
	case ObservedUnknown: // it runs until a person has said what became of it
	}
}

// RetryReply is a person's word on spent replans.
type RetryReply struct {
	Action string `json:"action"` // retry or give_up
	Text   string `json:"text,omitempty"`
}

func (s *State) repliedStep(r Reply) {
	d := &s.dag
	if id, about := d.asked[r.Question]; about {
		var o OutcomeReply
		if json.Unmarshal(r.Value, &o) != nil {
			return
		}
		switch o.Outcome {
		case "done":
			s.mark(id, plan.Done, orNull(o.Result))
		case "not_done":
			s.mark(id, plan.Pending, nil) // it is sent anew, under another call id
		}
		return
	}
	if r.Question != d.spent || d.spent == "" {
		return
	}
	var o RetryReply
	if json.Unmarshal(r.Value, &o) == nil && o.Action == "retry" {
		d.replans = 0
		return
	}
	s.end(s.outOfReplans())
}

func (s *State) silentStep(t Timeout) {
	if t.What != TimeoutQuestion || s.Ending != nil {
		return
	}
	if id, about := s.dag.asked[t.Question]; about {
		s.mark(id, plan.Failed, json.RawMessage(`"The call was sent, and whether it took effect is not known."`))
	} else if t.Question == s.dag.spent {
		s.end(s.outOfReplans())
	}
}

func (s *State) outOfReplans() Failed {
	f := Failed{Reason: FailReplansExhausted, Message: "The plan failed and all replans are spent."}
	if step := s.dag.failed(); step != nil {
		f.Message += " Step " + step.ID + ", " + step.Tool + ", says: " + clip(s.hide(jsonText(step.Result)), 1000)
	}
	return f
}

// schedule finds out what can start and what never can.
func (s *State) schedule() {
	d := &s.dag
	ready := d.steps.Ready()
	next := make([]readyStep, 0, len(ready))
	var results map[string]json.RawMessage
	for _, step := range ready {
		if i := slices.IndexFunc(d.ready, func(r readyStep) bool { return r.step.ID == step.ID }); i >= 0 && d.ready[i].same(step) {
			next = append(next, d.ready[i])
			continue
		}
		if results == nil {
			results = d.results()
		}
		next = append(next, s.prepare(step, results))
	}
	d.ready, d.skips = next, d.steps.Skipped()
}

// prepare finds out how a step's call goes out.
func (s *State) prepare(step plan.DAGStep, results map[string]json.RawMessage) readyStep {
	fields := make(map[string]json.RawMessage, len(step.Open))
	for _, name := range step.Open {
		fields[name] = json.RawMessage("null") // stands for what the fill gives
	}
	r := readyStep{step: step}
	largest := maxVars
	for _, id := range step.After {
		largest = max(largest, len(results[id]))
	}
	if strings.Count(string(step.Args), "$")*largest > maxResolved {
		r.problem = "Its arguments refer to too much: with all values in place they could have megabytes."
		return r
	}
	call, err := step.Call(results, s.Task.Vars, fields, s.dag.cut...)
	switch {
	case err != nil:
		r.problem = s.hide(err.Error())
	case len(call.Arguments) > maxStepBytes:
		r.problem = fmt.Sprintf("The arguments have %d bytes; %d is the most.", len(call.Arguments), maxStepBytes)
	case len(step.Open) == 0:
		r.args = call.Arguments
	}
	return r
}

func (r readyStep) same(step plan.DAGStep) bool {
	return r.step.Tool == step.Tool && string(r.step.Args) == string(step.Args) && slices.Equal(r.step.After, step.After)
}
