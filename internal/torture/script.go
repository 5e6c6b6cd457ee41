package torture

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"

	"ratchet/internal/plan"
)

// Shape is what a run is like.
type Shape string

// The shapes of runs.
const (
	ShapePlain     Shape = "plain"     // thinks and answers
	ShapeParallel  Shape = "parallel"  // calls three tools at once
	ShapeQuestion  Shape = "question"  // asks, and is answered
	ShapeSilent    Shape = "silent"    // asks, is not answered, and goes on
	ShapePayment   Shape = "payment"   // calls a once tool that has a reconcile check
	ShapeOrder     Shape = "order"     // calls a once tool that has none: a person is asked after a crash
	ShapeApproval  Shape = "approval"  // calls once tools that need a person's yes: by the tools file, and by the task
	ShapeCancel    Shape = "cancel"    // is cancelled at some moment
	ShapePause     Shape = "pause"     // is paused at some moment, and resumed
	ShapeSession   Shape = "session"   // is one of three in a conversation
	ShapeDuplicate Shape = "duplicate" // is submitted several times
	ShapeLong      Shape = "long"      // has thirty steps, and notes from a person
	ShapeRough     Shape = "rough"     // has a model that lies, and an endpoint that fails
)

// Shapes lists all of them.
var Shapes = []Shape{
	ShapePlain, ShapeParallel, ShapeQuestion, ShapeSilent, ShapePayment, ShapeOrder, ShapeApproval, ShapeCancel, ShapePause,
	ShapeSession, ShapeDuplicate, ShapeLong, ShapeRough,
}

// Strategy is the one a run is driven by, as tasks name it.
type Strategy string

// The strategies.
const (
	PlanReact      Strategy = "plan_react"
	React          Strategy = "react"
	PlanExecute    Strategy = "plan_execute"
	PlanActReflect Strategy = "plan_act_reflect"
)

// Strategies lists all of them.
var Strategies = []Strategy{PlanReact, React, PlanExecute, PlanActReflect}

// asks reports whether runs of this shape put questions of the model's own, which plan_react alone can do.
func (s Shape) asks() bool { return s == ShapeQuestion || s == ShapeSilent }

// role is what the model plays for one run.
type role struct {
	shape    Shape
	strategy Strategy
	run      string
	seed     uint64
}

// goal is the goal of a run: all that the model needs to know.
func (r role) goal() string {
	return fmt.Sprintf("torture shape=%s strategy=%s run=%s seed=%d", r.shape, r.strategy, r.run, r.seed)
}

var goalPattern = regexp.MustCompile(`torture shape=([a-z]+) strategy=([a-z_]+) run=([A-Za-z0-9_-]+) seed=([0-9]+)`)

// readRole finds the goal in the text; of several, the conversation before it among them, the last counts.
func readRole(text string) (role, bool) {
	all := goalPattern.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return role{}, false
	}
	m := all[len(all)-1]
	seed, err := strconv.ParseUint(m[4], 10, 64)
	return role{shape: Shape(m[1]), strategy: Strategy(m[2]), run: m[3], seed: seed}, err == nil
}

// chance is a number from 0 to 1 that depends on the role and the question only.
func (r role) chance(question ...string) float64 {
	return chance(r.seed, append([]string{r.run}, question...)...)
}

// native reports whether the run has its tools offered in the endpoint's own form.
func (r role) native() bool { return r.chance("native") < 0.5 }

func chance(seed uint64, parts ...string) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s", seed, strings.Join(parts, "/"))
	v := h.Sum64() // mixed once more: the high bits of fnv change little with the last bytes
	v ^= v >> 33
	v *= 0xff51afd7ed558ccd
	v ^= v >> 33
	return float64(v>>11) / (1 << 53)
}

// act is what the model does in one step of its plan: it calls tools, or asks, or thinks.
type act struct {
	tools []string
	ask   bool
}

// script is what the run does, step by step, between plan and answer.
func (r role) script() []act {
	think := act{}
	call := func(tools ...string) act { return act{tools: tools} }
	switch r.shape {
	case ShapeParallel:
		return []act{call(toolLookup, toolStore, toolLookup), think}
	case ShapeQuestion, ShapeSilent:
		return []act{think, {ask: true}, think}
	case ShapePayment:
		return []act{call(toolPay), think, call(toolPay, toolLookup)}
	case ShapeOrder:
		return []act{call(toolOrder), call(toolStore)}
	case ShapeApproval:
		return []act{call(toolBuy, toolLookup), call(toolOrder), think}
	case ShapeCancel:
		return []act{call(toolLookup), call(toolPay), call(toolOrder), think, call(toolStore)}
	case ShapePause:
		return []act{call(toolLookup), think, call(toolPay), think}
	case ShapeSession:
		return []act{call(toolStore), {ask: r.chance("asks") < 0.3}}
	case ShapeLong:
		acts := make([]act, 30)
		for i := range acts {
			acts[i] = []act{think, call(toolLookup), call(toolStore), think, call(toolPay)}[i%5]
		}
		return acts
	case ShapeRough:
		return []act{call(toolLookup), think, call(toolStore), think}
	case ShapePlain, ShapeDuplicate:
	}
	return []act{think, think}
}

// calls are the tools of an act, each with an argument of its own.
func (a act) calls(i int) []plan.Call {
	calls := make([]plan.Call, len(a.tools))
	for j, tool := range a.tools {
		calls[j] = plan.Call{Name: tool, Arguments: item(fmt.Sprintf("item-%d-%d", i+1, j+1))}
	}
	return calls
}

// item is the arguments of any counting tool.
func item(text string) json.RawMessage {
	args, err := json.Marshal(map[string]string{"item": text})
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	return args
}

// batches are the calls of the acts that have some, in turn.
func (r role) batches() (all [][]plan.Call) {
	for i, a := range r.script() {
		if len(a.tools) > 0 {
			all = append(all, a.calls(i))
		}
	}
	return all
}

// answer is what every run has to answer.
func (r role) answer() string { return "done: " + r.run }
