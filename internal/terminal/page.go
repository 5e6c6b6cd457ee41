package terminal

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"ratchet/internal/loop"
)

// Page shows the stored state of a run, in lines of at most width cells. ways are commands that answer its open
// question; they are not cut.
func Page(h loop.Head, ways []string, now time.Time, width int, s Style) []string {
	width = max(width, minWidth)
	lines := []string{"run " + s.Bold(h.Run) + "  " + statusText(h.Status, s)}
	lines = append(lines, "")
	lines = append(lines, block(h.Goal, width)...)
	if len(h.Plan) > 0 {
		lines = append(lines, "")
		for i, step := range h.Plan {
			lines = append(lines, stepLine(i, step, width, s))
		}
	}
	if h.Question != nil {
		lines = append(lines, "")
		lines = append(lines, NewForm(*h.Question).Lines(width, s)...)
		if left := h.Question.Deadline.Sub(now); left > 0 {
			lines = append(lines, s.Dim("  open for another "+elapsedText(left)))
		}
		lines = append(lines, ways...)
	}
	if h.Wait != nil && !h.Status.Final() {
		lines = append(lines, "", ansi.Truncate("  "+Clean(waiting(*h.Wait)), width, "…"))
	}
	if len(h.Children) > 0 && !h.Status.Final() {
		lines = append(lines, "")
		for _, child := range h.Children {
			lines = append(lines, ansi.Truncate("  waits for the child run "+Clean(child), width, "…"))
		}
	}
	lines = append(lines, outcomeLines(h, width, s)...)
	return append(append(lines, ""), facts(h, width, s)...)
}

func statusText(status loop.Status, s Style) string {
	text := Clean(string(status))
	switch status {
	case loop.StatusDone:
		return s.Good(text)
	case loop.StatusFailed, loop.StatusCancelled:
		return s.Bad(text)
	case loop.StatusWaiting, loop.StatusPaused:
		return s.Wait(text)
	case loop.StatusRunning:
	}
	return s.Busy(text)
}

// outcomeLines shows the answer, or why there is none.
func outcomeLines(h loop.Head, width int, s Style) []string {
	text := h.Answer
	if h.Status == loop.StatusFailed || h.Status == loop.StatusCancelled {
		text = strings.TrimSpace(strings.TrimPrefix(string(h.Reason)+": "+h.Message, ": "))
	}
	if text == "" {
		return nil
	}
	lines := block(text, width)
	if h.Status == loop.StatusDone {
		lines[0] = s.Good("✓") + lines[0][1:]
	} else {
		lines[0] = s.Bad("✗") + lines[0][1:]
	}
	return append([]string{""}, lines...)
}

// facts are the numbers of a run.
func facts(h loop.Head, width int, s Style) []string {
	all := []string{
		thousands(h.Usage.Total()) + " tokens", fmt.Sprintf("%d turns", h.Turns), fmt.Sprintf("%d events", h.N),
		"started " + h.Started.Local().Format(time.DateTime), "changed " + h.Updated.Local().Format(time.DateTime),
	}
	for _, f := range []struct{ name, value string }{
		{"strategy", h.Strategy},
		{"model", h.Model},
		{"session", h.Session},
		{"user", h.User},
		{"below run", h.Parent},
	} {
		if f.value != "" {
			all = append(all, f.name+" "+f.value)
		}
	}
	return flow(all, width, s)
}

// block shows a text of several lines, indented by two.
func block(text string, width int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(CleanBlock(text), "\n") {
		for _, line := range wrap(paragraph, width-2, 0) {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// Table aligns rows under their titles. The last column is cut at the width of the terminal; width 0 cuts nothing.
func Table(titles []string, rows [][]string, width int, s Style) []string {
	wide := make([]int, len(titles))
	for _, row := range append([][]string{titles}, rows...) {
		for i := range row {
			row[i] = Clean(row[i])
			wide[i] = max(wide[i], ansi.StringWidth(row[i]))
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", wide[i]-ansi.StringWidth(cell)+2))
			}
		}
		if width > 0 {
			return ansi.Truncate(b.String(), width, "…")
		}
		return strings.TrimRight(b.String(), " ")
	}
	lines := []string{s.Bold(line(titles))}
	for _, row := range rows {
		lines = append(lines, line(row))
	}
	return lines
}
