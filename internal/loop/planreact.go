package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"ratchet/internal/plan"
)

// planReact makes the model plan first, then act, one JSON message per turn, every message with the whole plan.
type planReact struct{}

const planReactPrompt = "plan_react/2"

func (planReact) prompt() string { return planReactPrompt }

func (planReact) fold(*State, Event) {}

func (planReact) next(s *State) []Duty {
	if s.busy() {
		return nil
	}
	return []Duty{AskModel{Purpose: PurposeStep, Turn: s.Turns + 1}}
}

func (planReact) opening(s *State, tools Toolbox) []Message {
	data := struct {
		Tools    []ToolSpec
		Facts    *Facts
		Task     Task
		MinSteps int
	}{tools.specs, s.Facts, s.Task, s.Task.Limits.MinPlanSteps}
	return []Message{
		{Role: "system", Content: s.systemText("system.tmpl", tools, strconv.Itoa(data.MinSteps), data)},
		{Role: "user", Content: s.text("goal.tmpl", data)},
	}
}

func (planReact) request(s *State, tools Toolbox, opening []Message, _ AskModel) ModelRequest {
	return ModelRequest{Messages: Conversation(s, opening), JSON: true, Schema: tools.messageSchema()}
}

func (planReact) judge(s *State, tools Toolbox, _ AskModel, r *ModelReply) Data {
	made := Made{Model: r.Model, Usage: &r.Usage, MS: r.MS, Seen: r.Seen}
	m, err := plan.Read(r.Text)
	written := slices.Clone(m.Calls)
	if err == nil {
		m, err = plan.Check(s.Plan, m, plan.Rules{
			MinSteps: s.Task.Limits.MinPlanSteps, Tools: tools.Names(), Arguments: tools.arguments,
		})
	}
	if err != nil {
		return s.rejection(err.Error(), r, made)
	}
	return noteCoercions(s.message(m, r, made), written)
}

// noteCoercions puts the arguments as the model wrote them beside those that were changed, without loss, to fit the
// tool's schema: "42" for 42.
func noteCoercions(d Data, written []plan.Call) Data {
	c, isCall := d.(Call)
	if !isCall {
		return d
	}
	for i, w := range written {
		used := &c.Calls[i]
		if len(w.Arguments) > 0 && !bytes.Equal(w.Arguments, used.Arguments) &&
			fingerprint(w.Name, w.Arguments) != fingerprint(w.Name, used.Arguments) {
			used.Written = w.Arguments
		}
	}
	return c
}

func (s *State) rejection(problem string, r *ModelReply, made Made) Rejection {
	if r.Truncated {
		problem = "The reply was cut off at the endpoint's output limit. Be shorter. " + problem
	}
	return Rejection{Error: problem, Attempt: s.Rejections + 1, Reply: clip(r.Text, 2<<10), Made: made}
}

// message turns a checked message into the event that records it.
func (s *State) message(m plan.Message, r *ModelReply, made Made) Data {
	switch m.Type {
	case plan.CreatePlan, plan.UpdatePlan:
		return Plan{Plan: m.Plan, Thought: m.Thought, Created: m.Type == plan.CreatePlan, Made: made}
	case plan.ReasoningStep:
		return Thought{Thought: m.Thought, Plan: m.Plan, Made: made}
	case plan.AskUser:
		return Thought{Thought: m.Thought, Plan: m.Plan, Made: made, Ask: &Asking{Question: m.Question, AnswerSchema: m.AnswerSchema}}
	case plan.FinalAnswer:
		if s.toldSince(made) {
			return Thought{Thought: m.Thought, Plan: m.Plan, Made: made} // the person has said more since: no answer yet
		}
		return Thought{Thought: m.Thought, Plan: m.Plan, Made: made, Answer: &m.Answer}
	case plan.ToolCall:
		if problem, print := s.leadsNowhere(m.Calls, planReactWayOut); problem != "" {
			rejection := s.rejection(problem, r, made)
			rejection.Repeat = print
			return rejection
		}
		return Call{Calls: s.toolCalls(m.Calls), Thought: m.Thought, Plan: m.Plan, Made: made}
	default:
		panic("loop: no event for message type " + string(m.Type))
	}
}

// repeatsAllowed is how often the same call may give the same result before it is refused.
const repeatsAllowed = 3

// wayOut is what a model is told to do about a call that leads nowhere, and how it is to write.
type wayOut struct{ instead, closing string }

var planReactWayOut = wayOut{
	"Send update_plan with another way to the goal, or with this step blocked and the reason as its result.",
	"Return exactly one JSON object and nothing else.",
}

// leadsNowhere finds a call that has given the same result too often already: the correction for the model and the
// call's fingerprint, empty where there is none.
func (s *State) leadsNowhere(calls []plan.Call, out wayOut) (problem, print string) {
	if s.mostRepeats < repeatsAllowed && len(calls) <= repeatsAllowed {
		return "", ""
	}
	inMessage := map[string]int{}
	for _, c := range calls {
		print := fingerprint(c.Name, c.Arguments)
		inMessage[print]++
		switch count := s.repeats[print].count; {
		case count >= repeatsAllowed:
			return fmt.Sprintf("The call of %s with these arguments has given the same result %d times, so it was not run again. "+
				"%s %s", c.Name, count, out.instead, out.closing), print
		case count+inMessage[print] > repeatsAllowed:
			return fmt.Sprintf("The message asks for the same call of %s with the same arguments again and again; ask for it once. "+
				"%s", c.Name, out.closing), ""
		}
	}
	return "", ""
}

// toolCalls gives calls their ids in the run.
func (s *State) toolCalls(made []plan.Call) []ToolCall {
	calls := make([]ToolCall, len(made))
	for i, c := range made {
		effect := EffectOnce
		if t, known := s.offered(c.Name); known {
			effect = t.Effect
		}
		calls[i] = ToolCall{
			Call: fmt.Sprintf("c%d", s.callCount+i+1), Tool: c.Name, Arguments: c.Arguments, Effect: effect,
		}
	}
	return calls
}

// said rebuilds what the model said from the event that recorded it.
func said(e Event) (plan.Message, bool) {
	switch d := e.Data.(type) {
	case Plan:
		t := plan.UpdatePlan
		if d.Created {
			t = plan.CreatePlan
		}
		return plan.Message{Type: t, Thought: d.Thought, Plan: d.Plan}, true
	case Call:
		calls := make([]plan.Call, len(d.Calls))
		for i, c := range d.Calls {
			calls[i] = plan.Call{Name: c.Tool, Arguments: c.Arguments}
		}
		return plan.Message{Type: plan.ToolCall, Thought: d.Thought, Plan: d.Plan, Calls: calls}, true
	case Thought:
		m := plan.Message{Type: plan.ReasoningStep, Thought: d.Thought, Plan: d.Plan}
		if d.Ask != nil {
			m.Type, m.Question, m.AnswerSchema = plan.AskUser, d.Ask.Question, d.Ask.AnswerSchema
		}
		if d.Answer != nil {
			m.Type, m.Answer = plan.FinalAnswer, *d.Answer
		}
		return m, true
	case Accepted, Facts, Rejection, Reflection, Started, Observation, Question, Reply, Note, Control, Timeout, Wait, Child,
		Summary, Answer, Failed, Cancelled:
	}
	return plan.Message{}, false
}

// jsonText shows a JSON value to the model: a string as its text, null as nothing, anything else as JSON. Prompts are made again
// from journals, so it stays as it is.
func jsonText(v json.RawMessage) string {
	if len(v) > 0 && (v[0] == '{' || v[0] == '[') {
		return string(v)
	}
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text
	}
	return string(v)
}
