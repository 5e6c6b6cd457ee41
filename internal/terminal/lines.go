package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// minWidth is the narrowest width, in cells, that lines are made for; on a narrower terminal they are cut by it.
const minWidth = 20

// spinner turns once in about a second when lines are drawn every [SpinEvery].
var spinner = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// SpinEvery is how often the live view should be drawn.
const SpinEvery = 125 * time.Millisecond

// Lines shows the run at a moment, in lines of at most width cells, at most height of them: the goal, the plan with its
// ticks, what the run is doing, and what it took so far.
func (r *Run) Lines(now time.Time, width, height int, s Style) []string {
	width = max(width, minWidth)
	head := wrap(Clean(r.Goal), width-2, 2)
	for i := range head {
		mark := " "
		if i == 0 {
			mark = r.mark(now, s)
		}
		head[i] = mark + " " + s.Bold(head[i])
	}
	foot := r.foot(now, width, s)
	steps := planLines(r.plan, width, max(3, height-len(head)-len(foot)), s)
	return append(append(head, steps...), foot...)
}

// mark is the sign before the goal.
func (r *Run) mark(now time.Time, s Style) string {
	switch r.Final.(type) {
	case loop.Answer:
		return s.Good("✓")
	case loop.Failed, loop.Cancelled:
		return s.Bad("✗")
	default: // it goes on
	}
	if r.Question != nil || r.paused {
		return s.Wait("○")
	}
	return s.Busy(spinner[int(now.UnixMilli()/SpinEvery.Milliseconds())%len(spinner)])
}

// foot is what the run is doing and what it took.
func (r *Run) foot(now time.Time, width int, s Style) []string {
	var lines []string
	indent := func(text string) string { return "  " + ansi.Truncate(Clean(text), width-2, "…") }
	if r.Final == nil {
		if r.thought != "" {
			lines = append(lines, s.Dim(indent("“"+Clean(r.thought)+"”")))
		}
		lines = append(append(lines, r.belowLines(now, width, s)...), s.Busy(indent(r.activity())))
	}
	total := []string{elapsedText(r.elapsed(now)), thousands(r.usage.Total()) + " tokens", "run " + r.ID}
	return append(lines, flow(total, width, s)...)
}

// planLines shows a plan in at most height lines. Where it has more steps, those around the open one are shown.
func planLines(p plan.Plan, width, height int, s Style) []string {
	from, to := window(len(p), p.Open(), height)
	var lines []string
	if from > 0 {
		lines = append(lines, s.Dim(fmt.Sprintf("  … %d steps before", from)))
	}
	for i := from; i < to; i++ {
		lines = append(lines, stepLine(i, p[i], width, s))
	}
	if to < len(p) {
		lines = append(lines, s.Dim(fmt.Sprintf("  … %d steps to come", len(p)-to)))
	}
	return lines
}

// window chooses the steps to show where not all fit: two lines then say what was left out.
func window(n, open, height int) (from, to int) {
	if n <= height {
		return 0, n
	}
	room := max(1, height-2)
	if open < 0 {
		open = n - 1
	}
	from = min(max(0, open-room/2), n-room)
	return from, from + room
}

// stepLine shows a step on one line: its text, and as much of its result as fits behind it.
func stepLine(i int, step plan.Step, width int, s Style) string {
	mark, paint := "·", func(t string) string { return t }
	switch step.Status {
	case plan.Done:
		mark, paint = "✓", s.Good
	case plan.Blocked, plan.Failed:
		mark, paint = "✗", s.Bad
	case plan.InProgress, plan.Running:
		mark, paint = "▸", s.Busy
	case plan.Pending, plan.Skipped:
		paint = s.Dim
	}
	room := width - len("  ✓ ") + 2 // the mark has three bytes and one cell
	text := ansi.Truncate(Clean(step.Step), room, "…")
	line := "  " + paint(mark) + " " + text
	result := Clean(string(step.Result))
	if left := room - ansi.StringWidth(text) - 3; result != "" && left >= 8 {
		line += s.Dim(" — " + ansi.Truncate(result, left, "…"))
	}
	return line
}

// wrap breaks a cleaned text into at most limit lines of width cells; limit 0 is no limit.
func wrap(text string, width, limit int) []string {
	lines := strings.Split(ansi.Wrap(text, max(width, 1), " "), "\n")
	if limit > 0 && len(lines) > limit {
		lines = lines[:limit]
		lines[limit-1] = ansi.Truncate(lines[limit-1]+" ……", max(width, 1), "…")
	}
	return lines
}

// flow puts short facts on as few lines as they need, none of them broken.
func flow(facts []string, width int, s Style) []string {
	var lines []string
	line := ""
	for _, fact := range facts {
		fact = ansi.Truncate(Clean(fact), width-2, "…")
		switch longer := line + " · " + fact; {
		case line == "":
			line = fact
		case ansi.StringWidth(longer) <= width-2:
			line = longer
		default:
			lines = append(lines, "  "+s.Dim(line))
			line = fact
		}
	}
	return append(lines, "  "+s.Dim(line))
}

func elapsedText(d time.Duration) string {
	switch {
	case d < 50*time.Millisecond:
		return "less than 0.1 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

// thousands writes a number with a comma before each group of three digits.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Wrap breaks a text that was cleaned, painted or not, into lines of at most width cells.
func Wrap(text string, width int) []string { return wrap(text, max(width, minWidth), 0) }
