package terminal

import (
	"fmt"
	"strings"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// Narrator tells a run line by line, for logs and pipes. Give it the run's events in order.
type Narrator struct{ shown plan.Plan }

// Lines tells what an event brought; nothing where it is not worth a line. r must have taken it in already.
func (n *Narrator) Lines(r *Run, e loop.Event) []string {
	var lines []string
	switch d := e.Data.(type) {
	case loop.Accepted:
		lines = append(lines, "run "+r.ID+" started: "+clip(Clean(d.Task.Goal), 300))
	case loop.Plan:
		lines = n.plan(d.Plan, d.Created)
	case loop.Thought:
		lines = n.plan(d.Plan, false)
	case loop.Call:
		lines = n.plan(d.Plan, false)
		for _, c := range d.Calls {
			lines = append(lines, "call "+Clean(callText(c)))
		}
	case loop.Answer:
		lines = n.ended(r, "answered")
	case loop.Failed:
		lines = n.ended(r, "failed")
	case loop.Cancelled:
		lines = n.ended(r, "cancelled")
	case loop.Facts:
		if d.Degraded != "" {
			lines = append(lines, "memory could not be asked: "+Clean(d.Degraded))
		}
	case loop.Observation, loop.Wait, loop.Timeout, loop.Rejection:
		_, text := Describe(e)
		lines = append(lines, text)
	case loop.Question, loop.Started:
	case loop.Reflection, loop.Reply, loop.Note, loop.Control, loop.Child, loop.Summary:
		name, text := Describe(e)
		lines = append(lines, name+" "+text)
	default:
		panic(fmt.Sprintf("terminal: no line for event %T", e.Data))
	}
	return lines
}

// plan tells a new plan whole, and of a known one the steps that changed.
func (n *Narrator) plan(p plan.Plan, created bool) []string {
	if p == nil {
		return nil
	}
	old := n.shown
	n.shown = p
	var lines []string
	if created || len(p) != len(old) {
		lines = append(lines, fmt.Sprintf("plan of %d steps", len(p)))
		old = nil
	}
	for i, s := range p {
		if i < len(old) && old[i] == s || old != nil && (s.Status == plan.InProgress || s.Status == plan.Running) {
			continue
		}
		line := fmt.Sprintf("  %d. %s", i+1, Clean(s.Step))
		if s.Status != plan.Pending {
			line += " [" + strings.ReplaceAll(string(s.Status), "_", " ") + "]"
		}
		if result := Clean(string(s.Result)); result != "" {
			line += " " + clip(result, 300)
		}
		lines = append(lines, line)
	}
	return lines
}

func (n *Narrator) ended(r *Run, how string) []string {
	return []string{fmt.Sprintf("%s after %s, %s tokens", how, elapsedText(r.elapsed(time.Time{})), thousands(r.usage.Total()))}
}
