package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxCalls is how many tools one message may call in parallel.
const MaxCalls = 16

var statuses = []Status{Pending, InProgress, Done, Blocked}

// Check says whether a message may follow the plan as recorded so far, which is empty before the first accepted message.
// It returns the message as it is to be used: with arguments as r.Arguments gave them back. The error is a *[Violation]
// that names the first broken rule; of a tool call's arguments it names every problem.
func Check(prev Plan, m Message, r Rules) (Message, error) {
	for _, check := range []func() *Violation{
		func() *Violation { return checkTurn(prev, m.Type) },
		func() *Violation { return checkSteps(m.Plan) },
		func() *Violation { return checkCreated(m, r.MinSteps) },
		func() *Violation { return checkOrder(m.Plan) },
		func() *Violation { return checkDone(prev, m.Plan) },
		func() *Violation { return checkOpen(m) },
		func() *Violation { return checkOwn(prev, m) },
	} {
		if v := check(); v != nil {
			return Message{}, v
		}
	}
	if m.Type == ToolCall {
		calls, v := checkCalls(m.Calls, r)
		if v != nil {
			return Message{}, v
		}
		m.Calls = calls
	}
	return m, nil
}

// checkTurn: create_plan first, and never again.
func checkTurn(prev Plan, t Type) *Violation {
	switch {
	case !slices.Contains(types, t):
		return unknownType(t)
	case len(prev) == 0 && t != CreatePlan:
		return violate(RuleFirstNotCreate, "There is no plan yet, so %s cannot be used. Send create_plan first, with all its steps "+
			"pending.", t)
	case len(prev) > 0 && t == CreatePlan:
		return violate(RuleSecondCreate, "There is a plan already. To change it send update_plan with the whole plan; done steps stay as "+
			"they are.")
	}
	return nil
}

// checkSteps: a non-empty list whose steps are each complete.
func checkSteps(p Plan) *Violation {
	if len(p) == 0 {
		return violate(RuleEmptyPlan, "The plan is empty. Every message carries the whole current plan: a list of %s.", stepShape)
	}
	for i, s := range p {
		switch {
		case isBlank(s.Step):
			return violate(RuleStepText, "Step %d of the plan has no text. Say in step what is to be done.", i+1)
		case s.Status == "":
			return violate(RuleStepStatus, "Step %d of the plan has no status. The statuses are pending, in_progress, done, blocked.", i+1)
		case !slices.Contains(statuses, s.Status):
			return violate(RuleStepStatus, "Step %d of the plan has the status %s. The statuses are pending, in_progress, done, blocked.",
				i+1, quote(string(s.Status)))
		case s.Status.Closed() && isBlank(string(s.Result)):
			return violate(RuleStepResult, "Step %d of the plan is %s and has no result. Put what came of it, or why it is blocked, into "+
				"its result.", i+1, s.Status)
		}
	}
	return nil
}

// checkCreated: a created plan has enough steps and nothing is begun.
func checkCreated(m Message, least int) *Violation {
	if m.Type != CreatePlan {
		return nil
	}
	if len(m.Plan) < least {
		return violate(RuleMinSteps, "The plan has %s; %d is the least. Send create_plan with smaller steps.",
			count(len(m.Plan), "step"), least)
	}
	for i, s := range m.Plan {
		if s.Status != Pending {
			return violate(RuleNotPending, "Step %d of the new plan is %s. In create_plan all steps are pending; begin with the first in the "+
				"message after it.", i+1, s.Status)
		}
	}
	return nil
}

// checkOrder: closed steps, then open ones, of which only the first may be in progress.
func checkOrder(p Plan) *Violation {
	open := p.Open()
	if open < 0 {
		return nil
	}
	for i, s := range p[open+1:] {
		n := open + 1 + i + 1
		switch {
		case s.Status.Closed():
			return violate(RuleStepOrder, "Step %d of the plan is %s but step %d before it is %s. Closed steps (done, blocked) come first, "+
				"then open ones: close the earlier step, or move it behind.", n, s.Status, open+1, p[open].Status)
		case s.Status == InProgress:
			return violate(RuleInProgress, "Step %d of the plan is in_progress but the first open step is %d. At most one step is "+
				"in_progress, and it is the first open one.", n, open+1)
		}
	}
	return nil
}

// checkDone: what was done stays, word for word and in its place.
func checkDone(prev, p Plan) *Violation {
	for i, s := range prev {
		if s.Status != Done || i < len(p) && p[i] == s {
			continue
		}
		what := "is missing"
		if i < len(p) {
			what = "has another " + strings.Join(differences(s, p[i]), ", ")
		}
		return violate(RuleDoneChanged, "Step %d was recorded as done and %s. Keep it in its place: step %s, status done, result %s.", i+1,
			what, recorded(s.Step), recorded(string(s.Result)))
	}
	return nil
}

