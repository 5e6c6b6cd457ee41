package demo

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"ratchet/internal/plan"
)

// How the worker's texts of plan_execute are recognised.
var (
	stepEnded  = regexp.MustCompile(`Step (\S+), (\S+), is (done|failed|skipped)\.`)
	openFields = regexp.MustCompile(`(?m)^Open fields: (.*)$`)
	filledCall = regexp.MustCompile(`(?m)^The call: (\S+):`)
	goalLine   = regexp.MustCompile(`(?m)^The goal: (.*)$`)
)

const (
	stepsEnded = "All steps of the plan have ended."
	restAnew   = "Write the rest anew"
)

// graph is the next message of plan_execute: the plan, the rest of it, or the answer.
func graph(messages []chatMessage) string {
	c, _ := readPlain(messages, nil)
	report := ""
	for _, m := range messages {
		if text := string(m.Content); m.Role != "assistant" && strings.Contains(outsideFences(text), stepsEnded) {
			report = text
		}
	}
	switch {
	case report == "":
		return c.graph().Encode("Plan by rules of the demo model.")
	case strings.Contains(outsideFences(report), restAnew):
		if rest := c.restOf(); rest != nil {
			return rest.Encode("The plan failed, so the person waiting is told of the delay.")
		}
		return c.graph().Encode("The demo model knows no other way.")
	}
	return plan.Message{Type: plan.FinalAnswer, Thought: "All steps have ended.", Answer: c.tell(stepOutcomes(report))}.EncodeMove()
}

// stepOutcomes are the outcomes of a plan's steps, in its order.
func stepOutcomes(report string) (done []*call) {
	heads := stepEnded.FindAllStringSubmatchIndex(outsideFences(report), -1)
	for i, h := range heads {
		end := len(report)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		status := map[string]string{"done": "ok", "failed": "error", "skipped": "skipped"}[report[h[6]:h[7]]]
		done = append(done, &call{tool: report[h[4]:h[5]], observed: true, status: status, result: firstFence(report[h[1]:end])})
	}
	return done
}

// node makes a step of a graph, with these arguments left open.
func node(id int, tool string, args map[string]any, open ...string) plan.DAGStep {
	s := plan.DAGStep{
		ID: fmt.Sprint(id), Tool: tool, Args: json.RawMessage(encode(args)), After: []string{}, Open: []string{}, Status: plan.Pending,
	}
	s.Open = append(s.Open, open...)
	return s
}

// graph is the plan for the goal. Every graph makes its calls in the order in which the goal's scene does.
func (c *conversation) graph() plan.DAG {
	if parts := partsOf(c); parts != nil {
		return partsGraph(parts)
	}
	switch {
	case aboutReport.MatchString(c.goal) && monthIn(c.goal) != "":
		return reportGraph(orderIn(c.goal), addressee(c.goal))
	case orderNumber.MatchString(c.goal):
		return courierGraph(part(orderNumber, c.goal))
	case aboutShares.MatchString(c.goal):
		return c.firstCalls("buy_shares")
	case sumWord.MatchString(c.goal) && len(numbersIn(c.goal)) > 1:
		return sumGraph(numbersIn(c.goal))
	}
	return c.firstCalls("get_temperature")
}

// firstCalls is a graph of the calls that the goal's scene begins with, where they are of that tool. A goal that needs none
// gets a step that does no harm, since a plan has one at least.
func (c *conversation) firstCalls(tool string) plan.DAG {
	var d plan.DAG
	if m := replay(c, nil); m.Type == plan.ToolCall {
		for i, k := range m.Calls {
			if k.Name == tool {
				d = append(d, plan.DAGStep{
					ID: fmt.Sprint(i + 1), Tool: k.Name, Args: k.Arguments, After: []string{}, Open: []string{}, Status: plan.Pending,
				})
			}
		}
	}
	if d == nil {
		d = plan.DAG{node(1, "current_time", map[string]any{})}
	}
	return d
}

