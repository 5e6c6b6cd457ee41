package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ratchet/internal/plan"
)

// The scenes are written for plan_react. The other strategies are played by replaying a scene: it is asked for one message
// after another, and gets the outcomes that the run has had, until it asks for a call that has none yet or says its answer.

var questionMark = regexp.MustCompile(`(?:^|\n)Question: `)

// readPlain reads the messages of a strategy without plans: goal, tools, and the outcome of each call by its number.
func readPlain(messages []chatMessage, offered []string) (c *conversation, done []*call) {
	c = &conversation{least: 2}
	byNumber := map[int]*call{}
	c.tools = map[string]json.RawMessage{}
	for _, name := range offered {
		c.tools[name] = nil
	}
	spoken := false
	for _, m := range messages {
		text := string(m.Content)
		switch m.Role {
		case "system", "developer":
			c.readSystem(text)
		case "assistant":
			spoken = true
		default:
			if !spoken {
				if at := questionMark.FindAllStringIndex(text, -1); at != nil {
					text = text[at[len(at)-1][1]:]
				}
				c.readGoal(text)
				continue
			}
			c.rejected = ""
			outside := outsideFences(text)
			if m := notAccepted.FindStringSubmatch(outside); m != nil {
				c.rejected = strings.TrimSpace(m[1])
			}
			readOutcomes(text, byNumber)
			for _, n := range noted.FindAllStringSubmatch(outside, -1) {
				c.notes = append(c.notes, strings.TrimSpace(n[1]))
			}
		}
	}
	for _, n := range sortedKeys(byNumber) {
		done = append(done, byNumber[n])
	}
	return c, done
}

func sortedKeys[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[int])
	return keys
}

// readOutcomes finds the outcomes of calls in one message of the worker.
func readOutcomes(text string, byNumber map[int]*call) {
	heads := observation.FindAllStringSubmatchIndex(outsideFences(text), -1)
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		n, err := strconv.Atoi(strings.TrimPrefix(text[h[2]:h[3]], "c"))
		if err != nil {
			continue
		}
		byNumber[n] = &call{
			tool: text[h[4]:h[5]], observed: true, status: strings.ToLower(text[h[6]:h[7]]), result: firstFence(text[h[1]:end]),
		}
	}
}

// replayed bounds how many messages of a scene are skipped: each of them needs a call or closes a step.
const replayed = 100

// replay returns the scene's next message after the outcomes so far: a tool_call with the calls that have none yet, or a
// final_answer.
func replay(c *conversation, done []*call) plan.Message {
	s := pick(c)
	for _, tool := range s.tools {
		if _, ok := c.tools[tool]; !ok {
			return plan.Message{Type: plan.FinalAnswer, Answer: fmt.Sprintf("I need the tool %s for this, and this run does not offer it.", tool)}
		}
	}
	if c.rejected != "" {
		return plan.Message{Type: plan.FinalAnswer, Answer: "I could not go on, because my last message was not accepted: " + clip(c.rejected, 300)}
	}
	v := *c
	v.calls = nil
	v.plan = create(c, s).Plan
	for range replayed {
		m := s.play(&turn{conversation: &v, plan: slices.Clone(v.plan)})
		v.plan = m.Plan
		switch m.Type {
		case plan.ToolCall:
			for len(m.Calls) > 0 {
				i := slices.IndexFunc(done, func(k *call) bool { return k.tool == m.Calls[0].Name })
				if i < 0 {
					return m
				}
				v.calls, done, m.Calls = append(v.calls, done[i]), slices.Delete(slices.Clone(done), i, i+1), m.Calls[1:]
			}
		case plan.AskUser:
			return plan.Message{
				Type: plan.FinalAnswer, Thought: m.Thought,
				Answer: "With this strategy I can't ask in between. Please say it with the goal: " + m.Question,
			}
		case plan.FinalAnswer:
			return m
		case plan.CreatePlan, plan.UpdatePlan, plan.ReasoningStep, plan.Fill:
		}
	}
	return plan.Message{Type: plan.FinalAnswer, Answer: "I lost the thread."}
}

// react is the next message in the text contract.
func react(messages []chatMessage) string {
	c, done := readPlain(messages, nil)
	m := replay(c, done)
	r := plan.Reaction{Thought: m.Thought, Answer: m.Answer}
	if m.Type == plan.ToolCall {
		r.Call = &m.Calls[0]
	}
	return r.Encode()
}

const (
	noMoreCalls = "No tool can be called any more."
)

// planner is the planner's part of plan_act_reflect. native says that it may call the tools in the API's own form.
func planner(messages []chatMessage, offered []string, native bool) spoken {
	c, done := readPlain(messages, offered)
	last := string(messages[len(messages)-1].Content)
	over := strings.Contains(last, noMoreCalls)
	if over {
		for _, tool := range pick(c).tools { // none is offered any more, and none is needed
			c.tools[tool] = nil
		}
	}
	m := replay(c, done)
	switch {
	case m.Type == plan.ToolCall && over:
		m = plan.Message{Type: plan.FinalAnswer, Answer: unfinished(m.Calls[0].Name, done)}
	case m.Type == plan.ToolCall && native:
		return spoken{text: m.Thought, calls: m.Calls}
	}
	if native {
		return spoken{text: m.Answer}
	}
	return spoken{text: m.EncodeMove()}
}

// unfinished says how far the work came when the rounds were spent.
func unfinished(next string, done []*call) string {
	answer := "The rounds were spent before this was finished; next would have come " + next + "."
	for _, k := range slices.Backward(done) {
		if report, ok := field(k.result, "report").(string); ok && k.ok() {
			return report + "\n\n" + answer
		}
	}
	return answer
}

// critic is the critic's part: an answer is good enough, calls alone are none.
func critic(messages []chatMessage) string {
	if strings.Contains(string(messages[len(messages)-1].Content), "The planner's answer so far: ") {
		return `{"done":true,"guidance":""}`
	}
	return `{"done":false,"guidance":"Go on with what the calls returned, and answer once nothing is left to call."}`
}
