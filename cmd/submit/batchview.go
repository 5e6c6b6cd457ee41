package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"ratchet/internal/batch"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// batchView shows a batch while it goes on: a bar that is rewritten on a terminal, and a line now and then elsewhere.
type batchView struct {
	p      *program
	quiet  bool
	screen *terminal.Screen // nil: lines
	input  *terminal.Input
}

func newBatchView(p *program, c *batchCommand) *batchView {
	v := &batchView{p: p, quiet: c.Quiet}
	if p.stderr.Live && !c.Quiet {
		v.screen = terminal.NewScreen(p.stderr)
	}
	if c.File != "-" {
		v.input = terminal.NewInput(p.stdin)
	}
	return v
}

// open keeps what is typed off the bar.
func (v *batchView) open() {
	if v.screen != nil && v.input != nil && v.input.Terminal() {
		v.input.Hush()
	}
}

func (v *batchView) close() {
	if v.screen == nil {
		return
	}
	v.screen.Close()
	if v.input != nil && v.input.Terminal() {
		v.input.Restore()
	}
}

func (v *batchView) every() time.Duration {
	if v.screen != nil {
		return terminal.SpinEvery
	}
	return plainEvery
}

// tell says something about a line.
func (v *batchView) tell(text string) {
	lines := strings.Split(terminal.CleanBlock(text), "\n")
	switch {
	case v.quiet:
	case v.screen != nil:
		v.screen.Print(v.p.fit(v.p.stderr, lines)...)
	default:
		v.p.say(lines...)
	}
}

// show shows how far the batch has come.
func (v *batchView) show(t batch.Tally) {
	progress := terminal.Progress{
		Total: t.Total, Over: t.Over(), Failed: t.Over() - t.Ended[batch.Done], Working: t.Working, Waiting: t.Waiting,
		Rate: t.Rate, Left: t.Left(), Elapsed: time.Since(t.Began), Trouble: t.Trouble,
	}
	switch {
	case v.quiet:
	case v.screen != nil:
		width, _ := v.p.stderr.Dimensions()
		v.screen.Show(progress.Lines(width, v.p.stderr.Style))
	case t.Complete, t.Read == 0: // the summary says it, and there is nothing to say
	default:
		v.p.say(progress.Line())
	}
}

// results is where results go that no file takes. Where that is the terminal too, they stand above the bar.
func (v *batchView) results() io.Writer {
	if v.screen == nil || !v.p.stdout.Is {
		return v.p.stdout.W
	}
	return above{v}
}

// above writes above the bar.
type above struct{ v *batchView }

func (a above) Write(text []byte) (int, error) {
	a.v.screen.Clear() // it is shown again within moments
	return a.v.p.stdout.W.Write(text)
}

// batchSummary says what came of a batch.
func batchSummary(out batch.Outcome, to terminal.Output) []string {
	var rows [][]string
	var all loop.Usage
	for _, s := range []struct {
		status batch.Status
		name   string
	}{{batch.Done, "answered"}, {batch.Failed, "failed"}, {batch.Cancelled, "cancelled"}, {batch.Invalid, "no task"}} {
		if n := out.Ended[s.status]; n > 0 {
			rows = append(rows, summaryRow(s.name, n, out.Usage[s.status]))
			all = all.Add(out.Usage[s.status])
		}
	}
	for _, s := range []struct {
		name string
		n    int
	}{{"waiting for a person", out.Waiting}, {"still working", out.Working}, {"not begun", left(out.Tally)}} {
		if s.n > 0 {
			rows = append(rows, []string{s.name, terminal.Thousands(s.n), "", "", ""})
		}
	}
	width := 0
	if to.Is {
		width, _ = to.Dimensions()
	}
	rows = append(rows, summaryRow("together", out.Over()+out.Waiting+out.Working+left(out.Tally), all))
	lines := terminal.Table([]string{"OUTCOME", "TASKS", "PROMPT TOKENS", "COMPLETION TOKENS", "COST (USD)"}, rows, width, to.Style)
	took := "It took " + terminal.Elapsed(time.Since(out.Began)) + "."
	if out.Before > 0 {
		took = fmt.Sprintf("%s of them ended in an earlier batch. The rest took %s.", terminal.Thousands(out.Before),
			terminal.Elapsed(time.Since(out.Began)))
	}
	return append(lines, took)
}

// left is how many lines were not read, as far as that is known.
func left(t batch.Tally) int { return max(0, t.Total-t.Read) }

func summaryRow(name string, n int, u loop.Usage) []string {
	cost := ""
	if u.CostUSD > 0 {
		cost = fmt.Sprintf("%.4f", u.CostUSD)
	}
	return []string{name, terminal.Thousands(n), terminal.Thousands(u.PromptTokens), terminal.Thousands(u.CompletionTokens), cost}
}