func sumGraph(numbers []json.Number) plan.DAG {
	var d plan.DAG
	var sum any
	for i, n := range numbers {
		if i == 0 {
			sum = n
			continue
		}
		d = append(d, node(i, "add_numbers", map[string]any{"a": sum, "b": n}))
		sum = fmt.Sprintf("$%d", i)
	}
	return d
}

func reportGraph(o order, to string) plan.DAG {
	load := map[string]any{"month": o.month}
	if o.region != "" {
		load["region"] = o.region
	}
	d := plan.DAG{
		node(1, "load_sales", load),
		node(2, "summarize", map[string]any{"rows": "$1.rows"}),
		node(3, "write_report", map[string]any{
			"title": o.title(), "total": "$2.total", "by_region": "$2.by_region", "by_product": "$2.by_product",
		}, "summary"),
	}
	if o.chart {
		d = append(d, node(len(d)+1, "draw_chart", map[string]any{"title": "Revenue by region", "values": "$2.by_region"}))
	}
	if o.mail {
		d = append(d, node(len(d)+1, "send_email", map[string]any{"to": to, "subject": o.title(), "body": "$3.report"}))
	}
	return d
}

func courierGraph(id string) plan.DAG {
	d := plan.DAG{
		node(1, "lookup_order", map[string]any{"order_id": id}),
		node(2, "get_courier_note", map[string]any{"order_id": id}),
		node(3, "send_reply", map[string]any{"order_id": id}, "text"),
	}
	d[2].After = []string{"1", "2"}
	return d
}

// restOf is what is left to do when the plan failed: whoever waits for a report is told that it is late. Nil: nothing.
func (c *conversation) restOf() plan.DAG {
	if !aboutReport.MatchString(c.goal) || !aboutMail.MatchString(c.goal) {
		return nil
	}
	title := orderIn(c.goal).title()
	return plan.DAG{node(9, "send_email", map[string]any{
		"to": addressee(c.goal), "subject": title + " is late", "body": "The " + lowerFirst(title) + " is late: its sales could not be loaded.",
	})}
}

// tell is the answer after the steps have ended.
func (c *conversation) tell(done []*call) string {
	if len(done) == 1 && done[0].tool == "send_email" && aboutReport.MatchString(c.goal) {
		title := lowerFirst(orderIn(c.goal).title())
		if !done[0].ok() {
			return "The " + title + " could not be written, and nobody could be told: " + done[0].failure() + "."
		}
		return "The " + title + " could not be written: its sales could not be loaded. A notice of the delay was mailed to " +
			text(done[0].result, "to") + "."
	}
	c.tools = map[string]json.RawMessage{} // what the plan did not call does not matter any more
	for _, tool := range pick(c).tools {
		c.tools[tool] = nil
	}
	if len(done) == 1 && done[0].tool == "current_time" {
		done = nil
	}
	if m := replay(c, done); m.Type == plan.FinalAnswer {
		return m.Answer
	}
	for _, k := range done {
		if !k.ok() {
			return "This could not be finished: " + k.failure() + "."
		}
	}
	return "All steps of the plan are done."
}

// fill writes the open fields of a step from the results it is shown.
func fill(messages []chatMessage) string {
	prompt := ""
	for _, m := range messages {
		if text := string(m.Content); openFields.MatchString(outsideFences(text)) {
			prompt = text
		}
	}
	tool := part(filledCall, prompt)
	done := stepOutcomes(prompt)
	fields := map[string]any{}
	for _, name := range strings.Split(part(openFields, outsideFences(prompt)), ", ") {
		switch {
		case name == "":
		case tool == "write_report" && name == "summary" && len(done) > 0:
			fields[name] = summary(done[len(done)-1].result)
		case tool == "send_reply" && name == "text" && len(done) == 2:
			fields[name] = courierReply(part(goalLine, prompt), done[0], done[1])
		default:
			fields[name] = "The demo model can't write this."
		}
	}
	return encode(map[string]any{"type": "fill", "fields": fields})
}
