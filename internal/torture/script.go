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

// goalOf is the goal of a run: all that the model needs to know.
func goalOf(shape Shape, run string, seed uint64) string {
	return fmt.Sprintf("torture shape=%s run=%s seed=%d", shape, run, seed)
}

var goalPattern = regexp.MustCompile(`torture shape=([a-z]+) run=([A-Za-z0-9_-]+) seed=([0-9]+)`)

// role is what the model plays for one run.
type role struct {
	shape Shape
	run   string
	seed  uint64
}

// readRole finds the goal in the text; of several, the conversation before it among them, the last counts.
func readRole(text string) (role, bool) {
	all := goalPattern.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return role{}, false
	}
	m := all[len(all)-1]
	seed, err := strconv.ParseUint(m[3], 10, 64)
	return role{shape: Shape(m[1]), run: m[2], seed: seed}, err == nil
}

// chance is a number from 0 to 1 that depends on the role and the question only.
func (r role) chance(question string, turn int) float64 {
	return chance(r.seed, r.run, question, strconv.Itoa(turn))
}

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
		return []act{call(toolStore), {ask: r.chance("asks", 0) < 0.3}}
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

// say is the model's message after so many accepted ones of its own.
func (r role) say(accepted int) string {
	acts := r.script()
	steps := make(plan.Plan, len(acts)+1) // the last one is to answer: a step that thinks needs an open one behind it
	for i := range steps {
		steps[i] = plan.Step{Step: fmt.Sprintf("step %d", i+1), Status: plan.Pending}
		if i < accepted-1 || accepted > len(acts) {
			steps[i].Status, steps[i].Result = plan.Done, plan.Result(fmt.Sprintf("done %d", i+1))
		}
	}
	m := plan.Message{Type: plan.CreatePlan, Thought: "a plan", Plan: steps}
	switch {
	case accepted == 0:
	case accepted > len(acts):
		m = plan.Message{Type: plan.FinalAnswer, Thought: "it is done", Plan: steps, Answer: "done: " + r.run}
	default:
		i := accepted - 1
		steps[i].Status = plan.InProgress
		m = r.act(acts[i], i, steps)
	}
	return m.Encode()
}

func (r role) act(a act, i int, steps plan.Plan) plan.Message {
	switch {
	case a.ask:
		return plan.Message{Type: plan.AskUser, Thought: "only a person knows", Plan: steps, Question: fmt.Sprintf("What about step %d?", i+1)}
	case len(a.tools) > 0:
		m := plan.Message{Type: plan.ToolCall, Thought: "a tool helps", Plan: steps}
		for j, tool := range a.tools {
			args, err := json.Marshal(map[string]string{"item": fmt.Sprintf("item-%d-%d", i+1, j+1)})
			if err != nil {
				panic(err) // a map of strings always encodes
			}
			m.Calls = append(m.Calls, plan.Call{Name: tool, Arguments: args})
		}
		return m
	default:
		steps[i].Status, steps[i].Result = plan.Done, plan.Result(fmt.Sprintf("done %d", i+1))
		return plan.Message{Type: plan.ReasoningStep, Thought: "I think", Plan: steps}
	}
}

// lies are replies that the engine has to refuse.
var lies = []string{
	"I have finished everything.",
	`{"type":"final_answer","thought":"no plan needed","plan":[],"answer":"42"}`,
	`{"type":"tool_call","thought":"x","plan":[{"step":"other","status":"in_progress","result":null}],"name":"no_such_tool","arguments":{}}`,
	`{"type":"update_plan","thought":"cut o`,
}

// lie is what the model says instead, after a turn that was accepted; empty: nothing.
func (r role) lie(turn int, afterRejection bool) string {
	if r.shape != ShapeRough || afterRejection || r.chance("lie", turn) > 0.35 {
		return ""
	}
	return lies[int(r.chance("which lie", turn)*float64(len(lies)))]
}
