package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// DAGRules are the bounds a DAG is checked against.
type DAGRules struct {
	MaxSteps int      // most steps; 0: MaxDAGSteps, which is also the most that it can be
	Tools    []string // names of the tools the run may use, for corrections
	Vars     []string // names of the values that $session references may name
	// Tool describes a tool; known is false where the run has none of that name. It is asked for each step and must be set.
	Tool func(name string) (t DAGTool, known bool)
	// Arguments checks a step's arguments against the tool's JSON Schema and lists every problem. Properties named in
	// later get their value when the step runs, from a reference or a fill: they are left out of args and must count as
	// there and as right; [PartialSchema] makes a schema that does so. With later empty the whole of args is there. When
	// the step runs, the whole is to be checked, since what came in may not fit. It must be set.
	Arguments func(tool string, args json.RawMessage, later []string) (problems []string)
}

// DAGTool is what a check must know about a tool.
type DAGTool struct {
	Fields []string // the properties of its arguments, see [Properties]; a step's open fields must be among them
	Once   bool     // a repeated call does harm, so a plan holds only so many
	Times  int      // how many steps may call a once tool; 0: one
}

// CheckDAG says whether a DAG may run. Steps that are done or running, as [Replan] keeps them, count for ids, references and
// once tools, but are not judged again. The error is a *[Violation] that lists everything that is wrong; of more steps
// than allowed it says only that.
func CheckDAG(d DAG, r DAGRules) error {
	if v := (&dagCheck{d: d, rules: r}).run(); v != nil {
		return v
	}
	return nil
}

// dagCheck is one check on its way.
type dagCheck struct {
	d     DAG
	rules DAGRules
	at    map[string]int   // where each id stands
	calls map[string][]int // which steps call each once tool
	needs [][]int          // what each step waits for, itself apart
	keys  []string         // memory for scanners
	found problems
}

func (c *dagCheck) run() *Violation {
	most := c.rules.MaxSteps
	if most <= 0 || most > MaxDAGSteps {
		most = MaxDAGSteps
	}
	if v := tooManySteps(len(c.d), most); v != nil {
		return v
	}
	if len(c.d) == 0 {
		return violate(RuleEmptyPlan, "The plan has no steps. %s", oneDAG.send)
	}
	c.at, c.calls, c.needs = c.d.positions(), map[string][]int{}, make([][]int, len(c.d))
	for i := range c.d {
		c.id(i)
		c.after(i)
		c.step(i)
	}
	c.once()
	c.cycles()
	return c.found.violation()
}

// name says which step is meant.
func (c *dagCheck) name(i int) string {
	if id := c.d[i].ID; validID(id) && c.at[id] == i {
		return "Step " + encodeString(id)
	}
	return fmt.Sprintf("Step number %d", i+1)
}

func (c *dagCheck) id(i int) {
	switch id := c.d[i].ID; {
	case id == "":
		c.found.add(RuleStepID, "Step number %d has no id.", i+1)
	case !validID(id):
		c.found.add(RuleStepID, "Step number %d has the id %s; an id is 1 to 64 letters, digits, _ and -, and not session.", i+1, quote(id))
	case c.at[id] != i:
		c.found.add(RuleDuplicateID, "Steps number %d and %d both have the id %s.", c.at[id]+1, i+1, quote(id))
	}
}

// after looks at what the step waits for.
func (c *dagCheck) after(i int) {
	c.needs[i] = make([]int, 0, len(c.d[i].After))
	for _, id := range c.d[i].After {
		switch j, known := c.at[id]; {
		case !known:
			c.found.add(RuleDependency, "%s waits in after for %s, and there is no such step.", c.name(i), quote(id))
		case j == i:
			c.found.add(RuleSelf, "%s waits for itself.", c.name(i))
		default:
			c.needs[i] = append(c.needs[i], j)
		}
	}
}

// step looks at the tool and its arguments. A step that has begun was judged before.
func (c *dagCheck) step(i int) {
	s := &c.d[i]
	tool, known := c.rules.Tool(s.Tool)
	if known && tool.Once {
		c.calls[s.Tool] = append(c.calls[s.Tool], i)
	}
	if s.Status == Done || s.Status == Running {
		return
	}
	switch {
	case isBlank(s.Tool):
		c.found.add(RuleNoTool, "%s names no tool. The tools are %s.", c.name(i), toolList(c.rules.Tools))
	case !known:
		c.found.add(RuleUnknownTool, "%s: there is no tool %s. The tools are %s.", c.name(i), quote(s.Tool), toolList(c.rules.Tools))
	}
	args := scanner{text: string(s.Args), pairs: true, keys: c.keys}
	wrong := args.objectProblem()
	if c.keys = args.keys[:0]; wrong != "" {
		c.found.add(RuleArguments, "%s: args %s.", c.name(i), wrong)
		return
	}
	literal, later := c.split(i, args.text)
	if !known {
		return
	}
	for _, name := range s.Open {
		if !slices.Contains(tool.Fields, name) {
			c.found.add(RuleOpenField, "%s: open names %s, which %s does not have. It has %s.", c.name(i), quote(name), s.Tool,
				fieldList(tool.Fields))
		} else if !slices.Contains(later, name) {
			later = append(later, name)
		}
	}
	for _, problem := range c.rules.Arguments(s.Tool, literal, later) {
		c.found.add(RuleArguments, "%s: args of %s: %s", c.name(i), s.Tool, problem)
	}
}

