package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ratchet/internal/plan"
)

// planExecute has the model write the whole plan before any of it runs, as a graph of tool calls. The steps run side by
// side, each as soon as what it waits for is there; the model is asked again for the values of open fields, for the rest
// of a plan that failed (where the task is not locked), and for the answer. It can never call a tool by itself.
type planExecute struct{}

const planExecutePrompt = "plan_execute/2"

func (planExecute) prompt() string { return planExecutePrompt }

// locked reports whether the first plan is the only one.
func (t Task) locked() bool { return t.Locked == nil || *t.Locked }

// Bounds of arguments, in bytes: results that references bring in may be large, and many may refer to one.
const (
	maxStartBytes = 128 << 10 // of all calls in one event
	maxStepBytes  = 256 << 10 // of one call
	maxResolved   = 8 << 20   // of what is put together to find that out
)

func (planExecute) next(s *State) []Duty {
	d := &s.dag
	if d.steps == nil {
		if s.busy() {
			return nil
		}
		return []Duty{s.askForPlan()}
	}
	var duties []Duty
	if len(d.skips) > 0 {
		duties = append(duties, Record{What: "skip/" + d.skips[0].ID, Make: (*State).skipStep})
	}
	var start []string
	for _, r := range d.ready {
		if r.problem == "" && len(r.step.Open) > 0 {
			duties = append(duties, AskModel{Purpose: PurposeFill, About: r.step.ID, Turn: 1 + len(d.talks[r.step.ID])/2})
			continue
		}
		start = append(start, r.step.ID)
	}
	if len(start) > 0 {
		duties = append(duties, Record{What: "start/" + strings.Join(start, ","), Make: (*State).startSteps})
	}
	if len(duties) > 0 || s.busy() || !d.steps.Ended() {
		return duties
	}
	if s.mustReplan() && d.replans >= s.Task.Limits.MaxReplans {
		return []Duty{s.replansSpent()}
	}
	return []Duty{s.askForPlan()}
}

// askForPlan is the next model call that is about the plan as a whole: the plan itself, the rest of it, or the answer.
func (s *State) askForPlan() Duty { return AskModel{Purpose: PurposeStep, Turn: s.Turns + 1} }

// mustReplan reports whether the rest of the plan has to be written anew.
func (s *State) mustReplan() bool { return !s.Task.locked() && s.dag.failed() != nil }

// replansSchema is the answer_schema of the question that is put when all replans are spent.
const replansSchema = `{"type":"object","required":["action"],"properties":{"action":{"enum":["retry","give_up"]},"text":{"type":"string"}}}`

func (s *State) replansSpent() Duty {
	id, failed := s.nextQuestion(), s.dag.failed()
	return Put{ID: id, Question: Question{
		Question: id, Kind: KindEscalation, AnswerSchema: []byte(replansSchema),
		Text: fmt.Sprintf("The plan failed after %d replans. Step %s, %s, says: %s. Say retry (with a text that helps), or give_up.",
			s.dag.replans, failed.ID, failed.Tool, clip(s.hide(jsonText(failed.Result)), 1000)),
	}}
}

// skipStep is the observation of the first step that can't run any more.
func (s *State) skipStep(Toolbox) Data {
	skip := s.dag.skips[0]
	step := s.dag.steps[s.dag.steps.Index(skip.ID)]
	return stepEnds(step, ObservedSkipped, "Not run, because step "+skip.Because+" failed.")
}

func stepEnds(step plan.DAGStep, status ObservedStatus, text string) Data {
	result, err := encodeJSON(text)
	if err != nil {
		result = []byte(`"The step was not run."`)
	}
	return Observation{Step: step.ID, Tool: step.Tool, Status: status, Result: result}
}

// startSteps records the calls of ready steps with their arguments as they go out, as many as fit into an event; or that
// the first of them can't be called.
func (s *State) startSteps(tools Toolbox) Data {
	var calls []plan.Call
	var steps []string
	size := 0
	for _, r := range s.dag.ready {
		if r.problem == "" && len(r.step.Open) > 0 {
			continue
		}
		args, problem := r.args, r.problem
		if problem == "" {
			checked, problems, known := tools.arguments(r.step.Tool, args)
			switch {
			case !known:
				problem = "There is no such tool any more."
			case len(problems) > 0:
				problem = strings.Join(problems, "; ")
			}
			args = checked
		}
		if problem != "" {
			if len(calls) > 0 {
				break // those before it go first
			}
			return stepEnds(r.step, ObservedError, "The step was not called. "+problem)
		}
		if size += len(args); size > maxStartBytes && len(calls) > 0 {
			break
		}
		calls, steps = append(calls, plan.Call{Name: r.step.Tool, Arguments: args}), append(steps, r.step.ID)
	}
	return Call{Calls: s.stepCalls(calls, steps), Plan: s.planWith(steps)}
}

func (s *State) stepCalls(calls []plan.Call, steps []string) []ToolCall {
	out := s.toolCalls(calls)
	for i := range out {
		out[i].Step = steps[i]
	}
	return out
}

