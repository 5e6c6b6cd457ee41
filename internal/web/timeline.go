package web

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

const (
	// maxShown is how much of one value a page shows, in bytes; the whole event is one link away.
	maxShown = 6 << 10
	// foldFrom is the length in bytes from which a value is shown folded.
	foldFrom = 900
)

// item is one event as the timeline shows it.
type item struct {
	Run    loop.RunID
	N      uint64
	Seq    uint64
	Time   time.Time
	Type   string // of the event
	Shape  string // of the mark
	Title  string
	Who    string // person or tool, beside the title
	Text   string // prose
	Blocks []block
	Facts  []string // small print: model, tokens, cost, time
	Links  []link
	Quiet  bool // of interest to few
}

// block is a value shown as it is.
type block struct {
	Label   string
	Text    string
	Clipped bool
	Folded  bool
}

type link struct {
	Label string
	Run   loop.RunID
}

func itemOf(ev loop.Event) item {
	it := item{Run: ev.RunID, N: ev.N, Seq: ev.Seq, Time: ev.Time, Type: ev.Type(), Shape: "dot"}
	if made, ok := madeBy(ev.Data); ok {
		it.Facts = factsOf(made)
	}
	switch d := ev.Data.(type) {
	case loop.Plan, loop.Thought, loop.Call, loop.Rejection, loop.Reflection:
		it.model(d)
	case loop.Started, loop.Observation, loop.Wait, loop.Timeout, loop.Child, loop.Summary:
		it.machine(d, ev.RunID)
	case loop.Question, loop.Reply, loop.Note, loop.Control:
		it.people(d)
	case loop.Accepted, loop.Facts, loop.Answer, loop.Failed, loop.Cancelled:
		it.ends(d, ev.RunID)
	default:
		it.Title = ev.Type()
	}
	return it
}

// model tells what the model said.
func (it *item) model(data loop.Data) {
	switch d := data.(type) {
	case loop.Plan:
		it.Title, it.Shape, it.Text = "Plan changed", "plan", d.Thought
		if d.Created {
			it.Title = "Plan made"
		}
		it.Title += ": " + count(len(d.Plan), "step")
	case loop.Thought:
		it.Title, it.Shape, it.Text = "Thought", "thought", d.Thought
	case loop.Call:
		it.Title, it.Shape, it.Text = "Calls "+count(len(d.Calls), "tool"), "call", d.Thought
		if len(d.Calls) == 1 {
			it.Title, it.Who, it.Facts = "Calls", d.Calls[0].Tool, append(callFacts(d.Calls[0]), it.Facts...)
			it.Blocks = append(it.Blocks, jsonBlock("", d.Calls[0].Arguments))
			return
		}
		for _, c := range d.Calls {
			it.Blocks = append(it.Blocks, jsonBlock(c.Tool+" · "+strings.Join(callFacts(c), " · "), c.Arguments))
		}
	case loop.Rejection:
		it.Title, it.Shape, it.Text = "Reply refused, attempt "+strconv.Itoa(d.Attempt), "failed", d.Error
		it.Blocks = append(it.Blocks, textBlock("what the model said", d.Reply))
	case loop.Reflection:
		it.Title, it.Shape, it.Text = "Reflection", "thought", d.Text
	default:
	}
}

// callFacts are what is to be known of a call beside its arguments.
func callFacts(c loop.ToolCall) []string {
	facts := []string{c.Call}
	if c.Step != "" {
		facts = append(facts, "step "+c.Step)
	}
	if c.Effect == loop.EffectOnce {
		facts = append(facts, "must not run twice")
	}
	return facts
}

// machine tells what tools, time and other runs did.
func (it *item) machine(data loop.Data, run loop.RunID) {
	switch d := data.(type) {
	case loop.Started:
		it.Title, it.Quiet = "Call "+d.Call+" is about to be sent", true
	case loop.Observation:
		it.Title, it.Who, it.Shape = "Result: "+string(d.Status), d.Tool, shape(d.Status)
		if d.Tool == "" && d.Step != "" {
			it.Who = "step " + d.Step
		}
		it.Blocks = append(it.Blocks, jsonBlock("", d.Result))
		if d.Call != "" {
			it.Facts = append(it.Facts, d.Call)
		}
		if d.Truncated {
			it.Facts = append(it.Facts, "the model saw an excerpt")
		}
		if d.MS > 0 {
			it.Facts = append(it.Facts, took(time.Duration(d.MS)*time.Millisecond))
		}
	case loop.Wait:
		it.Title, it.Shape, it.Text = "Waits", "waiting", d.Why
		if !d.Until.IsZero() {
			it.Title = "Waits until " + d.Until.UTC().Format("2006-01-02 15:04:05 UTC")
		}
	case loop.Timeout:
		it.Title, it.Shape = map[loop.TimeoutKind]string{
			loop.TimeoutQuestion: "Nobody answered in time", loop.TimeoutRun: "The run worked longer than it may", loop.TimeoutWait: "The wait is over",
		}[d.What], "waiting"
	case loop.Child:
		it.Title, it.Shape = "Child run begins", "call"
		if d.Status != "" {
			it.Title, it.Shape = "Child run: "+string(d.Status), shape(d.Status)
		}
		it.Links = append(it.Links, link{d.Run, loop.RunID{Tenant: run.Tenant, Run: d.Run}})
	case loop.Summary:
		it.Title, it.Text, it.Quiet = "Prompt shortened up to event "+strconv.FormatUint(d.Upto, 10), d.Text, true
	default:
	}
}

