package loop

import (
	"encoding/json"
	"fmt"
	"strings"

	"ratchet/internal/plan"
)

// react lets the model think, act and observe in turn, as text with labels, for models without a JSON mode. There is no
// plan. A task that sets the model option native_tools has the tools offered in the endpoint's own form too.
type react struct{}

const reactPrompt = "react/2"

var reactWayOut = wayOut{
	"Find another way to the goal, or say in a Final Answer why there is none.",
	"Write Thought, then either Action, Action Input and PAUSE, or Final Answer.",
}

func (react) prompt() string { return reactPrompt }

func (react) fold(*State, Event) {}

func (react) next(s *State) []Duty {
	if s.busy() {
		return nil
	}
	return []Duty{AskModel{Purpose: PurposeStep, Turn: s.Turns + 1}}
}

func (react) opening(s *State, tools Toolbox) []Message {
	data := struct {
		Tools []ToolSpec
		Facts *Facts
		Task  Task
	}{tools.specs, s.Facts, s.Task}
	return []Message{
		{Role: "system", Content: s.systemText("system.tmpl", tools, "", data)},
		{Role: "user", Content: s.text("question.tmpl", data)},
	}
}

func (react) request(s *State, tools Toolbox, opening []Message, _ AskModel) ModelRequest {
	r := ModelRequest{Messages: Conversation(s, opening), Stop: []string{plan.Pause}}
	if s.Task.offersTools(false) {
		r.Tools = tools.specs
	}
	return r
}

func (react) judge(s *State, tools Toolbox, _ AskModel, r *ModelReply) Data {
	made := Made{Model: r.Model, Usage: &r.Usage, MS: r.MS, Seen: r.Seen}
	said, calls, err := react{}.read(tools, r)
	if err != nil {
		return s.rejection(err.Error(), r, made)
	}
	if len(calls) == 0 {
		if s.toldSince(made) {
			return Thought{Thought: said.Thought, Made: made} // the person has said more since: no answer yet
		}
		return Thought{Thought: said.Thought, Answer: &said.Answer, Made: made}
	}
	if problem, print := s.leadsNowhere(calls, reactWayOut); problem != "" {
		rejection := s.rejection(problem, r, made)
		rejection.Repeat = print
		return rejection
	}
	return Call{Calls: s.toolCalls(calls), Thought: said.Thought, Made: made}
}

// toldSince reports whether the person has said something that the prompt of a model call did not contain.
func (s *State) toldSince(m Made) bool {
	return len(s.Notes) > 0 && s.Notes[len(s.Notes)-1].n > m.Seen
}

// read understands a reply in either form.
func (react) read(tools Toolbox, r *ModelReply) (said plan.Reaction, calls []plan.Call, err error) {
	if len(r.Calls) > 0 {
		said.Thought = strings.Join(strings.Fields(plan.CutReact(r.Text)), " ")
		calls, err = tools.native(r.Calls)
		return said, calls, err
	}
	said, err = plan.ReadReact(r.Text, plan.ReactRules{Tools: tools.names, Arguments: tools.arguments, Single: tools.single})
	if err == nil && said.Call != nil {
		calls = []plan.Call{*said.Call}
	}
	return said, calls, err
}

// native checks tool calls that came in the endpoint's own form.
func (t Toolbox) native(made []NativeCall) ([]plan.Call, error) {
	calls := make([]plan.Call, len(made))
	for i, c := range made {
		calls[i] = plan.Call{Name: c.Name, Arguments: c.Arguments}
		if len(strings.TrimSpace(string(c.Arguments))) == 0 {
			calls[i].Arguments = nil
		}
	}
	return plan.CheckCalls(calls, plan.Rules{Tools: t.names, Arguments: t.arguments})
}

// single returns the name of the one argument that a tool requires.
func (t Toolbox) single(tool string) (property string, ok bool) {
	var schema struct {
		Required []string `json:"required"`
	}
	spec, known := t.Spec(tool)
	if !known || json.Unmarshal(spec.Schema, &schema) != nil || len(schema.Required) != 1 {
		return "", false
	}
	return schema.Required[0], true
}

// observe writes the conversation in the words of the contract. Of what the model said only what counted is kept, so that an
// observation it made up is never shown to it.
func (react) observe(s *State, e Event) []Message {
	said, heard := "", ""
	switch d := e.Data.(type) {
	case Call:
		said = encodeActions(d)
	case Thought:
		said = "Thought: " + d.Thought
		if d.Answer != nil {
			said += "\nFinal Answer: " + *d.Answer
		}
	case Rejection:
		said, heard = cmpOr(plan.CutReact(d.Reply), "(nothing)"), "Observation: Nothing was called and nothing was answered. "+d.Error
	case Observation:
		heard = "Observation: " + strings.TrimPrefix(d.shown(), "Observation of ") + s.reactAdvice(d)
	case Reply:
		heard = "Observation: " + d.aboutCall()
	case Timeout:
		if d.What == TimeoutQuestion && s.Ending == nil && len(s.Calls) == 0 {
			heard = "Observation: Nobody answered in time."
		}
	case Accepted, Facts, Plan, Reflection, Started, Question, Note, Control, Wait, Child, Summary, Answer, Failed, Cancelled:
	}
	var out []Message
	if said != "" {
		out = append(out, Message{Role: "assistant", Content: said})
	}
	if heard != "" && heard != "Observation: " {
		out = append(out, Message{Role: "user", Content: heard})
	}
	return out
}

func encodeActions(c Call) string {
	lines := make([]string, len(c.Calls))
	for i, t := range c.Calls {
		r := plan.Reaction{Call: &plan.Call{Name: t.Tool, Arguments: t.Arguments}}
		if i == 0 {
			r.Thought = c.Thought
		}
		lines[i] = r.Encode()
	}
	return strings.Join(lines, "\n")
}

func (s *State) reactAdvice(d Observation) string {
	switch {
	case s.sameAgain == repeatsAllowed:
		return "\n" + thirdTime
	case d.Status == ObservedUnknown:
		return "\nWhether the call took effect is not known; a person is being asked. Do not repeat it."
	case d.Status != ObservedOK:
		return "\nThe call did not succeed. Correct its input, find another way, or say in a Final Answer what is in the way."
	}
	return ""
}

// aboutCall is what a person said about a call whose outcome is unknown; empty for other replies.
func (d Reply) aboutCall() string {
	var o OutcomeReply
	if d.Approve != nil || json.Unmarshal(d.Value, &o) != nil || o.Outcome == "" {
		return ""
	}
	text := fmt.Sprintf("The person has looked: the call is %s.", o.Outcome)
	if len(o.Result) > 0 {
		text += " Its result: " + string(o.Result)
	}
	return text
}
