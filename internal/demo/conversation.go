package demo

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"ratchet/internal/plan"
)

// conversation is what the messages of a request say about the run.
type conversation struct {
	goal     string
	tools    map[string]json.RawMessage // schema of the arguments by tool; nil where the prompt shows none
	least    int                        // steps a plan must have
	plan     plan.Plan                  // as it was last accepted; empty before the first plan
	calls    []*call                    // accepted ones, in their order
	asked    []*asked
	notes    []string // what the person said without being asked
	rejected string   // why the last message was not accepted; empty where it was
}

// call is one tool call and what came of it.
type call struct {
	tool     string
	observed bool
	status   string
	result   string // text or JSON
}

func (c *call) ok() bool { return c.observed && c.status == "ok" }

// asked is one question to the person and what came of it.
type asked struct {
	question string
	reply    string
	silent   bool // nobody replied in time
}

// How the worker's texts are recognised. Each names what it needs and tolerates the rest, so that a change of wording
// elsewhere costs little.
var (
	goalMark     = regexp.MustCompile(`(?:^|\n)The goal:\n`)
	leastSteps   = regexp.MustCompile(`(?i)at least (\d+) steps`)
	leastRefused = regexp.MustCompile(`(\d+) is the least`)
	toolLine     = regexp.MustCompile(`(?m)^- ([a-zA-Z0-9_.-]+): .*(?:\n\s+arguments: (\{.*\}))?`)
	notAccepted  = regexp.MustCompile(`(?s)(?:was not accepted and nothing of it counts\.|was not accepted[.:])\s*(.*)`)
	observation  = regexp.MustCompile(`(?i)call (\S+?), tool (\S+?), status ([a-z]+)`)
	fenceOpens   = regexp.MustCompile("<data ([0-9a-zA-Z]+)>\\n|```[a-z]*\\n")
	replied      = regexp.MustCompile(`(?s)The person replies(?: with this value)?: (.*?)(?:\nGo on with the same step|\n\n|$)`)
	noted        = regexp.MustCompile(`(?s)The person says, while you work: (.*?)(?:\n\n|$)`)
	silent       = regexp.MustCompile(`(?s)Nobody answered in time\.(?:.*?no person has confirmed: (.*?)(?:\n|$))?`)
)

// read walks the messages: the system prompt, the goal, then each message of the model with what the worker answered.
func read(messages []chatMessage) *conversation {
	c := &conversation{tools: map[string]json.RawMessage{}, least: 2}
	for i := 0; i < len(messages); {
		m := messages[i]
		text := string(m.Content)
		i++
		switch m.Role {
		case "system", "developer":
			c.readSystem(text)
		case "assistant":
			var answer strings.Builder
			for ; i < len(messages) && messages[i].Role != "assistant"; i++ {
				answer.WriteString(string(messages[i].Content) + "\n\n")
			}
			c.readTurn(text, answer.String())
		default:
			if len(c.plan) == 0 && c.goal == "" {
				c.readGoal(text)
			}
		}
	}
	return c
}

func (c *conversation) readSystem(text string) {
	if m := leastSteps.FindStringSubmatch(text); m != nil {
		c.atLeast(m[1])
	}
	for _, m := range toolLine.FindAllStringSubmatch(text, -1) {
		if m[2] == "" || json.Valid([]byte(m[2])) {
			c.tools[m[1]] = json.RawMessage(m[2])
		}
	}
}

// atLeast notes how many steps a plan must have, within reason.
func (c *conversation) atLeast(number string) {
	if n, err := strconv.Atoi(number); err == nil && n <= 50 {
		c.least = max(c.least, n)
	}
}

func (c *conversation) readGoal(text string) {
	if at := goalMark.FindAllStringIndex(text, -1); at != nil {
		text = text[at[len(at)-1][1]:]
	}
	if m := noted.FindStringSubmatchIndex(text); m != nil {
		c.notes = append(c.notes, text[m[2]:m[3]])
		text = text[:m[0]]
	}
	c.goal = strings.TrimSpace(text)
}