// people tells what people were asked and said.
func (it *item) people(data loop.Data) {
	switch d := data.(type) {
	case loop.Question:
		it.Shape, it.Text, it.Who = "waiting", d.Text, d.Question
		it.Title = map[loop.QuestionKind]string{
			loop.KindAsk: "Asks a person", loop.KindApproval: "Asks for a yes", loop.KindEscalation: "Needs a person's decision",
		}[d.Kind]
		if d.Tool != "" {
			it.Blocks = append(it.Blocks, jsonBlock(d.Tool, d.Arguments))
		}
	case loop.Reply:
		it.Title, it.Shape, it.Who, it.Text = "Answered "+d.Question, "person", d.By, d.Text
		if d.Approve != nil {
			it.Title, it.Shape = "Approved "+d.Question, "done"
			if !*d.Approve {
				it.Title, it.Shape, it.Text = "Refused "+d.Question, "failed", strings.TrimSpace(d.Reason+" "+d.Text)
			}
		}
		if d.Text == "" && len(d.Value) > 0 {
			it.Blocks = append(it.Blocks, jsonBlock("value", d.Value))
		}
		if len(d.Arguments) > 0 {
			it.Blocks = append(it.Blocks, jsonBlock("edited arguments", d.Arguments))
		}
		if d.Remember != "" {
			it.Facts = append(it.Facts, "also for "+d.Remember+" in this run")
		}
	case loop.Note:
		it.Title, it.Shape, it.Who, it.Text = "Note", "person", d.By, d.Text
	case loop.Control:
		it.Title, it.Shape, it.Who, it.Text = "Order: "+string(d.Op), "person", d.By, d.Reason
	default:
	}
}

// ends tells how a run began and ended.
func (it *item) ends(data loop.Data, run loop.RunID) {
	switch d := data.(type) {
	case loop.Accepted:
		it.Title, it.Shape = "Accepted with "+count(len(d.Tools), "tool"), "running"
		task, err := json.Marshal(d.Task)
		if err == nil {
			b := jsonBlock("task", task)
			b.Folded = true
			it.Blocks = append(it.Blocks, b)
		}
		for label, other := range map[string]string{"parent": d.Parent, "again": d.RedriveOf} {
			if other != "" {
				it.Links = append(it.Links, link{label + ": " + other, loop.RunID{Tenant: run.Tenant, Run: other}})
			}
		}
	case loop.Facts:
		it.Title, it.Quiet = "Recalled "+count(len(d.Facts), "fact"), true
		if d.Degraded != "" {
			it.Text = "Memory could not be asked: " + d.Degraded
		}
		for _, f := range d.Facts {
			it.Text += "• " + f.Text + "\n"
		}
	case loop.Answer:
		it.Title, it.Shape, it.Text = "Answer", "done", d.Answer
	case loop.Failed:
		it.Title, it.Shape, it.Text = "Failed: "+string(d.Reason), "failed", d.Message
	case loop.Cancelled:
		it.Title, it.Shape, it.Text, it.Who = "Cancelled", "cancelled", d.Reason, d.By
	default:
	}
}

// factsOf is what a model call cost.
func factsOf(m loop.Made) (facts []string) {
	if m.Model != "" {
		facts = append(facts, m.Model)
	}
	if m.Usage != nil {
		facts = append(facts, number(m.Usage.PromptTokens)+" + "+number(m.Usage.CompletionTokens)+" tokens")
		if m.Usage.CostUSD > 0 {
			facts = append(facts, money(m.Usage.CostUSD))
		}
	}
	if m.MS > 0 {
		facts = append(facts, took(time.Duration(m.MS)*time.Millisecond))
	}
	return facts
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// jsonBlock shows a JSON value, text as text and all else indented, digits as they were written.
func jsonBlock(label string, value json.RawMessage) block {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return textBlock(label, text)
	}
	return textBlock(label, indented(value))
}

// indented is a JSON value as people read it, every digit and escape as it was written.
func indented(value json.RawMessage) string {
	if compact := bytes.TrimSpace(value); len(compact) <= 72 && !bytes.Contains(compact, []byte("\n")) {
		return string(compact)
	}
	return indentedAlways(value)
}

func indentedAlways(value json.RawMessage) string {
	var pretty bytes.Buffer
	if json.Indent(&pretty, value, "", "  ") != nil {
		return string(value)
	}
	return pretty.String()
}

func textBlock(label, text string) block {
	b := block{Label: label, Text: text, Folded: len(text) > foldFrom}
	if len(text) > maxShown {
		b.Text, b.Clipped = clip(text, maxShown), true
	}
	return b
}

// steps are a plan as a page shows it.
type planStep struct {
	Text, Status, Result string
}

func stepsOf(p plan.Plan) []planStep {
	out := make([]planStep, len(p))
	for i, s := range p {
		out[i] = planStep{s.Step, string(s.Status), clip(string(s.Result), maxText)}
	}
	return out
}
