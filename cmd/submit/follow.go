package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// follower follows one run until it ends, is left, or waits for a person who is not there. All of its fields belong to
// one goroutine; what goes on beside it (events, lines typed, replies sent) comes in over channels.
type follower struct {
	*program
	command *runCommand
	client  *bus.Client
	id      string

	view    *terminal.Run
	screen  *terminal.Screen              // nil: no live view
	told    map[string]*terminal.Narrator // by run: this one and its child runs
	input   *terminal.Input
	form    *terminal.Form // the question that is being asked; nil: none
	asked   string         // the run that asks it
	sending bool           // a reply is on its way
	leaving bool           // the menu of Ctrl-C is open
	results chan func() error
	jobs    sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context
}

// errDone ends the loop of a follower.
var errDone = errors.New("done")

// follow shows a run until its end and returns what the exit code is to be.
func (p *program) follow(client *bus.Client, c *runCommand, id string) error {
	f := &follower{
		program: p, command: c, client: client, id: id, input: terminal.NewInput(p.stdin),
		view: terminal.NewRun(id, c.Goal, time.Now()), results: make(chan func() error),
		told: map[string]*terminal.Narrator{},
	}
	f.ctx, f.stop = context.WithCancel(p.ctx)
	defer f.jobs.Wait()
	defer f.stop()
	if p.stderr.Live && !c.Quiet && !c.JSON {
		f.screen = terminal.NewScreen(p.stderr)
		defer f.screen.Close()
	}
	if f.attended() {
		f.input.Hush()
		defer f.input.Restore()
	}
	err := f.loop()
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// attended reports whether a person sits there who can see a question and type an answer.
func (f *follower) attended() bool { return f.input.Terminal() && f.stderr.Is }

// answers reports whether questions are answered here: by a person, or with --local by the lines of standard input.
func (f *follower) answers() bool {
	return f.attended() || f.command.Local && !f.input.Terminal()
}

func (f *follower) loop() error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	events, ended := f.events()
	spin := time.NewTicker(terminal.SpinEvery)
	defer spin.Stop()
	f.draw()
	for {
		var err error
		select {
		case e := <-events:
			err = f.event(e)
		case err = <-ended:
			err = f.explain(err)
		case line := <-f.input.Lines():
			f.input.Got()
			err = f.line(line)
		case result := <-f.results:
			err = result()
		case s := <-signals:
			err = f.signal(s)
		case <-spin.C:
			f.draw()
		case <-f.ctx.Done():
			err = f.left(codeInterrupted)
		}
		if err != nil {
			return err
		}
	}
}

// events delivers the events of the run and its child runs, and an error where there can't be any more.
func (f *follower) events() (<-chan loop.Event, <-chan error) {
	events, ended := make(chan loop.Event), make(chan error, 1)
	f.jobs.Go(func() {
		err := f.followRun(f.id, events)
		if err != nil && f.ctx.Err() == nil {
			ended <- err
		}
	})
	return events, ended
}

// later does something slow beside the loop and hands what it returns to the loop.
func (f *follower) later(job func(context.Context) func() error) {
	f.jobs.Go(func() {
		result := job(f.ctx)
		select {
		case f.results <- result:
		case <-f.ctx.Done():
		}
	})
}

// event shows an event and acts on it.
func (f *follower) event(e loop.Event) error {
	view := f.view.Find(e.Run)
	if view == nil {
		return nil
	}
	view.Apply(e)
	if view != f.view {
		return f.eventBelow(view, e)
	}
	if f.command.JSON {
		encoded, err := e.Encode()
		if err != nil {
			return failed("Event %d of run %s can't be written as JSON: %v.", e.N, f.id, err)
		}
		if err := f.print(f.json(encoded)); err != nil {
			return err
		}
	}
	switch d := e.Data.(type) {
	case loop.Question:
		f.tell(view, e)
		f.look(view, d)
		return nil
	case loop.Reply, loop.Timeout:
		f.withdraw(e)
	case loop.Answer, loop.Failed, loop.Cancelled:
		f.withdraw(e)
		return f.ended(e)
	default: // nothing to act on
	}
	f.tell(view, e)
	f.draw()
	return nil
}

// tell writes what an event brought in plain lines, where there is no live view. Those of a child run begin with its label.
func (f *follower) tell(view *terminal.Run, e loop.Event) {
	if f.screen != nil || f.command.Quiet || f.command.JSON {
		return
	}
	narrator := f.told[view.ID]
	if narrator == nil {
		narrator = &terminal.Narrator{}
		f.told[view.ID] = narrator
	}
	lines := narrator.Lines(view, e)
	if view.Label != "" {
		for i := range lines {
			lines[i] = view.Label + ": " + lines[i]
		}
	}
	f.say(lines...)
}

// draw brings the live view up to date, unless something else is on the screen.
func (f *follower) draw() {
	if f.screen == nil || f.form != nil || f.leaving {
		return
	}
	f.screen.Show(f.lines())
}

func (f *follower) lines() []string {
	width, height := f.stderr.Dimensions()
	return f.view.Lines(time.Now(), width, height-1, f.stderr.Style)
}

// ended shows how the run came out.
func (f *follower) ended(e loop.Event) error {
	f.leaving = false
	f.tell(f.view, e)
	f.draw()
	if f.screen != nil {
		f.screen.Keep()
	}
	switch d := e.Data.(type) {
	case loop.Answer:
		if !f.command.JSON {
			if f.screen != nil && f.stdout.Is {
				f.say("")
			}
			if err := f.print(f.text(d.Answer)); err != nil {
				return err
			}
		}
		return errDone
	case loop.Failed:
		if d.Reason == loop.FailInvalidTask {
			return usage("No worker accepted this task: %s", sentence(d.Message))
		}
		return failed("Run %s failed (%s): %s\nSee what it did:\n  %s", f.id, d.Reason, sentence(d.Message), f.lookCommand())
	case loop.Cancelled:
		name, text := terminal.Describe(e)
		return problem{codeCancelled, "Run " + f.id + " was " + name + ending(text)}
	default:
		return failed("Run %s ended in an event that this program does not know.", f.id)
	}
}

// ending puts a reason behind a sentence.
func ending(reason string) string {
	if reason == "" {
		return "."
	}
	return " (" + reason + ")."
}

// lookCommand is the command that shows what a run did.
func (f *follower) lookCommand() string { return f.program.command("events", f.id) }
