package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// look finds out whether a question is still open: a run that is followed from its beginning has asked and been
// answered before.
func (f *follower) look(view *terminal.Run, q loop.Question) {
	run, from := view.ID, view.Last()+1
	f.later(func(ctx context.Context) func() error {
		open := f.open(ctx, run, q.Question, from)
		return func() error {
			if still := view.Question; !open || still == nil || still.Question != q.Question {
				return nil
			}
			return f.ask(run, q)
		}
	})
}

// open reports whether nothing after the question has closed it. Where that can't be found out it is taken as open: a
// reply that comes too late does no harm.
func (f *follower) open(ctx context.Context, run, question string, from uint64) bool {
	request := bus.EventsRequest{Run: run, From: from}
	for {
		page, err := f.client.Events(ctx, request)
		if err != nil {
			return true
		}
		for _, raw := range page.Events {
			if e, err := loop.DecodeEvent(raw); err == nil && closes(e, question) {
				return false
			}
		}
		if !page.More {
			return true
		}
		request.After = page.Next
	}
}

func closes(e loop.Event, question string) bool {
	switch d := e.Data.(type) {
	case loop.Reply:
		return d.Question == question
	case loop.Timeout:
		return d.Question == question
	default:
		return e.Final()
	}
}

// ask puts a question to whoever can answer it here, one after another. Where nobody can, the run stays and the program
// ends.
func (f *follower) ask(run string, q loop.Question) error {
	switch {
	case f.form != nil:
		return nil // another one is asked; this one is next
	case !f.answers():
		return f.parked(run, q)
	}
	f.form, f.asked = terminal.NewForm(q), run
	if !f.leaving {
		f.prompt("")
	}
	return nil
}

// prompt shows the open question and waits for a line. complaint says what was wrong with the one before.
func (f *follower) prompt(complaint string) {
	f.input.Want() // before the prompt is shown: it drops what was typed until now
	lines := f.form.Lines(f.width(), f.stderr.Style)
	complaint = terminal.Clean(complaint)
	switch {
	case f.screen != nil:
		if complaint != "" {
			for _, line := range terminal.Wrap(complaint, f.width()) {
				lines = append(lines, f.stderr.Style.Bad(line))
			}
		}
		f.screen.Ask(append(f.above(len(lines)), lines...), f.form.Prompt())
	case complaint != "":
		f.say(complaint)
		fallthrough
	default:
		f.say(lines...)
		f.hint(f.form.Prompt())
	}
}

// above is as much of the view as fits above the lines of a question.
func (f *follower) above(below int) []string {
	width, height := f.stderr.Dimensions()
	const least = 6
	if room := height - below - 3; room >= least {
		return append(f.view.Lines(time.Now(), width, room, f.stderr.Style), "")
	}
	return nil
}

// hint writes a prompt without a line break for a person, and nothing where lines come out of a pipe.
func (f *follower) hint(prompt string) {
	if f.attended() {
		_, _ = io.WriteString(f.stderr.W, prompt) // a standard error that is closed is no reason to stop
	}
}

// line takes what was typed, or what came next on standard input.
func (f *follower) line(line terminal.Line) error {
	switch {
	case f.leaving:
		return f.choose(line)
	case f.form == nil || f.sending:
		return nil // the question was answered elsewhere in the meantime
	case errors.Is(line.Err, io.EOF):
		return f.noMore()
	case line.Err != nil:
		return failed("Standard input can't be read: %v.", line.Err)
	case !f.attended():
		f.say(f.form.Prompt() + terminal.Clean(line.Text))
	case f.screen != nil:
		f.screen.Typed(f.form.Prompt(), line.Text)
	}
	reply, complaint, ready := f.form.Enter(line.Text)
	if !ready {
		f.prompt(complaint)
		return nil
	}
	f.send(reply)
	return nil
}