// split parts a step's args: those that are known now, and the names of those that hold a reference or are open. It
// checks the references on its way.
func (c *dagCheck) split(i int, args string) (literal json.RawMessage, later []string) {
	s := &c.d[i]
	if len(s.Open) == 0 && !strings.ContainsAny(args, `$\`) {
		return s.Args, nil
	}
	literal = append(make([]byte, 0, len(args)), '{')
	r := reader{args}
	for key, value := range r.members(span{r.start(), len(args)}) {
		name := unquote(args[key.from:key.to])
		if c.refers(i, args[value.from:value.to]) || slices.Contains(s.Open, name) {
			later = append(later, name)
			continue
		}
		if len(literal) > 1 {
			literal = append(literal, ',')
		}
		literal = append(literal, args[key.from:value.to]...)
	}
	return append(literal, '}'), later
}

// refers reports whether a value holds strings that stand for something else, and checks them.
func (c *dagCheck) refers(i int, value string) (found bool) {
	isStep := func(id string) bool { _, ok := c.at[id]; return ok }
	for _, said := range dollarStrings(value) {
		ref := parseReference(said, isStep)
		found = found || ref.to != toItself
		switch j := c.at[ref.step]; {
		case ref.to == toNobody:
			c.found.add(RuleReference, "%s refers to %s, and there is no step %s. Literal text is written $%s.", c.name(i), quote(said),
				quote(ref.step), said)
		case ref.to == toSession && !knownVar(ref.path, c.rules.Vars):
			c.found.add(RuleUnknownVar, "%s refers to %s, which this task does not have. It has %s.", c.name(i), quote(said),
				fieldList(c.rules.Vars))
		case ref.to == toStep && j > i:
			c.found.add(RuleReference, "%s refers to %s, but step %s comes later in the list. References go to earlier steps only.",
				c.name(i), quote(said), quote(ref.step))
			c.needs[i] = append(c.needs[i], j) // it may be a part of a circle
		case ref.to == toStep && j == i:
			if !slices.Contains(c.d[i].After, ref.step) {
				c.found.add(RuleSelf, "%s refers to its own result.", c.name(i))
			}
		case ref.to == toStep && !slices.Contains(c.d[i].After, ref.step):
			c.needs[i] = append(c.needs[i], j)
		}
	}
	return found
}

// knownVar reports whether a reference's name is one of the task's, or a path into one of them.
func knownVar(path string, names []string) bool {
	name, _, _ := strings.Cut(path, ".")
	return slices.Contains(names, path) || slices.Contains(names, name)
}

func fieldList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// once: a tool whose repetition does harm is in no more steps than it allows.
func (c *dagCheck) once() {
	for i := range c.d {
		steps := c.calls[c.d[i].Tool]
		if len(steps) == 0 || steps[0] != i {
			continue
		}
		tool, _ := c.rules.Tool(c.d[i].Tool)
		if most := max(tool.Times, 1); len(steps) > most {
			c.found.add(RuleOnce, "%s may be called %s in a plan, but %d steps call it: %s.", c.d[i].Tool, count(most, "time"), len(steps),
				c.list(steps))
		}
	}
}

// cycles names the steps of every circle that shares none with one named before.
func (c *dagCheck) cycles() {
	const (
		onPath = 1 + iota
		left
	)
	state, named := make([]int, len(c.d)), make([]bool, len(c.d))
	var path []int
	var visit func(i int)
	visit = func(i int) {
		state[i] = onPath
		path = append(path, i)
		for _, j := range c.needs[i] {
			switch {
			case state[j] == 0:
				visit(j)
			case state[j] == onPath && !named[j]:
				circle := path[slices.Index(path, j):]
				for _, k := range circle {
					named[k] = true
				}
				c.found.add(RuleCycle, "The steps %s wait in a circle, each for the next and the last for the first.", c.list(circle))
			}
		}
		path = path[:len(path)-1]
		state[i] = left
	}
	for i := range c.d {
		if state[i] == 0 {
			visit(i)
		}
	}
}

// list names steps in the order given.
func (c *dagCheck) list(steps []int) string {
	names := make([]string, len(steps))
	for n, i := range steps {
		names[n] = encodeString(c.d[i].ID)
	}
	return strings.Join(names, ", ")
}