// readTurn reads one message of the model and the worker's answer to it.
func (c *conversation) readTurn(said, answer string) {
	c.rejected = ""
	outside := outsideFences(answer)
	if m := notAccepted.FindStringSubmatch(outside); m != nil {
		c.rejected = strings.TrimSpace(m[1])
		if n := leastRefused.FindStringSubmatch(outside); n != nil {
			c.atLeast(n[1])
		}
		return
	}
	m, err := plan.Read(said)
	if err != nil {
		return // words of another model, before this run
	}
	c.plan = m.Plan
	for _, n := range noted.FindAllStringSubmatch(outside, -1) {
		c.notes = append(c.notes, strings.TrimSpace(n[1]))
	}
	switch m.Type {
	case plan.ToolCall:
		c.readCalls(m.Calls, answer)
	case plan.AskUser:
		a := &asked{question: m.Question}
		c.asked = append(c.asked, a)
		a.read(answer)
	case plan.CreatePlan, plan.UpdatePlan, plan.ReasoningStep, plan.FinalAnswer:
	}
}

// readCalls finds the outcome of each call, by the call's id, which counts through the run, or else by the tool's name.
func (c *conversation) readCalls(calls []plan.Call, answer string) {
	first := len(c.calls)
	for _, k := range calls {
		c.calls = append(c.calls, &call{tool: k.Name})
	}
	heads := observation.FindAllStringSubmatchIndex(outsideFences(answer), -1)
	for i, h := range heads {
		end := len(answer)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		id, tool, status := answer[h[2]:h[3]], answer[h[4]:h[5]], answer[h[6]:h[7]]
		if k := c.find(first, id, tool); k != nil {
			k.observed, k.status, k.result = true, strings.ToLower(status), firstFence(answer[h[1]:end])
		}
	}
}

func (c *conversation) find(first int, id, tool string) *call {
	for i := first; i < len(c.calls); i++ {
		if k := c.calls[i]; fmt.Sprintf("c%d", i+1) == id && k.tool == tool && !k.observed {
			return k
		}
	}
	for _, k := range c.calls[first:] {
		if k.tool == tool && !k.observed {
			return k
		}
	}
	return nil
}

// fence is where data stands in a text: its marks included, and without them.
type fence struct{ start, end, from, to int }

// fencesIn finds the fences. One ends at its own closing mark only, whatever else the data holds; one without it runs to
// the end of the text.
func fencesIn(text string) []fence {
	var list []fence
	for at := 0; ; {
		m := fenceOpens.FindStringSubmatchIndex(text[at:])
		if m == nil {
			return list
		}
		closing := "\n```"
		if m[2] >= 0 {
			closing = "\n</data " + text[at+m[2]:at+m[3]] + ">"
		}
		f := fence{start: at + m[0], from: at + m[1], to: len(text), end: len(text)}
		// An empty result has its closing mark right behind the opening one's line break.
		if n := strings.Index(text[f.from-1:], closing); n >= 0 {
			f.to, f.end = max(f.from-1+n, f.from), f.from-1+n+len(closing)
		}
		list = append(list, f)
		at = f.end
	}
}

// outsideFences blanks what stands in fences, so that data can't pass for an observation. Its length is that of text.
func outsideFences(text string) string {
	blanked := []byte(text)
	for _, f := range fencesIn(text) {
		for i := f.start; i < f.end; i++ {
			blanked[i] = ' '
		}
	}
	return string(blanked)
}

func firstFence(text string) string {
	for _, f := range fencesIn(text) {
		return strings.TrimSpace(text[f.from:f.to])
	}
	return ""
}

func (a *asked) read(answer string) {
	if m := replied.FindStringSubmatch(answer); m != nil {
		a.reply = strings.TrimSpace(m[1])
		return
	}
	if m := silent.FindStringSubmatch(answer); m != nil {
		a.reply, a.silent = strings.TrimSpace(m[1]), m[1] == ""
		return
	}
	a.reply = strings.TrimSpace(answer)
}

// of returns the calls of one tool.
func (c *conversation) of(tool string) []*call {
	var list []*call
	for _, k := range c.calls {
		if k.tool == tool {
			list = append(list, k)
		}
	}
	return list
}
