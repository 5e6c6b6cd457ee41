package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

// pollEvery is how long Follow waits for a hint before it asks all the same, and before it asks again after an error.
const pollEvery = 2 * time.Second

// Follow calls each with the run's events from n = from on, in order and each once, until the final one was delivered,
// each returns an error, or ctx ends. Events of types that this program does not know are left out.
//
// Events come from the journal by way of the API. A message on the event subjects is only a hint that it is time to ask:
// it can be lost, and it can be one that was never stored. Where no worker answers at first, that is the error; later it
// waits for one to come back.
func (c *Client) Follow(ctx context.Context, run string, from uint64, each func(loop.Event) error) error {
	id := loop.RunID{Tenant: c.tenant, Run: run}
	if err := checkRun(id); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	hints := make(chan struct{}, 1)
	sub, err := c.nc.Subscribe(c.names.event(id, "*"), func(*nats.Msg) {
		select {
		case hints <- struct{}{}:
		default: // one is enough
		}
	})
	if err != nil {
		return fmt.Errorf("follow %s: %w", id, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	f := follower{client: c, request: EventsRequest{Run: run, From: from}, each: each}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		ended, err := f.catchUp(ctx)
		if ended || err != nil {
			return err
		}
		select {
		case <-hints:
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("follow %s: %w", id, context.Cause(ctx))
		}
	}
}

// follower is how far a Follow has come.
type follower struct {
	client  *Client
	request EventsRequest
	each    func(loop.Event) error
	answers bool // a worker has answered
}

// catchUp delivers what the journal has by now. ended reports whether the final event was among it.
func (f *follower) catchUp(ctx context.Context) (ended bool, err error) {
	for {
		page, err := f.client.Events(ctx, f.request)
		if err != nil {
			if f.answers && ctx.Err() == nil && Passing(err) {
				return false, nil
			}
			return false, err
		}
		f.answers = true
		f.request.After = max(f.request.After, page.Next)
		for _, raw := range page.Events {
			if ended, err := f.deliver(raw); ended || err != nil {
				return ended, err
			}
		}
		if !page.More {
			return false, nil
		}
	}
}

// Passing reports whether asking a worker again later may help, after an error of a [Client]. Where the caller's own context
// has ended it says nothing.
func Passing(err error) bool {
	var api *APIError
	if errors.As(err, &api) {
		return api.Code >= 500 || api.Code == 429
	}
	return true
}

func (f *follower) deliver(raw json.RawMessage) (ended bool, err error) {
	event, err := loop.DecodeEvent(raw)
	if errors.Is(err, loop.ErrNewer) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("follow %s: %w", f.request.Run, err)
	}
	if event.N < f.request.From {
		return false, nil
	}
	f.request.From = event.N + 1
	if err := f.each(event); err != nil {
		return false, err
	}
	return event.Final(), nil
}
