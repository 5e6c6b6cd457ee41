package terminal

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// Progress is how far many tasks have come.
type Progress struct {
	Total   int // 0: not known
	Over    int // tasks that have ended, those below among them
	Failed  int
	Working int
	Waiting int // for a person
	Rate    float64
	Left    time.Duration // 0: not known
	Elapsed time.Duration
	Trouble string // why nothing goes on at the moment; empty: it does
}

const (
	barFull, barEmpty = "━", "─"
	maxBar            = 40 // cells
)

// Lines shows the progress as a bar and what there is to say below it, in lines of at most width cells.
func (p Progress) Lines(width int, s Style) []string {
	width = max(width, minWidth)
	var lines []string
	if p.Total > 0 {
		lines = append(lines, p.bar(width, s))
	}
	lines = append(lines, flow(p.facts(), width, s)...)
	if p.Trouble != "" {
		for _, line := range wrap(Clean(p.Trouble), width-2, 2) {
			lines = append(lines, "  "+s.Wait(line))
		}
	}
	return lines
}

// bar is the bar with its numbers. What has failed is its part of the bar.
func (p Progress) bar(width int, s Style) string {
	share := min(float64(p.Over)/float64(p.Total), 1)
	numbers := fmt.Sprintf(" %3d%%  %s of %s", int(100*share), thousands(p.Over), thousands(p.Total))
	cells := min(maxBar, width-2-ansi.StringWidth(numbers))
	if cells < 4 {
		return ansi.Truncate("  "+numbers[1:], width, "…")
	}
	full := int(share * float64(cells))
	bad := 0
	if p.Failed > 0 && full > 0 {
		bad = max(1, full*p.Failed/max(p.Over, 1))
	}
	return "  " + s.Good(strings.Repeat(barFull, full-bad)) + s.Bad(strings.Repeat(barFull, bad)) +
		s.Dim(strings.Repeat(barEmpty, cells-full)) + numbers
}

// Line is the progress in one line, for where nothing can be rewritten.
func (p Progress) Line() string {
	facts := p.facts()
	if p.Total > 0 {
		facts = append([]string{fmt.Sprintf("%s of %s", thousands(p.Over), thousands(p.Total))}, facts...)
	}
	if p.Trouble != "" {
		facts = append(facts, Clean(p.Trouble))
	}
	return strings.Join(facts, " · ")
}

func (p Progress) facts() []string {
	var facts []string
	if p.Total == 0 {
		facts = append(facts, thousands(p.Over)+" ended")
	}
	if p.Rate > 0 {
		facts = append(facts, rateText(p.Rate))
	}
	facts = append(facts, thousands(p.Failed)+" failed", thousands(p.Working)+" working")
	if p.Waiting > 0 {
		facts = append(facts, thousands(p.Waiting)+" waiting for a person")
	}
	switch {
	case p.Left >= 10*time.Second:
		return append(facts, elapsedText(p.Left)+" left")
	case p.Left > 0:
		return append(facts, fmt.Sprintf("%d s left", max(1, int(p.Left.Seconds()))))
	}
	return append(facts, elapsedText(p.Elapsed))
}

func rateText(perSecond float64) string {
	switch {
	case perSecond >= 10:
		return fmt.Sprintf("%.0f a second", perSecond)
	case perSecond >= 1:
		return fmt.Sprintf("%.1f a second", perSecond)
	default:
		return fmt.Sprintf("%.1f a minute", perSecond*60)
	}
}

// Thousands writes a number with a comma before each group of three digits.
func Thousands(n int) string { return thousands(n) }

// Elapsed writes a duration as it is shown to people.
func Elapsed(d time.Duration) string { return elapsedText(d) }
