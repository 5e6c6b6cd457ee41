package terminal

import (
	"fmt"
	"strings"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// textLimit bounds what one line shows of a text of unknown length, in characters.
const textLimit = 300

// EventLine shows an event on one line: number, local time, type and what is in it.
func EventLine(e loop.Event) string {
	name, text := Describe(e)
	return strings.TrimRight(fmt.Sprintf("%4d  %s  %-11s %s", e.N, e.Time.Local().Format(time.TimeOnly), name, text), " ")
}

// Describe returns the type of an event and a short text of what is in it, cleaned and on one line.
func Describe(e loop.Event) (name, text string) {
	return e.Type(), clip(Clean(describe(e.Data)), textLimit)
}

func describe(data loop.Data) string {
	switch d := data.(type) {
	case loop.Accepted:
		return fmt.Sprintf("%s (%s, %d tools)", d.Task.Goal, d.Task.Strategy, len(d.Tools))
	case loop.Facts:
		return describeFacts(d)
	case loop.Plan:
		return describePlan(d.Plan) + d.Thought
	case loop.Thought:
		return describePlan(d.Plan) + d.Thought
	case loop.Call:
		calls := make([]string, len(d.Calls))
		for i, c := range d.Calls {
			calls[i] = c.Call + " " + callText(c)
		}
		return strings.Join(calls, ", ")
	case loop.Started:
		return d.Call + " is being sent"
	case loop.Observation:
		if d.Call == "" {
			return fmt.Sprintf("step %s %s %s: %s", d.Step, d.Tool, d.Status, brief(d.Result, textLimit))
		}
		return fmt.Sprintf("%s %s %s after %d ms: %s", d.Call, d.Tool, d.Status, d.MS, brief(d.Result, textLimit))
	case loop.Rejection:
		return fmt.Sprintf("the model's reply could not be used (%d in a row): %s", d.Attempt, d.Error)
	case loop.Question:
		return fmt.Sprintf("%s (%s) %s", d.Question, d.Kind, questionText(d))
	default:
		return describeRest(data)
	}
}

func describeRest(data loop.Data) string {
	switch d := data.(type) {
	case loop.Reply:
		return d.Question + by(d.By) + ": " + replyText(d)
	case loop.Note:
		return because(strings.TrimSpace(by(d.By)), d.Text)
	case loop.Control:
		return because(string(d.Op)+by(d.By), d.Reason)
	case loop.Timeout:
		return overdue(d)
	case loop.Wait:
		return waiting(d)
	case loop.Child:
		if d.Status == "" {
			return d.Call + " is carried out by run " + d.Run
		}
		return d.Call + " run " + d.Run + " " + string(d.Status)
	case loop.Reflection:
		if d.Done {
			return because("done", d.Text)
		}
		return d.Text
	case loop.Summary:
		return fmt.Sprintf("of the events up to %d: %s", d.Upto, d.Text)
	case loop.Answer:
		return d.Answer
	case loop.Failed:
		return string(d.Reason) + ": " + d.Message
	case loop.Cancelled:
		return because(strings.TrimSpace(by(d.By)), d.Reason)
	case loop.Accepted, loop.Facts, loop.Plan, loop.Thought, loop.Call, loop.Rejection, loop.Started, loop.Observation,
		loop.Question: // described by the caller
	}
	return ""
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// because puts a reason behind what was done, where both are known.
func because(what, why string) string {
	if what == "" || why == "" {
		return what + why
	}
	return what + ": " + why
}

func overdue(d loop.Timeout) string {
	switch d.What {
	case loop.TimeoutQuestion:
		return "nobody answered " + d.Question + " in time"
	case loop.TimeoutRun:
		return "the time that the run may work is over"
	case loop.TimeoutWait:
		return "the wait is over"
	default:
		return string(d.What)
	}
}

func describeFacts(d loop.Facts) string {
	text := fmt.Sprintf("%d facts, %d earlier messages", len(d.Facts), len(d.History))
	if d.Summary != "" {
		text += " and a summary of those before"
	}
	if d.Degraded != "" {
		text += "; memory could not be asked: " + d.Degraded
	}
	return text
}

// describePlan counts: [2/4 done].
func describePlan(p plan.Plan) string {
	if p == nil {
		return ""
	}
	closed := 0
	for _, s := range p {
		if s.Status.Closed() {
			closed++
		}
	}
	return fmt.Sprintf("[%d/%d] ", closed, len(p))
}

func replyText(d loop.Reply) string {
	switch {
	case d.Approve != nil && *d.Approve:
		return "approved"
	case d.Approve != nil:
		return strings.TrimSpace("refused " + d.Reason + d.Text)
	case d.Text != "":
		return d.Text
	default:
		return string(d.Value)
	}
}

func questionText(q loop.Question) string {
	if q.Kind == loop.KindApproval {
		return strings.TrimSpace(q.Text + " " + q.Tool + " " + string(q.Arguments))
	}
	return q.Text
}
