package terminal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/charmbracelet/x/ansi"

	"ratchet/internal/loop"
)

// moved takes in that a child run began, or that it ended.
func (r *Run) moved(e loop.Event, d loop.Child) {
	if d.Status != "" {
		if d.Usage != nil {
			r.usage = r.usage.Add(*d.Usage)
		}
		if child := r.Find(d.Run); child != nil && child.Final == nil {
			child.Final = loop.Answer{} // its own last event says how
		}
		return
	}
	child := NewRun(d.Run, "", e.Time)
	if child.Label = d.Call; r.Label != "" {
		child.Label = r.Label + "." + d.Call
	}
	for _, c := range r.calls {
		var a struct {
			Goal string `json:"goal"`
		}
		if c.Call == d.Call && json.Unmarshal(c.Arguments, &a) == nil {
			child.Goal = a.Goal
		}
	}
	r.below = append(r.below, child)
}

// Find returns the run of that id, among this one and its child runs; nil where it is none of them.
func (r *Run) Find(id string) *Run {
	if r.ID == id {
		return r
	}
	for _, child := range r.below {
		if found := child.Find(id); found != nil {
			return found
		}
	}
	return nil
}

// Asking returns the runs, this one and its child runs, that wait for an answer.
func (r *Run) Asking() []*Run {
	var asking []*Run
	if r.Question != nil {
		asking = append(asking, r)
	}
	for _, child := range r.atWork() {
		asking = append(asking, child.Asking()...)
	}
	return asking
}

// atWork are the child runs that have not ended.
func (r *Run) atWork() []*Run {
	var open []*Run
	for _, child := range r.below {
		if child.Final == nil {
			open = append(open, child)
		}
	}
	return open
}

// mostBelow is how many child runs the live view shows.
const mostBelow = 6

// belowLines shows what the child runs do, one line for each.
func (r *Run) belowLines(now time.Time, width int, s Style) []string {
	var open []*Run
	var walk func(*Run)
	walk = func(of *Run) {
		for _, child := range of.atWork() {
			open = append(open, child)
			walk(child)
		}
	}
	walk(r)
	var lines []string
	for i, child := range open {
		if i == mostBelow {
			return append(lines, s.Dim(fmt.Sprintf("    … %d more", len(open)-i)))
		}
		text := ansi.Truncate(Clean(child.Label+" "+child.Goal), width*2/3, "…") + ": " + Clean(child.activity())
		lines = append(lines, "  "+child.mark(now, s)+" "+ansi.Truncate(text, width-4, "…"))
	}
	return lines
}

func count(n int, one, many string) string {
	if n == 1 {
		return "a " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
