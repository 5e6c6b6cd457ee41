package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ratchet/internal/plan"
)

// scene is one example that the model can carry out.
type scene struct {
	steps []string
	tools []string                 // it can't do without
	play  func(*turn) plan.Message // the message after the plan; called once for every turn
}

// scenes try a goal in this order; each returns nil for a goal that is none of its kind.
var scenes = []func(*conversation) *scene{salesReport, courierNote, buyShares, addNumbers, compareCities}

const examples = `the demo model only knows these examples: "Is it warmer in Singapore, Jakarta or Paris?", ` +
	`"Buy a few Microsoft shares.", "Write the sales report for March and mail it to ada@example.com", "Where is my order 4417?" and "What is 17 plus 25?", and several of them in one goal. ` +
	`Set OPENAI_BASE_URL or OPENAI_API_KEY to use a real model`

// next is the model's next message.
func next(c *conversation) plan.Message {
	s := pick(c)
	if len(c.plan) == 0 {
		return create(c, s)
	}
	t := &turn{conversation: c, plan: slices.Clone(c.plan)}
	if c.rejected != "" {
		// By rules the same message would come again, so the run ends here with an answer instead.
		return t.giveUp("I could not go on, because my last message was not accepted: " + clip(c.rejected, 300))
	}
	for _, tool := range s.tools {
		if _, ok := c.tools[tool]; !ok {
			return t.giveUp(fmt.Sprintf("I need the tool %s for this, and this run does not offer it.", tool))
		}
	}
	return s.play(t)
}

// find returns the example that a goal is; nil where it is none.
func find(c *conversation) *scene {
	for _, find := range scenes {
		if s := find(c); s != nil {
			return s
		}
	}
	return nil
}

func pick(c *conversation) *scene {
	if s := manyParts(c); s != nil {
		return s
	}
	if s := find(c); s != nil {
		return s
	}
	return &scene{
		steps: []string{"Look whether the goal is one of the known examples", "Answer"},
		play: func(t *turn) plan.Message {
			t.done(0, "It is none of them.")
			return t.answer("This goal is none of the examples.", "I can't do this: "+examples+".")
		},
	}
}

// create is the first message. A run that wants longer plans gets steps at the end that have nothing left to do.
func create(c *conversation, s *scene) plan.Message {
	m := plan.Message{Type: plan.CreatePlan, Thought: "Plan by rules of the demo model."}
	for _, step := range s.steps {
		m.Plan = append(m.Plan, plan.Step{Step: step, Status: plan.Pending})
	}
	for i := 1; len(m.Plan) < c.least; i++ {
		m.Plan = append(m.Plan, plan.Step{Step: fmt.Sprintf("Look at the answer again (%d)", i), Status: plan.Pending})
	}
	return m
}

// turn is a conversation with a copy of its plan to work on.
type turn struct {
	*conversation
	plan plan.Plan
}

// done closes a step. One that is closed already stays as it is, so that scenes can say it at every turn.
func (t *turn) done(i int, result string) { t.close(i, plan.Done, result) }

func (t *turn) close(i int, status plan.Status, result string) {
	if i < len(t.plan) && !t.plan[i].Status.Closed() {
		t.plan[i].Status, t.plan[i].Result = status, plan.Result(strings.TrimSpace(result))
	}
}

// open reports whether a step is still open.
func (t *turn) open(i int) bool { return i < len(t.plan) && !t.plan[i].Status.Closed() }

// work puts the first open step in progress; where there is none, a plan that another model wrote gets one more.
func (t *turn) work() plan.Plan {
	i := t.plan.Open()
	if i < 0 {
		i = len(t.plan)
		t.plan = append(t.plan, plan.Step{Step: "Go on"})
	}
	t.plan[i].Status = plan.InProgress
	return t.plan
}

func (t *turn) call(thought string, calls ...plan.Call) plan.Message {
	return plan.Message{Type: plan.ToolCall, Thought: thought, Plan: t.work(), Calls: calls}
}

func (t *turn) ask(thought, question string) plan.Message {
	return plan.Message{Type: plan.AskUser, Thought: thought, Plan: t.work(), Question: question}
}

func (t *turn) think(thought string) plan.Message {
	return plan.Message{Type: plan.ReasoningStep, Thought: thought, Plan: t.work()}
}

// answer ends the run; steps that are still open had nothing left to do.
func (t *turn) answer(thought, answer string) plan.Message {
	for i := range t.plan {
		t.done(i, "Nothing was left to do.")
	}
	if len(t.notes) > 0 {
		answer += fmt.Sprintf(" (The demo model can't act on notes such as %q.)", clip(t.notes[0], 100))
	}
	return plan.Message{Type: plan.FinalAnswer, Thought: thought, Plan: t.plan, Answer: answer}
}

// giveUp ends the run with what is in the way of the first open step; those after it are blocked with it.
func (t *turn) giveUp(why string) plan.Message {
	t.close(max(t.plan.Open(), 0), plan.Blocked, why)
	for i := range t.plan {
		t.close(i, plan.Blocked, "Not reached.")
	}
	return t.answer("I can't finish this.", why)
}

// toolCall makes a call; nil arguments are an empty object.
func toolCall(tool string, arguments map[string]any) plan.Call {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return plan.Call{Name: tool, Arguments: json.RawMessage(encode(arguments))}
}

// failure says what became of a call that did not succeed.
func (c *call) failure() string {
	switch c.status {
	case "unknown":
		return fmt.Sprintf("it is not known whether %s took effect", c.tool)
	case "cancelled", "skipped":
		return fmt.Sprintf("%s was not run (%s)", c.tool, clip(plainText(c.result), 200))
	}
	return fmt.Sprintf("%s failed: %s", c.tool, clip(plainText(c.result), 300))
}

// plainText shows a result to a person: an error's or a value's text without its JSON.
func plainText(result string) string {
	for _, key := range []string{"error", "message", "confirmation", "order", "text"} {
		if s, ok := field(result, key).(string); ok && s != "" {
			return s
		}
	}
	var s string
	if json.Unmarshal([]byte(result), &s) == nil {
		return s
	}
	if result == "" {
		return "no result"
	}
	return result
}

// field returns a member of a JSON object; nil where there is none.
func field(result, key string) any {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(result), &object) != nil {
		return nil
	}
	return value(object[key])
}

// value decodes JSON and keeps numbers as they are written; nil for what is no JSON.
func value(raw json.RawMessage) any {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// clip cuts text after n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