// checkOpen: what works on a step needs an open one, and the answer needs none.
func checkOpen(m Message) *Violation {
	open := m.Plan.Open()
	switch m.Type {
	case ToolCall, ReasoningStep, AskUser:
		if open < 0 {
			return violate(RuleNoOpenStep, "No step of the plan is open, and %s needs one. Send final_answer, or add an open step to the "+
				"plan.", m.Type)
		}
	case FinalAnswer:
		if open >= 0 {
			return violate(RuleOpenSteps, "Step %d of the plan, %s, is still %s. Before a final_answer every step is done or blocked and "+
				"has a result: close it in this plan, or go on with it.", open+1, quote(m.Plan[open].Step), m.Plan[open].Status)
		}
	case CreatePlan, UpdatePlan:
	}
	return nil
}

// checkOwn: what the type's own fields must hold, tool calls apart.
func checkOwn(prev Plan, m Message) *Violation {
	switch m.Type {
	case ReasoningStep:
		if !closesMore(prev, m.Plan) {
			return violate(RuleNothingClosed, "The reasoning_step closes no step. Put the conclusion into the result of the step it finishes "+
				"and set that to done.")
		}
	case AskUser:
		if isBlank(m.Question) {
			return violate(RuleBlankQuestion, "The ask_user has no question. Put what the person is to answer into the field question.")
		}
		if m.AnswerSchema != nil && objectProblem(m.AnswerSchema) != "" {
			return violate(RuleAnswerSchema, "answer_schema %s. It must be an object, a JSON Schema; leave it out if any text is a good "+
				"reply.", objectProblem(m.AnswerSchema))
		}
	case FinalAnswer:
		if isBlank(m.Answer) {
			return violate(RuleBlankAnswer, "The final_answer has no answer. Put the text for the person into the field answer.")
		}
	case CreatePlan, UpdatePlan, ToolCall:
	}
	return nil
}

// checkCalls: known tools, and arguments that they take.
func checkCalls(calls []Call, r Rules) ([]Call, *Violation) {
	switch {
	case len(calls) == 0:
		return nil, violate(RuleNoCall, "The tool_call names no tool. Send name and arguments, or a non-empty list calls of such pairs. "+
			"The tools are %s.", toolList(r.Tools))
	case len(calls) > MaxCalls:
		return nil, violate(RuleTooManyCalls, "The tool_call has %d calls; %d is the most. Send the others in a later message.",
			len(calls), MaxCalls)
	}
	checked := make([]Call, 0, len(calls))
	var problems []string
	for i, c := range calls {
		where := "arguments"
		if len(calls) > 1 {
			where = fmt.Sprintf("calls[%d].arguments", i)
		}
		if c.Arguments == nil {
			c.Arguments = json.RawMessage("{}")
		}
		args := c.Arguments
		wrong := objectProblem(args)
		if wrong != "" {
			args = json.RawMessage("{}") // to learn whether the tool is known
		}
		args, bad, known := r.Arguments(c.Name, args)
		switch {
		case !known:
			return nil, violate(RuleUnknownTool, "There is no tool %s. The tools are %s.", quote(c.Name), toolList(r.Tools))
		case wrong != "":
			problems = append(problems, where+" "+wrong)
		}
		for _, p := range bad {
			if wrong == "" {
				problems = append(problems, where+" of "+c.Name+": "+p)
			}
		}
		checked = append(checked, Call{Name: c.Name, Arguments: args})
	}
	if len(problems) > 0 {
		return nil, violate(RuleArguments, "Nothing was called: %s. Send the tool_call again with an object of arguments that fits the "+
			"tool's schema.", clip(strings.Join(problems, "; "), 2000))
	}
	return checked, nil
}

// objectProblem says why a raw value is no JSON object, and is empty where it is one.
func objectProblem(raw json.RawMessage) string {
	return (&scanner{text: string(raw), pairs: true, keys: make([]string, 0, linearKeys)}).objectProblem()
}

// objectProblem says why the whole text is no JSON object, and is empty where it is one.
func (s *scanner) objectProblem() string {
	from := s.space(0)
	to, v := s.value(from, 1)
	switch {
	case v != nil || s.space(to) < len(s.text) || !utf8.ValidString(s.text):
		return "is not valid JSON"
	case s.text[from] == '"':
		return "is a string: send the object itself, not quoted"
	case s.text[from] != '{':
		return "is " + kindAt(s.text, from) + ", not an object"
	}
	return ""
}

// closesMore looks for work that a reasoning step finished: it reports whether p has a closed step that prev has not in the same place.
func closesMore(prev, p Plan) bool {
	for i, s := range p {
		if s.Status.Closed() && (i >= len(prev) || prev[i] != s) {
			return true
		}
	}
	return false
}

func differences(a, b Step) (names []string) {
	if a.Step != b.Step {
		names = append(names, "text")
	}
	if a.Status != b.Status {
		names = append(names, "status")
	}
	if a.Result != b.Result {
		names = append(names, "result")
	}
	return names
}

// recorded shows text of ours that the model is to copy.
func recorded(s string) string {
	if clipped := clip(s, 300); clipped != s {
		return encodeString(clipped) + " (cut here; copy the whole of it)"
	}
	return encodeString(s)
}

func toolList(names []string) string {
	if len(names) == 0 {
		return "none: this run has no tools"
	}
	return strings.Join(names, ", ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func isBlank(s string) bool { return strings.Trim(strings.TrimSpace(s), zeroWidth) == "" }
