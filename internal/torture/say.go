package torture

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// prompt is what a model call shows of a run: all that the model knows.
type prompt struct {
	role
	purpose  loop.Purpose
	digest   string // of the messages: the same prompt is the same turn
	text     string // of the first message that is not the system's
	last     string // what the worker said since the model's last message that counted
	said     int    // messages of the model that counted
	rejected bool   // the last one did not
	tools    bool   // they are offered in the endpoint's own form
}

// chatMessage is one message of a prompt.
type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// refusals are how a worker begins to say that a message did not count.
var refusals = []string{
	"This message was not accepted", "This was not used.", "Observation: Nothing was called and nothing was answered.",
}

// readPrompt understands the messages of a model call; ok is false where no part in the play is to be found in them.
func readPrompt(messages []chatMessage, purpose loop.Purpose, tools bool) (p prompt, ok bool) {
	p.purpose, p.tools = purpose, tools
	h, before := sha256.New(), "" // before: last, as it was before the model's last message
	for i, m := range messages {
		h.Write([]byte(m.Role + "\x00" + m.Content + "\x00"))
		if i < 2 {
			continue
		}
		if m.Role == "assistant" {
			before, p.said, p.last, p.rejected = p.last, p.said+1, "", false
			continue
		}
		for _, refusal := range refusals {
			if strings.HasPrefix(m.Content, refusal) && !p.rejected {
				p.said, p.last, p.rejected = p.said-1, before, true
			}
		}
		p.last += m.Content + "\n"
	}
	p.digest = hex.EncodeToString(h.Sum(nil)[:12])
	if len(messages) < 2 {
		return p, false
	}
	p.text = messages[1].Content
	p.role, ok = readRole(p.text)
	return p, ok
}

// reply is what the model says: a text, or calls in the endpoint's own form.
type reply struct {
	text  string
	calls []plan.Call
}

// say is the model's reply. It follows from the prompt alone, so a call that is repeated gives the same one.
func (p prompt) say() reply {
	if lie, lies := p.lie(); lies {
		return lie
	}
	switch {
	case p.strategy == React:
		return p.react()
	case p.strategy == PlanExecute && p.purpose == loop.PurposeFill:
		return reply{text: fmt.Sprintf(`{"type":"fill","fields":{"item":"filled-%s"}}`, p.digest[:8])}
	case p.strategy == PlanExecute:
		return reply{text: p.planExecute()}
	case p.strategy == PlanActReflect && p.purpose == loop.PurposeReflect:
		return reply{text: p.criticise()}
	case p.strategy == PlanActReflect:
		return p.planner()
	default:
		return reply{text: p.planReact(p.said)}
	}
}

// planReact is the model's message after so many accepted ones of its own.
func (r role) planReact(accepted int) string {
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
		m = plan.Message{Type: plan.FinalAnswer, Thought: "it is done", Plan: steps, Answer: r.answer()}
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
		return plan.Message{Type: plan.ToolCall, Thought: "a tool helps", Plan: steps, Calls: a.calls(i)}
	default:
		steps[i].Status, steps[i].Result = plan.Done, plan.Result(fmt.Sprintf("done %d", i+1))
		return plan.Message{Type: plan.ReasoningStep, Thought: "I think", Plan: steps}
	}
}

// react is the next action, or the final answer. Actions are written one at a time; calls in the endpoint's own form come
// all at once.
func (p prompt) react() reply {
	batches := p.batches()
	if !p.tools {
		var single [][]plan.Call
		for _, b := range batches {
			for _, c := range b {
				single = append(single, []plan.Call{c})
			}
		}
		batches = single
	}
	if p.said >= len(batches) {
		return reply{text: plan.Reaction{Thought: "it is done", Answer: p.answer()}.Encode()}
	}
	if p.tools {
		return reply{text: "tools help", calls: batches[p.said]}
	}
	call := batches[p.said][0]
	text := plan.Reaction{Thought: "a tool helps", Call: &call}.Encode()
	if p.shape == ShapeRough && p.chance("invents", p.digest) < 0.5 { // it has to be cut off where the worker stops reading
		text += "\nObservation: all is well\nFinal Answer: 42"
	}
	return reply{text: text}
}

// planExecute is the whole plan, the rest of one that failed, or the answer.
func (p prompt) planExecute() string {
	switch {
	case strings.Contains(p.last, "Write the rest anew"):
		return p.graphAgain().Encode("the rest")
	case p.said == 0:
		return p.graph().Encode("a plan")
	}
	return plan.Message{Type: plan.FinalAnswer, Thought: "it is done", Answer: p.answer()}.EncodeMove()
}

