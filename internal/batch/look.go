package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

const (
	// lookEvery is how often one run is looked at that has been quiet for quiet: the feed has told everything, unless the
	// run expired unseen or the journal was made anew.
	lookEvery = time.Second
	quiet     = 30 * time.Second
	// looksAtOnce bounds the looks at runs that wait for a person, before the batch ends.
	looksAtOnce = 32
	// retryFrom is the first pause before something is asked again, doubled up to retryTo.
	retryFrom = 200 * time.Millisecond
	retryTo   = 5 * time.Second
	// deepest is how many levels of child runs are looked at.
	deepest = 8
)

// submit hands a task in, again and again where that may help: the same id is the same run.
func (b *batch) submit(r *run) {
	b.begin(r)
	b.jobs.Go(func() {
		var answer bus.SubmitAnswer
		err := b.persist(func() (err error) {
			answer, err = b.Workers.Submit(b.ctx, r.body)
			return err
		})
		b.tell(func() error {
			b.end(r)
			r.body = nil
			switch {
			case b.runs[r.id] != r:
				return nil // it has ended already
			case err != nil:
				b.drop(r)
				return b.refuse(r.line, r.id, err.Error())
			case answer.Status == loop.OutcomeDuplicate:
				b.look(r)
			}
			return nil
		})
	})
}

// begin and end stand around a request about one run.
func (b *batch) begin(r *run) { r.busy, b.busy = true, b.busy+1 }
func (b *batch) end(r *run)   { r.busy, b.busy = false, b.busy-1 }

// persist repeats something until it succeeds, fails for good, or the batch ends.
func (b *batch) persist(do func() error) error {
	for wait, failed := retryFrom, false; ; wait = min(2*wait, retryTo) {
		err := do()
		switch {
		case err == nil && failed:
			b.trouble(nil)
			return nil
		case err == nil, b.ctx.Err() != nil, !bus.Passing(err):
			return err
		}
		failed = true
		b.trouble(err)
		select {
		case <-time.After(wait):
		case <-b.ctx.Done():
			return err
		}
	}
}

// sight is what a look at a run has found.
type sight struct {
	missing bool
	final   *loop.Event
	asks    []Question
}

// look finds out how a run stands.
func (b *batch) look(r *run) {
	b.begin(r)
	heard := r.heard
	b.jobs.Go(func() {
		var s sight
		err := b.persist(func() (err error) {
			s, err = b.see(b.ctx, r.id)
			return err
		})
		b.tell(func() error {
			b.end(r)
			switch {
			case err != nil || b.runs[r.id] != r:
				return err
			case r.heard != heard: // it has moved on
				b.look(r)
				return nil
			}
			return b.seen(r, s)
		})
	})
}

// see asks for the state of a run, and for its final event where it has ended.
func (b *batch) see(ctx context.Context, id string) (s sight, err error) {
	head, err := b.Workers.Get(ctx, id)
	if absent(err) {
		return sight{missing: true}, nil
	} else if err != nil {
		return s, err
	}
	if head.Status.Final() {
		s.final, err = b.final(ctx, id, 0)
		s.missing = s.final == nil
		return s, err
	}
	if s.final, err = b.final(ctx, id, head.Seq); err != nil || s.final != nil {
		return s, err
	}
	s.asks, err = b.questions(ctx, head, deepest)
	return s, err
}

func absent(err error) bool {
	var api *bus.APIError
	return errors.As(err, &api) && api.Code == 404
}

// questions are the open questions of a run and of those below it.
func (b *batch) questions(ctx context.Context, head loop.Head, levels int) (asks []Question, err error) {
	if q := head.Question; q != nil {
		open, err := b.open(ctx, head, *q)
		if err != nil {
			return nil, err
		}
		if open {
			asks = append(asks, questionOf(head.Run, *q))
		}
	}
	if levels == 0 {
		return asks, nil
	}
	for _, child := range head.Children {
		below, err := b.Workers.Get(ctx, child)
		if absent(err) {
			continue // about to begin, or gone
		} else if err != nil {
			return nil, err
		}
		more, err := b.questions(ctx, below, levels-1)
		if err != nil {
			return nil, err
		}
		asks = append(asks, more...)
	}
	return asks, nil
}

// open reports whether a question of a state is still open: the journal is ahead of the state.
func (b *batch) open(ctx context.Context, head loop.Head, q loop.Question) (bool, error) {
	page, err := b.Workers.Events(ctx, bus.EventsRequest{Run: head.Run, After: head.Seq})
	if err != nil {
		return false, err
	}
	for _, raw := range page.Events {
		e, err := loop.DecodeEvent(raw)
		if errors.Is(err, loop.ErrNewer) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("read the events of run %s: %w", head.Run, err)
		}
		switch d := e.Data.(type) {
		case loop.Reply:
			if d.Question == q.Question {
				return false, nil
			}
		case loop.Timeout:
			if d.Question == q.Question {
				return false, nil
			}
		default:
			if e.Final() {
				return false, nil
			}
		}
	}
	return true, nil
}

// final returns the final event of a run, if it has one after a place in the journal: the journal is ahead of the state, which
// has the answer only in part.
func (b *batch) final(ctx context.Context, id string, after uint64) (*loop.Event, error) {
	request := bus.EventsRequest{Run: id, Road: string(loop.RoadUser), After: after}
	for {
		page, err := b.Workers.Events(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, raw := range page.Events {
			e, err := loop.DecodeEvent(raw)
			switch {
			case errors.Is(err, loop.ErrNewer):
			case err != nil:
				return nil, fmt.Errorf("read the events of run %s: %w", id, err)
			case e.Final():
				return &e, nil
			}
		}
		if !page.More {
			return nil, nil // there is none any more
		}
		request.After = page.Next
	}
}

// seen takes what a look has found.
func (b *batch) seen(r *run, s sight) error {
	r.looked = time.Now()
	switch {
	case s.final != nil:
		return b.event(*s.final)
	case s.missing && r.known:
		message := "It has expired, and nobody knows any more what came of it."
		return b.over(r, Result{Line: r.line, Run: r.id, Status: Failed, Reason: expired, Message: message})
	case s.missing:
		return nil // it begins later
	}
	r.known = true
	if len(r.asks) > 0 && len(s.asks) == 0 { // somebody has answered
		clear(r.asks)
		b.tally.Waiting--
		b.tally.Working++
		return nil
	}
	if len(r.asks) > 0 {
		clear(r.asks)
		for _, q := range s.asks {
			r.asks[q.Run] = q
		}
		return nil
	}
	for _, q := range s.asks {
		if err := b.ask(r, q); err != nil {
			return err
		}
	}
	return nil
}

// lookAtQuiet looks at the run that was not heard of for the longest time.
func (b *batch) lookAtQuiet() {
	var oldest *run
	for _, r := range b.runs {
		if !r.busy && len(r.asks) == 0 && (oldest == nil || r.looked.Before(oldest.looked)) {
			oldest = r
		}
	}
	if oldest != nil && time.Since(oldest.looked) > quiet {
		b.look(oldest)
	}
}

// lookAtAsking looks once more at the runs that wait for a person, before the batch ends because of them: somebody may have
// answered. It reports whether there is something to wait for.
func (b *batch) lookAtAsking() bool {
	for len(b.asking) > 0 && b.busy < looksAtOnce {
		r := b.asking[0]
		b.asking = b.asking[1:]
		if b.runs[r.id] == r && len(r.asks) > 0 && !r.busy {
			b.look(r)
		}
	}
	return b.busy > 0
}
