package loop

import (
	"fmt"
	"strings"

	"ratchet/internal/plan"
)

// planActReflect works in rounds of three roles: a planner that sees the tools and what they returned, the calls it asks
// for, all side by side, and a critic that sees neither tools nor what they returned. The critic says that the work is
// done, or what the next round is to do.
type planActReflect struct{}

const planActReflectPrompt = "plan_act_reflect/2"

var planActReflectWayOut = wayOut{
	"Find another way to the goal, or write in the answer why there is none.",
	"Ask for other calls, or write the answer.",
}

// phase is whose turn it is in a round.
type phase int

const (
	planning phase = iota
	criticising
	answering // the work is over and has no answer yet
)

// roundState is what plan_act_reflect knows of its rounds.
type roundState struct {
	phase phase
	done  int            // rounds that were criticised
	work  []string       // what was done, one line each, as the critic may know it
	draft *string        // the planner's words in this round, where it called nothing
	talk  []Message      // refused verdicts and the corrections, in turn
	lines map[string]int // which line tells of a call
}

func (planActReflect) prompt() string { return planActReflectPrompt }

func (planActReflect) next(s *State) []Duty {
	switch {
	case s.busy():
		return nil
	case s.round.phase == criticising:
		return []Duty{AskModel{Purpose: PurposeReflect, Turn: s.Turns + 1}}
	default:
		return []Duty{AskModel{Purpose: PurposeStep, Turn: s.Turns + 1}}
	}
}

func (planActReflect) fold(s *State, e Event) {
	r := &s.round
	switch d := e.Data.(type) {
	case Call:
		r.draft = nil
		if d.Thought != "" {
			r.add("The planner: " + clip(d.Thought, 1<<10))
		}
		for _, c := range d.Calls {
			if r.lines == nil {
				r.lines = map[string]int{}
			}
			r.lines[c.Call] = len(r.work)
			r.add(fmt.Sprintf("Call %s of %s with %s", c.Call, c.Tool, clip(string(c.Arguments), 1<<10)))
		}
	case Observation:
		if i, known := r.lines[d.Call]; known {
			r.work[i] += ": " + string(d.Status)
			delete(r.lines, d.Call)
		}
		if len(s.Calls) == 0 && r.phase == planning {
			r.phase = criticising
		}
	case Thought:
		if d.Answer == nil && r.phase == planning {
			draft := d.Thought
			r.draft, r.phase = &draft, criticising
			r.add("The planner's answer so far: " + clip(draft, 32<<10))
		}
	case Reflection:
		s.criticised(d)
	case Rejection:
		if r.phase == criticising {
			r.talk = append(r.talk, Message{Role: "assistant", Content: cmpOr(d.Reply, "(nothing)")},
				Message{Role: "user", Content: "This was not used. " + d.Error})
		}
	case Accepted, Facts, Plan, Started, Question, Reply, Note, Control, Timeout, Wait, Child, Summary, Answer, Failed, Cancelled:
	}
}

// add writes down what was done. The line of an open call is looked up by its number, so none is ever removed.
func (r *roundState) add(line string) { r.work = append(r.work, line) }

func (s *State) criticised(d Reflection) {
	r := &s.round
	r.talk = nil
	r.done++
	switch {
	case d.Done && r.draft != nil && len(s.Notes) == 0:
		s.Answering = r.draft
	case d.Done && r.draft != nil:
		r.phase = planning // the person has said more since the draft
	case d.Done || r.done >= s.Task.Limits.MaxIterations:
		r.phase = answering
	default:
		r.phase = planning
		r.add("Guidance for the next round: " + clip(d.Text, 4<<10))
	}
	if !d.Done {
		r.draft = nil
	}
}

func (planActReflect) opening(s *State, tools Toolbox) []Message {
	data := struct {
		Tools        []ToolSpec
		Native       bool
		Instructions string
		Facts        *Facts
		Task         Task
	}{tools.specs, s.Task.offersTools(true), s.Task.Prompts["plan"], s.Facts, s.Task}
	return []Message{
		{Role: "system", Content: s.systemText("plan.tmpl", tools, fmt.Sprint(data.Native, " ", data.Instructions), data)},
		{Role: "user", Content: s.text("goal.tmpl", data)},
	}
}

func (planActReflect) request(s *State, tools Toolbox, opening []Message, ask AskModel) ModelRequest {
	if ask.Purpose == PurposeReflect {
		return ModelRequest{Messages: s.critique(), JSON: true, Schema: verdictSchema}
	}
	r := ModelRequest{Messages: Conversation(s, opening)}
	switch {
	case !s.Task.offersTools(true):
		r.JSON, r.Schema = true, answerSchema
		if s.round.phase == planning {
			r.Schema = tools.moveSchema()
		}
	case s.round.phase == planning:
		r.Tools = tools.specs
	}
	return r
}