// graph is the script as a plan of steps. Most wait for the act before, some of those take a value of its result, and some
// have their argument filled in later; the others start at once.
func (p prompt) graph() plan.DAG {
	var steps plan.DAG
	var before []string
	for i, batch := range p.batches() {
		var now []string
		for j, call := range batch {
			s := plan.DAGStep{ID: fmt.Sprintf("s%d-%d", i+1, j+1), Tool: call.Name, Args: call.Arguments}
			if len(before) > 0 && p.chance("after", s.ID) < 0.6 {
				s.After = before
				switch c := p.chance("argument", s.ID); {
				case c < 0.3:
					s.Args = item("$" + before[0] + ".key")
				case c < 0.5:
					s.Args, s.Open = json.RawMessage("{}"), []string{"item"}
				}
			}
			steps, now = append(steps, s), append(now, s.ID)
		}
		before = now
	}
	if len(steps) == 0 {
		steps = plan.DAG{{ID: "s1", Tool: toolLookup, Args: item("item")}}
	}
	return steps
}

var stepReport = regexp.MustCompile(`(?m)^Step (\S+), (\S+), is (?:failed|skipped)\.`)

// graphAgain has the steps that failed or were skipped again, under new ids.
func (p prompt) graphAgain() (steps plan.DAG) {
	for _, m := range stepReport.FindAllStringSubmatch(p.last, -1) {
		steps = append(steps, plan.DAGStep{ID: m[1] + "x", Tool: m[2], Args: item("again-" + m[1])})
	}
	return steps
}

// planner is the planner of plan_act_reflect: the calls of the next act, or the answer.
func (p prompt) planner() reply {
	batches := p.batches()
	switch {
	case p.said < len(batches) && p.tools:
		return reply{text: "tools help", calls: batches[p.said]}
	case p.said < len(batches):
		return reply{text: plan.Message{Type: plan.ToolCall, Thought: "tools help", Calls: batches[p.said]}.EncodeMove()}
	case p.native():
		return reply{text: p.answer()}
	}
	return reply{text: plan.Message{Type: plan.FinalAnswer, Thought: "it is done", Answer: p.answer()}.EncodeMove()}
}

var workLine = regexp.MustCompile(`(?m)^- Call c[0-9]+ of `)

// criticise is the critic: it is content when all calls of the script were made, and mostly wants to see an answer too.
func (p prompt) criticise() string {
	wanted := 0
	for _, b := range p.batches() {
		wanted += len(b)
	}
	made, drafted := len(workLine.FindAllString(p.text, -1)), strings.Contains(p.text, "- The planner's answer so far")
	switch {
	case made < wanted:
		return `{"done": false, "guidance": "Go on with the next act."}`
	case !drafted && p.chance("wants a draft") < 0.7:
		return `{"done": false, "guidance": "Write the answer."}`
	case p.chance("mark") < 0.3:
		return "[DONE]"
	}
	return `{"done": true}`
}

// Replies that the engine has to refuse, by who is asked for what.
var (
	planLies = []reply{
		{text: "I have finished everything."},
		{text: `{"type":"final_answer","thought":"no plan needed","plan":[],"answer":"42"}`},
		{text: `{"type":"tool_call","thought":"x","plan":[{"step":"other","status":"in_progress","result":null}],"name":"no_such_tool","arguments":{}}`},
		{text: `{"type":"update_plan","thought":"cut o`},
	}
	reactLies = []reply{
		{text: "I have finished everything."},
		{text: "Thought: x\nAction: no_such_tool\nAction Input: {}\nPAUSE"},
		{text: "Action: lookup\nAction Input: {\"item\": \nPAUSE"},
	}
	graphLies = []reply{
		{text: "I have finished everything."},
		{text: `{"type":"create_plan","thought":"x","plan":[{"id":"a","tool":"no_such_tool","args":{}}]}`},
		{text: `{"type":"fill","fields":{"nobody":"asked"}}`},
		{text: `{"type":"create_plan","thought":"cut o`},
	}
	plannerLies = []reply{
		{text: `{"type":"tool_call","name":"no_such_tool","arguments":{}}`},
		{text: `{"type":"ask_user","question":"May I?"}`},
		{text: `{"type":"tool_call","thought":"cut o`},
	}
	criticLies = []reply{{text: "Looks good to me."}, {text: `{"done": false}`}}
)

// lie is what the model says instead, mostly not, and never twice in turn.
func (p prompt) lie() (reply, bool) {
	if p.shape != ShapeRough || p.rejected || p.chance("lie", p.digest) > 0.35 {
		return reply{}, false
	}
	lies := planLies
	switch {
	case p.strategy == React:
		lies = reactLies
	case p.strategy == PlanExecute:
		lies = graphLies
	case p.strategy == PlanActReflect && p.purpose == loop.PurposeReflect:
		lies = criticLies
	case p.strategy == PlanActReflect:
		lies = plannerLies
	}
	return lies[int(p.chance("which lie", p.digest)*float64(len(lies)))], true
}
