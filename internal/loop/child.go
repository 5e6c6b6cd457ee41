package loop

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A call of a tool that delegates is carried out by a run of its own, the child run. It is written down first (event
// child), with an id that follows from the call alone and the tokens that are taken from the run above for it; then it is
// begun by storing its first event, if nobody has. So whoever takes the run above over begins the same child again, which
// changes nothing. The run above owes nothing while its children are at work: it parks, and the closing of a child wakes it.

// ChildRun is the child run of an open call.
type ChildRun struct {
	Run    string
	Tokens int       // taken from the run above until it has ended; 0: it has no limit
	Since  time.Time // when it was written down
	Ended  Status    // how it ended; empty as long as that is not known
}

// delegation are the arguments of a call that delegates.
type delegation struct {
	Goal      string   `json:"goal"`
	Strategy  string   `json:"strategy"`
	Tools     []string `json:"tools"`
	MaxSteps  int      `json:"max_steps"`
	MaxTokens int      `json:"max_tokens"`
}

// leastChildTokens is what a child run needs to say anything at all.
const leastChildTokens = 500

// delegates reports whether a call of this tool is carried out by a child run.
func (s *State) delegates(tool string) bool {
	t, known := s.offered(tool)
	return known && t.Delegate
}

// childMoved folds what became of a child run.
func (s *State) childMoved(e Event, d Child) {
	c := s.call(d.Call)
	switch {
	case c == nil: // closed, and what the child uses stays reserved
	case d.Status == "":
		c.Child = &ChildRun{Run: d.Run, Tokens: d.Tokens, Since: e.Time}
		s.childCount++
		s.reserved += d.Tokens
	case c.Child != nil && c.Child.Ended == "":
		child := *c.Child
		child.Ended = d.Status
		c.Child = &child
		s.reserved -= child.Tokens
		s.Lost += d.Lost
		if d.Usage != nil {
			s.Usage = s.Usage.Add(*d.Usage)
		}
	}
}

// openChildren are the calls whose child runs have not ended, as far as the run above knows.
func (s *State) openChildren() []OpenCall {
	var open []OpenCall
	for _, c := range s.Calls {
		if c.Child != nil && c.Child.Ended == "" {
			open = append(open, c)
		}
	}
	return open
}

// childDuties is what a call that delegates needs. While its child is at work that is nothing.
func childDuties(c OpenCall) []Duty {
	if c.Child == nil || c.Child.Ended != "" {
		return []Duty{Delegate{c}}
	}
	return nil
}

// childID is the id of the child run of a call: the same whoever asks, and another one when the id of the run above is
// used again after it has expired.
func (s *State) childID(call string) RunID {
	sum := digest([]byte(s.RunID.String()), []byte("/"+call+"/"), strconv.AppendUint(nil, s.First, 10))
	suffix := "-" + call + "-" + sum[:10]
	return RunID{Tenant: s.Tenant, Run: s.Run[:min(len(s.Run), 64-len(suffix))] + suffix}
}

// writeDown is the event that comes before a child run: that it is begun, or that it can't be.
func (s *State) writeDown(c OpenCall) Data {
	_, tokens, problem := s.childTask(c)
	if problem == "" && s.childCount >= s.Task.Limits.MaxChildren {
		problem = fmt.Sprintf("This run has had %d child runs, and limits.max_children allows no more.", s.childCount)
	}
	if problem == "" {
		return Child{Call: c.Call, Run: s.childID(c.Call).Run, Tokens: tokens}
	}
	text, err := encodeJSON("No child run was begun. " + problem)
	if err != nil {
		text = []byte(`"No child run was begun."`)
	}
	return Observation{Call: c.Call, Tool: c.Tool, Status: ObservedError, Result: text}
}

// childTask is what the child run of a call is to do, under the limits of the run above, and the tokens it may use. problem
// says in words for the model why there can't be such a run.
func (s *State) childTask(c OpenCall) (t Task, tokens int, problem string) {
	var d delegation
	if err := json.Unmarshal(c.Arguments, &d); err != nil {
		return Task{}, 0, "The arguments can't be read: " + err.Error() + "."
	}
	above := s.Task
	no := false
	if above.Strategy == StrategyPlanExecute {
		d.Goal = s.hide(d.Goal) // a plan may refer to values that no model is to see
	}
	t = Task{
		Goal: d.Goal, ID: s.childID(c.Call).Run, User: above.User, Strategy: d.Strategy, Model: above.Model,
		FallbackModels: above.FallbackModels, ModelOptions: above.ModelOptions, Limits: above.Limits, Ask: above.Ask,
		Approve: above.Approve, Vars: above.Vars, Priority: above.Priority, Learn: &no, Metadata: s.Metadata(),
	}
	if t.Strategy == "" && above.Strategy == StrategyReact {
		t.Strategy = StrategyReact // its model may have no JSON mode
	}
	if t.Strategy == StrategyPlanExecute && above.Strategy == StrategyPlanExecute {
		t.Locked = above.Locked
	}
	if d.MaxSteps > 0 {
		t.Limits.MaxSteps = d.MaxSteps
	}
	tokens, problem = s.childTokens(c, d.MaxTokens)
	t = t.withDefaults()
	t.Limits.MaxTokens, t.Limits.MaxCostUSD = tokens, max(above.Limits.MaxCostUSD-s.Usage.CostUSD, 0)
	t.Limits.MaxDepth = max(above.Limits.MaxDepth-1, 0)
	if unknown := s.notOffered(d.Tools); problem == "" && len(unknown) > 0 {
		problem = fmt.Sprintf("This run has no tool %s to pass on.", strings.Join(unknown, ", "))
	}
	t.Tools = []string{}
	for _, o := range s.childTools(d.Tools) {
		t.Tools = append(t.Tools, o.Name)
	}
	if err := t.validate(); problem == "" && err != nil {
		problem = err.Error() + "."
	}
	return t, tokens, problem
}

// childTokens is how much of the run's tokens its child run for this call may use: what was asked for, and not more than
// an equal share of what is left, of which one is the run's own. What is reserved for a child is not left.
func (s *State) childTokens(c OpenCall, wanted int) (tokens int, problem string) {
	if c.Child != nil {
		return c.Child.Tokens, ""
	}
	limit := s.tokenLimit()
	if limit == 0 {
		return max(wanted, 0), ""
	}
	shares := 1
	for _, other := range s.Calls {
		if other.Child == nil && s.delegates(other.Tool) {
			shares++
		}
	}
	share := max(limit-s.tokensUsed(), 0) / shares
	if tokens = share; wanted > 0 {
		tokens = min(wanted, share)
	}
	if share < leastChildTokens {
		return 0, fmt.Sprintf("Of the %d tokens of this run too few are left.", limit)
	}
	return max(tokens, leastChildTokens), ""
}

// childTools are the tools that a child run gets: those of the run above that match one of the globs, all where there are
// none. The tools that delegate are among them as long as the depth allows.
func (s *State) childTools(globs []string) []OfferedTool {
	tools := []OfferedTool{}
	for _, t := range s.Tools {
		if t.Delegate && s.Task.Limits.MaxDepth < 2 {
			continue
		}
		if globs == nil || matchesAny(globs, t.Name) {
			tools = append(tools, t)
		}
	}
	return tools
}

// notOffered are the names among globs that no tool of the run has, and what is no glob.
func (s *State) notOffered(globs []string) []string {
	return slices.DeleteFunc(slices.Clone(globs), func(g string) bool {
		if _, err := path.Match(g, ""); err == nil && strings.ContainsAny(g, `*?[\`) {
			return true
		}
		return slices.ContainsFunc(s.Tools, func(t OfferedTool) bool { return t.Name == g })
	})
}

// firstOfChild is the first event of the child run of a call that was written down.
func (s *State) firstOfChild(c OpenCall) (first Accepted, problem string) {
	task, _, problem := s.childTask(c)
	if problem != "" {
		return Accepted{}, problem // not the case when it was written down: rules have changed since
	}
	tools := slices.DeleteFunc(slices.Clone(s.Tools), func(t OfferedTool) bool { return !slices.Contains(task.Tools, t.Name) })
	return Accepted{
		Task: task, Tools: tools, Prompt: strategies[task.Strategy].prompt(), Catalogue: s.Catalogue,
		Parent: s.Run, ParentCall: c.Call, Chain: append(slices.Clone(s.Chain), s.Run), Traceparent: s.Trace().Traceparent(),
	}, ""
}

// ofChild puts the runs above a child run into what is read by others than the run above.
func (s *State) ofChild(d Data) Data {
	if len(s.Chain) == 0 {
		return d
	}
	switch d := d.(type) {
	case Question:
		d.Chain = s.Chain
		return d
	case Answer:
		d.Chain = s.Chain
		return d
	case Failed:
		d.Chain = s.Chain
		return d
	case Cancelled:
		d.Chain = s.Chain
		return d
	default:
		return d
	}
}
