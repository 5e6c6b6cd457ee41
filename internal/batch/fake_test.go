package batch

import (
	"context"
	"encoding/json"
	"sync"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// fake is workers that do at once what a test wants of a run. It is safe for concurrent use.
type fake struct {
	act func(task loop.Task) loop.Data // what a run comes to; nil: it goes on

	mu        sync.Mutex
	submitted map[string]int
	inHand    int
	most      int
	heads     map[string]loop.Head
	finals    map[string]json.RawMessage
	feed      chan loop.Event
	refusals  map[string]error // what Submit says once, by id
	gets      int
	forgets   bool // remembers nothing, for tests of memory
}

func newFake(act func(loop.Task) loop.Data) *fake {
	return &fake{
		act: act, submitted: map[string]int{}, heads: map[string]loop.Head{}, finals: map[string]json.RawMessage{},
		feed: make(chan loop.Event, 1<<10), refusals: map[string]error{},
	}
}

func (f *fake) Latest(context.Context) (uint64, error) { return 0, nil }

func (f *fake) Submit(_ context.Context, body []byte) (bus.SubmitAnswer, error) {
	task, _, err := loop.ParseTask(body, "")
	if err != nil {
		return bus.SubmitAnswer{}, &bus.APIError{Code: 400, Message: err.Error()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refusals[task.ID]; err != nil {
		delete(f.refusals, task.ID)
		return bus.SubmitAnswer{}, err
	}
	if f.forgets {
		f.feed <- loop.Event{RunID: loop.RunID{Tenant: "default", Run: task.ID}, Data: f.act(task)}
		return bus.SubmitAnswer{Run: task.ID, Status: loop.OutcomeAccepted}, nil
	}
	f.submitted[task.ID]++
	if _, known := f.heads[task.ID]; known {
		return bus.SubmitAnswer{Run: task.ID, Status: loop.OutcomeDuplicate}, nil
	}
	f.inHand++
	f.most = max(f.most, f.inHand)
	f.heads[task.ID] = loop.Head{Run: task.ID, Status: loop.StatusRunning}
	if data := f.act(task); data != nil {
		f.happen(task.ID, data, task.Metadata)
	}
	return bus.SubmitAnswer{Run: task.ID, Status: loop.OutcomeAccepted}, nil
}

// happen has an event come over the feed. The caller holds the lock.
func (f *fake) happen(id string, data loop.Data, metadata json.RawMessage) {
	e := loop.Event{RunID: loop.RunID{Tenant: "default", Run: id}, N: 2, Data: data, Metadata: metadata}
	head := f.heads[id]
	switch d := data.(type) {
	case loop.Question:
		head.Status, head.Question = loop.StatusWaiting, &d
	case loop.Answer:
		head.Status = loop.StatusDone
	case loop.Failed:
		head.Status = loop.StatusFailed
	case loop.Cancelled:
		head.Status = loop.StatusCancelled
	}
	f.heads[id] = head
	f.inHand--
	if e.Final() {
		encoded, err := e.Encode()
		if err != nil {
			panic(err)
		}
		f.finals[id] = encoded
	}
	f.feed <- e
}

func (f *fake) Get(_ context.Context, run string) (loop.Head, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	head, ok := f.heads[run]
	if !ok {
		return head, &bus.APIError{Code: 404, Message: "there is no run " + run}
	}
	return head, nil
}

func (f *fake) Events(_ context.Context, r bus.EventsRequest) (bus.EventsAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finals[r.Run] == nil {
		return bus.EventsAnswer{}, nil
	}
	return bus.EventsAnswer{Events: []json.RawMessage{f.finals[r.Run]}}, nil
}

func (f *fake) Feed(ctx context.Context, _ uint64, each func(loop.Event) error, _ func(error)) error {
	for {
		select {
		case e := <-f.feed:
			if err := each(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
