package main

import (
	"errors"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// notYet is how long the follower waits for a child run that is about to begin, before it asks again.
const notYet = 100 * time.Millisecond

// followRun delivers the events of a run and of its child runs. That a child has ended comes after the child's own events.
func (f *follower) followRun(run string, events chan<- loop.Event) error {
	below := map[string]chan struct{}{}
	return f.client.Follow(f.ctx, run, 1, func(e loop.Event) error {
		child, about := e.Data.(loop.Child)
		if done := below[child.Run]; about && child.Status != "" && done != nil {
			select {
			case <-done:
			case <-f.ctx.Done():
			}
		}
		select {
		case events <- e:
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
		if about && child.Status == "" {
			done := make(chan struct{})
			below[child.Run] = done
			f.jobs.Go(func() {
				defer close(done)
				f.followBelow(child.Run, events)
			})
		}
		return nil
	})
}

// followBelow follows a child run from its beginning on. One that can't be followed is not shown: the run above says what
// became of it.
func (f *follower) followBelow(run string, events chan<- loop.Event) {
	for {
		err := f.followRun(run, events)
		var api *bus.APIError
		if !errors.As(err, &api) || api.Code != 404 {
			return
		}
		select {
		case <-time.After(notYet):
		case <-f.ctx.Done():
			return
		}
	}
}

// eventBelow shows an event of a child run and acts on it: its questions are asked here too.
func (f *follower) eventBelow(view *terminal.Run, e loop.Event) error {
	switch d := e.Data.(type) {
	case loop.Question:
		f.look(view, d)
		return nil
	case loop.Reply, loop.Timeout, loop.Answer, loop.Failed, loop.Cancelled:
		f.withdraw(e)
	default: // nothing to act on
	}
	f.tell(view, e)
	f.draw()
	return nil
}

// askNext asks a question that had to wait for another one.
func (f *follower) askNext() {
	for _, view := range f.view.Asking() {
		f.look(view, *view.Question)
	}
}