// noMore ends a follow whose standard input has no more lines while a question is open.
func (f *follower) noMore() error {
	switch {
	case f.screen != nil:
		f.screen.Typed(f.form.Prompt(), "")
	case f.attended():
		f.say("")
	}
	return f.parked(f.asked, f.form.Question())
}

// send hands a reply in.
func (f *follower) send(reply loop.Reply) {
	f.sending = true
	reply.By = f.link.User
	q := f.form.Question()
	request := bus.ReplyRequest{Run: f.asked, Reply: reply}
	if reply.Approve != nil {
		request.ArgumentsSHA256 = q.ArgumentsSHA256
	}
	f.later(func(ctx context.Context) func() error {
		outcome, err := f.client.Reply(ctx, request)
		return func() error { f.sent(q, outcome, err); return nil }
	})
}

// sent looks at what came of a reply. One that was taken comes back as an event, which closes the form.
func (f *follower) sent(q loop.Question, outcome bus.Outcome, err error) {
	if f.form == nil || f.form.Question().Question != q.Question {
		return
	}
	complaint := ""
	switch {
	case err != nil:
		complaint = "The answer could not be handed in: " + f.explain(err).Error()
	case outcome.Status == loop.OutcomeInvalid, outcome.Status == loop.OutcomeUnknown:
		complaint = "This was not accepted: " + sentence(outcome.Message)
	default:
		return // taken, or overtaken by another: an event says which
	}
	f.sending = false
	f.form.Again()
	f.prompt(complaint)
}

// withdraw takes the question away once it is closed, here or elsewhere, and leaves a trace of both above the view.
func (f *follower) withdraw(e loop.Event) {
	if f.form == nil {
		return
	}
	q, over := f.form.Question(), e.Run == f.id && e.Final()
	if !over && (e.Run != f.asked || !closes(e, q.Question)) {
		return
	}
	typed := f.sending
	f.form, f.sending = nil, false
	if f.screen != nil {
		f.screen.Clear()
		f.screen.Print(terminal.Exchange(q, e, f.width(), f.stderr.Style)...)
	} else if f.attended() && !typed {
		f.say("") // ends the line of the prompt
	}
	switch {
	case f.leaving && !over:
		f.menu()
	case f.attended():
		f.input.Hush()
	}
	if !over {
		f.askNext()
	}
}

// parked ends the program while the run waits for a person.
func (f *follower) parked(run string, q loop.Question) error {
	if f.screen != nil {
		f.screen.Show(f.lines())
		f.screen.Keep()
	}
	if f.form == nil || f.screen != nil {
		f.say(terminal.NewForm(q).Lines(f.width(), f.stderr.Style)...)
	}
	f.form = nil
	return problem{codeWaiting, strings.Join(append([]string{"Run " + run + " waits for an answer."}, f.howToAnswer(run, q)...), "\n")}
}

func (f *follower) width() int {
	width, _ := f.stderr.Dimensions()
	return width
}

// howToAnswer says what a person can do about an open question.
func (f *follower) howToAnswer(run string, q loop.Question) []string {
	switch {
	case !f.command.Local:
		return append(f.waysToAnswer(run, q), "Then see what comes of it:", "  "+f.program.command("events", f.id, "--follow"))
	case f.command.Data != "":
		return []string{
			"It is kept in " + f.command.Data + ". Go on at a terminal:",
			"  " + f.again(f.command),
		}
	default:
		return []string{"It ends with this program, since its data are not kept: give --data DIR to keep them, or the answers as lines of " +
			"standard input."}
	}
}

// waysToAnswer lists the commands that answer a question.
func (p *program) waysToAnswer(run string, q loop.Question) []string {
	if q.Kind == loop.KindApproval {
		return []string{
			"Say yes or no:",
			"  " + p.command("approve", run),
			"  " + p.command("refuse", run, "--reason", `"WHY"`),
		}
	}
	return []string{"Answer it:", "  " + p.command("reply", run, `"TEXT"`)}
}
