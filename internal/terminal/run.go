package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// Run is what is worth showing of one run. Give it the run's events in order.
type Run struct {
	ID   string
	Goal string
	Note string // said in place of what the run is doing, while it is not empty

	// Question is the open one; nil where there is none.
	Question *loop.Question
	// Final is Answer, Failed or Cancelled once the run has ended.
	Final loop.Data

	// Label is, of a child run, the calls that lead to it, such as c1 or c1.c2.
	Label string

	below    []*Run // child runs in the order in which they began, those that have ended too
	plan     plan.Plan
	thought  string
	calls    []loop.ToolCall // without an observation
	doing    string
	parked   bool // it waits for a time, its turn, or the outcome of a call
	paused   bool
	usage    loop.Usage
	began    time.Time
	finished time.Time
	last     uint64 // n of the last event
}

// NewRun returns the view of a run that was handed in just now.
func NewRun(id, goal string, now time.Time) *Run {
	return &Run{ID: id, Goal: goal, began: now, doing: "waiting for a worker to take it"}
}

// thinking is what a run does when it waits for the model.
const thinking = "thinking"

// Apply takes in the next event.
func (r *Run) Apply(e loop.Event) {
	r.last, r.parked = e.N, false
	if e.N == 1 {
		r.began = e.Time
	}
	switch d := e.Data.(type) {
	case loop.Accepted:
		r.Goal, r.doing = d.Task.Goal, "recalling what is known"
	case loop.Facts, loop.Note, loop.Summary:
		r.doing = thinking
	case loop.Plan:
		r.said(d.Plan, d.Thought, d.Made)
	case loop.Thought:
		r.said(d.Plan, d.Thought, d.Made)
	case loop.Call:
		r.said(d.Plan, d.Thought, d.Made)
		r.calls = append(slices.Clone(r.calls), d.Calls...)
	case loop.Rejection:
		r.spent(d.Made)
		r.doing = fmt.Sprintf("the model's reply could not be used (%d in a row); asking it again", d.Attempt)
	case loop.Reflection:
		r.spent(d.Made)
		r.thought, r.doing = d.Text, thinking
	case loop.Observation:
		r.calls = slices.DeleteFunc(slices.Clone(r.calls), func(c loop.ToolCall) bool { return c.Call == d.Call })
		r.doing = thinking
	case loop.Question:
		r.Question = &d
	case loop.Reply:
		r.Question, r.doing = nil, thinking
	case loop.Timeout:
		if d.What == loop.TimeoutQuestion {
			r.Question = nil
		}
		r.doing = thinking
	case loop.Wait:
		r.doing, r.parked = waiting(d), true
	case loop.Control:
		r.controlled(d.Op)
	case loop.Child:
		r.moved(e, d)
	case loop.Answer:
		r.end(e, d.Usage)
	case loop.Failed:
		r.end(e, d.Usage)
	case loop.Cancelled:
		r.end(e, r.usage)
	case loop.Started:
	default:
		panic(fmt.Sprintf("terminal: no view of event %T", e.Data))
	}
}

func (r *Run) said(p plan.Plan, thought string, m loop.Made) {
	r.spent(m)
	if p != nil {
		r.plan = p
	}
	r.thought, r.doing = cmp.Or(thought, r.thought), thinking
}

func (r *Run) spent(m loop.Made) {
	if m.Usage != nil {
		r.usage = r.usage.Add(*m.Usage)
	}
}

func (r *Run) end(e loop.Event, u loop.Usage) {
	r.Final, r.finished, r.usage = e.Data, e.Time, u
	r.Question, r.calls, r.paused = nil, nil, false
}

func (r *Run) controlled(op loop.ControlOp) {
	switch op {
	case loop.OpPause:
		r.paused = true
	case loop.OpResume:
		r.paused, r.doing = false, thinking
	case loop.OpCancel:
		r.paused, r.doing = false, "being cancelled"
	}
}

func waiting(w loop.Wait) string {
	switch {
	case w.Session:
		return "waiting for the run before it in this session"
	case w.Until.IsZero():
		return "waiting: " + w.Why
	default:
		return "waiting until " + w.Until.Local().Format(time.TimeOnly) + ": " + w.Why
	}
}

// activity is what the run does now, in a few words.
func (r *Run) activity() string {
	switch {
	case r.Note != "":
		return r.Note
	case r.paused:
		return "paused; go on with: submit resume " + r.ID
	case r.Question != nil:
		return "waiting for an answer"
	case len(r.calls) == 0 || r.parked:
		return r.doing
	case len(r.calls) == len(r.atWork()):
		return "waiting for " + count(len(r.calls), "child run", "child runs")
	case len(r.calls) > 1:
		return fmt.Sprintf("%d calls, the first is %s", len(r.calls), callText(r.calls[0]))
	default:
		return callText(r.calls[0])
	}
}

func callText(c loop.ToolCall) string { return c.Tool + " " + brief(c.Arguments, 200) }

// brief shows a JSON value on one line of at most n characters; a string is shown as its text.
func brief(v json.RawMessage, n int) string {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return clip(Clean(text), n)
	}
	return clip(Clean(string(v)), n)
}

// clip cuts a text to at most n characters.
func clip(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}

// elapsed is how long the run has taken so far, or took.
func (r *Run) elapsed(now time.Time) time.Duration {
	if !r.finished.IsZero() {
		now = r.finished
	}
	return max(0, now.Sub(r.began))
}

// Last is the number of the last event that was taken in; 0 before the first.
func (r *Run) Last() uint64 { return r.last }