// critique is the critic's prompt: the goal, what the person said, and what was done, without what tools returned.
func (s *State) critique() []Message {
	data := struct {
		Instructions string
		Task         Task
		Said         []SessionMessage
		Work         []string
	}{s.Task.Prompts["reflect"], s.Task, s.said(), s.round.work}
	return join([]Message{
		{Role: "system", Content: s.text("reflect.tmpl", data)},
		{Role: "user", Content: s.text("work.tmpl", data)},
	}, s.round.talk...)
}

func (planActReflect) judge(s *State, tools Toolbox, ask AskModel, r *ModelReply) Data {
	made := Made{Model: r.Model, Usage: &r.Usage, MS: r.MS, Seen: r.Seen}
	if ask.Purpose == PurposeReflect {
		made.Seen = 0 // notes are for the planner
		v, err := plan.ReadVerdict(r.Text)
		if err != nil {
			return s.rejection(err.Error(), r, made)
		}
		return Reflection{Text: v.Guidance, Done: v.Done, Made: made}
	}
	m, err := s.readPlanner(tools, r)
	switch {
	case err != nil:
		return s.rejection(err.Error(), r, made)
	case m.Type == plan.ToolCall:
		if problem, print := s.leadsNowhere(m.Calls, planActReflectWayOut); problem != "" {
			rejection := s.rejection(problem, r, made)
			rejection.Repeat = print
			return rejection
		}
		return Call{Calls: s.toolCalls(m.Calls), Thought: m.Thought, Made: made}
	case s.round.phase == planning:
		return Thought{Thought: m.Answer, Made: made}
	case s.toldSince(made):
		return Thought{Thought: m.Thought, Made: made}
	}
	return Thought{Thought: m.Thought, Answer: &m.Answer, Made: made}
}

// readPlanner understands the planner's reply: native calls, or a message as JSON, or, where tools are offered natively,
// text that is the answer.
func (s *State) readPlanner(tools Toolbox, r *ModelReply) (m plan.Message, err error) {
	types := []plan.Type{plan.FinalAnswer}
	if s.round.phase == planning {
		types = append(types, plan.ToolCall)
	}
	text := strings.TrimSpace(r.Text)
	switch {
	case len(r.Calls) > 0:
		m = plan.Message{Type: plan.ToolCall, Thought: text}
		m.Calls, err = tools.native(r.Calls)
		return m, err
	case s.Task.offersTools(true) && text != "" && text[0] != '{':
		return plan.Message{Type: plan.FinalAnswer, Answer: text}, nil
	}
	if m, err = plan.ReadMove(r.Text, types...); err != nil || m.Type != plan.ToolCall {
		return m, err
	}
	m.Calls, err = plan.CheckCalls(m.Calls, plan.Rules{Tools: tools.names, Arguments: tools.arguments})
	return m, err
}

// observe writes the planner's conversation.
func (planActReflect) observe(s *State, e Event) []Message {
	said, heard := "", ""
	switch d := e.Data.(type) {
	case Call:
		said = encodeMove(d)
	case Thought:
		said = d.Thought
		if d.Answer != nil {
			said = *d.Answer
		}
	case Rejection:
		if s.round.phase != criticising {
			said, heard = cmpOr(d.Reply, "(nothing)"), "This message was not accepted and nothing of it counts. "+d.Error
		}
	case Observation:
		heard = d.shown()
		if s.sameAgain == repeatsAllowed {
			heard += "\n" + thirdTime
		}
	case Reply:
		heard = d.aboutCall()
	case Reflection:
		heard = s.afterReflection(d)
	case Accepted, Facts, Plan, Started, Question, Note, Control, Timeout, Wait, Child, Summary, Answer, Failed, Cancelled:
	}
	var out []Message
	if said != "" {
		out = append(out, Message{Role: "assistant", Content: said})
	}
	if heard != "" {
		out = append(out, Message{Role: "user", Content: heard})
	}
	return out
}

func (s *State) afterReflection(d Reflection) string {
	switch {
	case s.Answering != nil:
		return ""
	case s.round.phase == planning && d.Done:
		return "A critic finds the work done, but the person has said more meanwhile. Take it into account."
	case s.round.phase == planning:
		return "A critic says what the next round is to do: " + d.Text
	case d.Done:
		return "A critic finds the work done. Now write the answer for the person. No tool can be called any more."
	default:
		return "A critic says: " + d.Text + "\nAll rounds are spent. Now write the answer for the person, and say in it what is missing. " +
			"No tool can be called any more."
	}
}

func encodeMove(c Call) string {
	calls := make([]plan.Call, len(c.Calls))
	for i, t := range c.Calls {
		calls[i] = plan.Call{Name: t.Tool, Arguments: t.Arguments}
	}
	return plan.Message{Type: plan.ToolCall, Thought: c.Thought, Calls: calls}.EncodeMove()
}
