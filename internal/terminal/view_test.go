package terminal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// TestLiveView shows the view after every event of a run, on a wide and on a narrow terminal.
func TestLiveView(t *testing.T) {
	for _, width := range []int{80, 40} {
		var b strings.Builder
		r := NewRun("order-4417", "Buy a few Microsoft shares.", noon)
		show := func(what string, now time.Time) {
			fmt.Fprintf(&b, "== %s\n", what)
			for _, line := range r.Lines(now, width, 23, Style{}) {
				if got := ansi.StringWidth(line); got > width {
					t.Errorf("after %s a line has %d cells of %d: %q", what, got, width, line)
				}
				b.WriteString(line + "\n")
			}
		}
		show("submitted", noon)
		events := script()
		for _, e := range events {
			r.Apply(e)
			show(e.Type(), e.Time)
		}
		at := r
		for _, how := range []string{"answered", "cancelled", "failed"} {
			copied := *at
			r = &copied
			r.Apply(event(len(events), endings()[how]))
			show(how, noon.Add(time.Hour))
		}
		golden(t, fmt.Sprintf("live-%d.txt", width), b.String())
	}
}

func TestColours(t *testing.T) {
	r := NewRun("r1", "Buy", noon)
	for _, e := range script() {
		r.Apply(e)
	}
	coloured := r.Lines(noon, 80, 23, Style{Color: true})
	plainly := r.Lines(noon, 80, 23, Style{})
	for i, line := range coloured {
		if got := ansi.Strip(line); got != plainly[i] {
			t.Errorf("without colours the line is %q, want %q", got, plainly[i])
		}
		if !strings.HasSuffix(line, "\x1b[0m") && strings.Count(line, "\x1b[") != 2*strings.Count(line, "\x1b[0m") {
			t.Errorf("a colour is not ended in %q", line)
		}
	}
}

// TestLongPlan keeps within the height, with the open step in sight.
func TestLongPlan(t *testing.T) {
	for open := range 60 {
		p := make(plan.Plan, 60)
		for i := range p {
			p[i] = plan.Step{Step: fmt.Sprintf("step number %d", i), Status: plan.Pending}
			if i < open {
				p[i].Status = plan.Done
			}
		}
		r := NewRun("r1", strings.Repeat("a goal of many words ", 30), noon)
		r.Apply(event(1, loop.Plan{Plan: p, Thought: "hm", Created: true}))
		lines := r.Lines(noon, 40, 12, Style{})
		text := strings.Join(lines, "\n")
		if len(lines) > 12 || !strings.Contains(text, fmt.Sprintf("step number %d", open)) {
			t.Fatalf("with step %d open there are %d lines:\n%s", open, len(lines), text)
		}
	}
}

// TestNarrator tells the whole run in plain lines.
func TestNarrator(t *testing.T) {
	for how, end := range endings() {
		var n Narrator
		r := NewRun("order-4417", "Buy a few Microsoft shares.", noon)
		var lines []string
		events := script()
		for _, e := range append(events, event(len(events), end)) {
			r.Apply(e)
			lines = append(lines, n.Lines(r, e)...)
		}
		golden(t, "plain-"+how+".txt", strings.Join(lines, "\n")+"\n")
	}
}

func TestEventLines(t *testing.T) {
	var lines []string
	for _, e := range script() {
		lines = append(lines, EventLine(e))
	}
	for _, how := range []string{"answered", "cancelled", "failed"} {
		lines = append(lines, EventLine(event(len(script()), endings()[how])))
	}
	golden(t, "events.txt", strings.Join(lines, "\n")+"\n")
}

func TestPage(t *testing.T) {
	p := script()[8].Data.(loop.Call).Plan
	question := script()[9].Data.(loop.Question)
	question.Deadline = noon.Add(90 * time.Minute)
	heads := []loop.Head{
		{
			Run: "order-4417", Status: loop.StatusWaiting, Goal: "Buy a few\nMicrosoft shares.", Plan: p, Question: &question, N: 10, Turns: 4,
			Usage: loop.Usage{PromptTokens: 4200}, Strategy: "plan_react", Model: "demo", User: "ada", Session: "chat-9",
		},
		{Run: "r2", Status: loop.StatusRunning, Goal: "Go on", Wait: &loop.Wait{Session: true}},
		{Run: "r3", Status: loop.StatusDone, Goal: "Add", Answer: "It is\x07 42."},
		{Run: "r4", Status: loop.StatusFailed, Goal: "Add", Reason: loop.FailTimeout, Message: "It worked for too long."},
	}
	for _, width := range []int{80, 40} {
		var b strings.Builder
		for _, h := range heads {
			h.Started, h.Updated = noon, noon.Add(time.Minute)
			var ways []string
			if h.Question != nil {
				ways = []string{"Say yes or no:", "  submit approve order-4417"}
			}
			fmt.Fprintf(&b, "== %s\n%s\n", h.Run, strings.Join(Page(h, ways, noon, width, Style{}), "\n"))
		}
		golden(t, fmt.Sprintf("page-%d.txt", width), b.String())
	}
}

func TestTable(t *testing.T) {
	rows := [][]string{
		{"order-4417", "waiting", "Buy a few\nMicrosoft shares and tell me about it."},
		{"r2", "done", "ショッピング\x1b[31m"},
	}
	titles := []string{"RUN", "STATUS", "GOAL"}
	text := strings.Join(Table(titles, rows, 40, Style{}), "\n") + "\n==\n" + strings.Join(Table(titles, rows, 0, Style{}), "\n") + "\n"
	golden(t, "table.txt", text)
}

func TestTimesAndNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "less than 0.1 s", 1500 * time.Millisecond: "1.5 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s", 25*time.Hour + time.Minute: "25 h 1 min",
	} {
		if got := elapsedText(d); got != want {
			t.Errorf("%d is shown as %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is shown as %q, want %q", n, got, want)
		}
	}
}
