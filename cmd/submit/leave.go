package main

import (
	"context"
	"os"
	"strings"
	"syscall"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// signal reacts to Ctrl-C and to the signals that end a program. A person is asked first; a second Ctrl-C leaves at
// once.
func (f *follower) signal(s os.Signal) error {
	number, _ := s.(syscall.Signal)
	if s != os.Interrupt || !f.attended() || f.leaving {
		return f.left(128 + int(number))
	}
	f.leaving = true
	f.menu()
	return nil
}

const menuPrompt = "> "

// menu asks what is to become of the run.
func (f *follower) menu() {
	f.input.Want() // before the prompt is shown: it drops what was typed until now
	what := f.leave() + ", [c]ancel the run, or Enter to go on?"
	if f.screen != nil {
		lines := terminal.Wrap(what, f.width())
		f.screen.Ask(append(f.above(len(lines)), lines...), menuPrompt)
	} else {
		f.say("", what)
		f.hint(menuPrompt)
	}
}

func (f *follower) leave() string {
	switch {
	case !f.command.Local:
		return "[d]etach (the run goes on)"
	case f.command.Data != "":
		return "[d]etach (the run stays in " + terminal.Clean(f.command.Data) + ")"
	default:
		return "[d]etach (the run ends, nothing was kept)"
	}
}

// choose takes the answer to the menu.
func (f *follower) choose(line terminal.Line) error {
	if line.Err != nil {
		return f.left(codeInterrupted)
	}
	if f.screen != nil {
		f.screen.Typed(menuPrompt, line.Text)
	}
	switch strings.ToLower(strings.TrimSpace(line.Text)) {
	case "d", "detach":
		return f.left(codeInterrupted)
	case "c", "cancel":
		f.leaving = false
		f.cancel()
	case "":
		f.leaving = false
	default:
		f.menu()
		return nil
	}
	f.resume()
	return nil
}

// resume goes back to what was on the screen before the menu.
func (f *follower) resume() {
	if f.form != nil {
		f.prompt("")
		return
	}
	f.input.Hush()
	f.draw()
}

// cancel orders the run's end, which then comes as an event.
func (f *follower) cancel() {
	f.view.Note = "being cancelled"
	order := bus.ControlRequest{Run: f.id, Control: loop.Control{Op: loop.OpCancel, Reason: "stopped at the terminal", By: f.link.User}}
	f.later(func(ctx context.Context) func() error {
		_, err := f.client.Control(ctx, order)
		return func() error {
			if err != nil {
				f.view.Note = "the cancel could not be handed in; Ctrl-C to try again"
			}
			return nil
		}
	})
}

// left ends the program and not the run.
func (f *follower) left(code int) error {
	f.form, f.leaving = nil, false
	if f.screen != nil {
		f.screen.Show(f.lines())
		f.screen.Keep()
	}
	text := "Left run " + f.id + "; it goes on. See what comes of it:\n  " + f.program.command("events", f.id, "--follow")
	switch {
	case f.command.Local && f.command.Data != "":
		text = "Left run " + f.id + "; it stays in " + f.command.Data + ". Go on with it:\n  " + f.again(f.command)
	case f.command.Local:
		text = "Left run " + f.id + "; nothing was kept."
	}
	return problem{code, text}
}