// planWith is the plan as it stands once these steps run; nil for a long one, which would make each event large.
func (s *State) planWith(running []string) plan.Plan {
	if len(s.Plan) > longPlan {
		return nil
	}
	p := slices.Clone(s.Plan)
	for _, id := range running {
		p[s.dag.steps.Index(id)].Status = plan.Running
	}
	return p
}

func (planExecute) judge(s *State, tools Toolbox, ask AskModel, r *ModelReply) Data {
	made := Made{Model: r.Model, Usage: &r.Usage, MS: r.MS, Seen: r.Seen}
	switch {
	case ask.Purpose == PurposeFill:
		made.Seen = 0 // notes are for the calls about the whole plan
		return s.filled(tools, ask, r, made)
	case s.dag.steps == nil:
		d, thought, err := plan.ReadDAG(r.Text)
		if err == nil {
			err = plan.CheckDAG(d, s.dagRules(tools))
		}
		return s.planned(d, thought, err, r, made)
	case s.mustReplan():
		d, thought, err := plan.ReadDAG(r.Text)
		if err == nil {
			d, err = plan.Replan(s.dag.steps, d, s.dagRules(tools))
		}
		return s.planned(d, thought, err, r, made)
	}
	m, err := plan.ReadMove(r.Text, plan.FinalAnswer)
	switch {
	case err != nil:
		return s.rejection(err.Error(), r, made)
	case s.toldSince(made):
		return Thought{Thought: m.Thought, Plan: s.Plan, Made: made}
	}
	return Thought{Thought: m.Thought, Plan: s.Plan, Answer: &m.Answer, Made: made}
}

func (s *State) planned(d plan.DAG, thought string, err error, r *ModelReply, made Made) Data {
	if err != nil {
		return s.rejection(err.Error(), r, made)
	}
	stored := slices.Clone(d)
	for i := range stored {
		stored[i].Result = nil // of done steps: their observations have it
	}
	return Plan{Plan: shownDAG(d), DAG: stored, Thought: thought, Created: s.dag.steps == nil, Made: made}
}

// filled makes the call of a step whose open fields the model was asked for.
func (s *State) filled(tools Toolbox, ask AskModel, r *ModelReply, made Made) Data {
	step := s.dag.steps[s.dag.steps.Index(ask.About)]
	refuse := func(problem string) Data {
		rejection := s.rejection(s.hide(problem), r, made)
		rejection.Step = step.ID
		return rejection
	}
	fields, err := plan.ReadFill(r.Text, step.Open)
	if err != nil {
		return refuse(err.Error())
	}
	call, err := step.Call(s.dag.results(), s.Task.Vars, fields, s.dag.cut...)
	if err != nil {
		return refuse(err.Error())
	}
	checked, problems, known := tools.arguments(call.Name, call.Arguments)
	if known && len(problems) > 0 && s.fillable(tools, step) {
		return refuse("With these fields the call does not fit: " + strings.Join(problems, "; ") + ". Send the fill again. " +
			"Return exactly one JSON object and nothing else.")
	}
	// Where the planned arguments are wrong by themselves no fill helps: the call is refused, and the step fails.
	if known && len(problems) == 0 {
		call.Arguments = checked
	}
	return Call{Calls: s.stepCalls([]plan.Call{call}, []string{step.ID}), Plan: s.planWith([]string{step.ID}), Made: made}
}

// fillable reports whether the planned arguments of a step are right as far as they go, so that what is wrong with the
// whole is in the open fields.
func (s *State) fillable(tools Toolbox, step plan.DAGStep) bool {
	spec, known := tools.Spec(step.Tool)
	if !known || spec.CheckPart == nil {
		return known
	}
	var planned map[string]json.RawMessage
	if json.Unmarshal(step.Args, &planned) != nil {
		return false
	}
	for _, name := range step.Open {
		delete(planned, name)
	}
	args, err := encodeJSON(planned)
	if err != nil {
		return false
	}
	resolved, err := plan.Resolve(args, s.dag.results(), s.Task.Vars, s.dag.cut...)
	return err == nil && len(spec.CheckPart(resolved, step.Open)) == 0
}

func (s *State) dagRules(tools Toolbox) plan.DAGRules {
	vars := make([]string, 0, len(s.Task.Vars))
	for name := range s.Task.Vars {
		vars = append(vars, name)
	}
	slices.Sort(vars)
	return plan.DAGRules{
		Tools: tools.names, Vars: vars,
		Tool: func(name string) (plan.DAGTool, bool) {
			spec, known := tools.Spec(name)
			return plan.DAGTool{Fields: spec.Fields, Once: spec.Effect == EffectOnce, Times: spec.Times}, known
		},
		Arguments: func(tool string, args json.RawMessage, later []string) []string {
			spec, known := tools.Spec(tool)
			if !known || spec.CheckPart == nil {
				return nil
			}
			return spec.CheckPart(args, later)
		},
	}
}
