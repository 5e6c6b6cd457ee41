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

// feedRest is the least time between two requests of a feed: events that come close together are fetched together.
const feedRest = 20 * time.Millisecond

// Latest returns the place in the feed of the tenant's events after all that there are by now.
func (c *Client) Latest(ctx context.Context) (uint64, error) {
	page, err := c.Events(ctx, EventsRequest{Road: string(loop.RoadUser), New: true})
	if err == nil && len(page.Events) > 0 {
		return 0, nil // a worker that does not know the word: nothing is missed from the beginning on
	}
	return page.Next, err
}

// Feed calls each with the events that are meant for a person, of all runs of the tenant, stored after a place in the feed, in
// order and each once, until each returns an error or ctx ends. It costs one subscription and one request for many events,
// however many runs there are. Events of types that this program does not know are left out.
//
// As with [Client.Follow], events come from the journal, and a message on their subjects is only a hint that it is time to ask.
// Where no worker answers it waits for one; trouble is called with each error that may pass, and with nil once it has.
func (c *Client) Feed(ctx context.Context, after uint64, each func(loop.Event) error, trouble func(error)) error {
	hints := make(chan struct{}, 1)
	subject := c.names.event(loop.RunID{Tenant: c.tenant, Run: "*"}, loop.RoadUser)
	sub, err := c.nc.Subscribe(subject, func(*nats.Msg) {
		select {
		case hints <- struct{}{}:
		default: // one is enough
		}
	})
	if err != nil {
		return fmt.Errorf("follow the events of tenant %s: %w", c.tenant, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	request := EventsRequest{Road: string(loop.RoadUser), After: after, Limit: maxLimit}
	wait := pollEvery
	for failing := false; ; {
		over, err := c.feedPages(ctx, &request, each)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("follow the events of tenant %s: %w", c.tenant, context.Cause(ctx))
		case over:
			return err
		case err != nil:
			trouble(err)
		case failing:
			trouble(nil)
		}
		failing = err != nil
		next, stop := context.WithTimeout(ctx, wait)
		select {
		case <-hints:
			wait = feedRest // a hint can be quicker than what it hints at, so it is looked for soon once more
			pause(next, feedRest)
		case <-next.Done():
			wait = min(2*wait, pollEvery)
		}
		stop()
	}
}

// feedPages delivers what there is by now, and moves the request on. over says that the feed ends with err; any other err may
// pass.
func (c *Client) feedPages(
	ctx context.Context, request *EventsRequest, each func(loop.Event) error,
) (over bool, err error) {
	for {
		page, err := c.Events(ctx, *request)
		if err != nil {
			return !Passing(err), err
		}
		for _, raw := range page.Events {
			if err := feedOne(raw, each); err != nil {
				return true, err
			}
		}
		if request.After = max(request.After, page.Next); page.More {
			continue
		}
		if len(page.Events) == 0 && page.Next > 0 {
			request.After = page.Next // which lies before where the journal has lost its newest events
		}
		return false, nil
	}
}

func feedOne(raw json.RawMessage, each func(loop.Event) error) error {
	event, err := loop.DecodeEvent(raw)
	if errors.Is(err, loop.ErrNewer) {
		return nil
	} else if err != nil {
		return fmt.Errorf("follow the events of a tenant: %w", err)
	}
	return each(event)
}
