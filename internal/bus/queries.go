package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ratchet/internal/loop"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// maxListed bounds the states that one list request looks at when few of them match.
	maxListed = 10_000
)

// Queries returns an API whose reading operations, get, list, events and schedules, are filled in, and so are reply and control,
// which put a message into the queue and wait for what the door makes of it. Submit is left to the caller.
func (b *Bus) Queries() API {
	return API{Reply: b.apiReply, Control: b.apiControl, Get: b.apiGet, List: b.apiList, Events: b.apiEvents, Schedules: b.apiSchedules}
}

func (b *Bus) apiReply(ctx context.Context, tenant string, body []byte) (any, error) {
	id, err := target(tenant, body)
	if err != nil {
		return nil, err
	}
	return b.PublishAndAwait(ctx, func(ctx context.Context, token string) error {
		_, err := b.PublishReply(ctx, id, body, token)
		return err
	})
}

func (b *Bus) apiControl(ctx context.Context, tenant string, body []byte) (any, error) {
	id, err := target(tenant, body)
	if err != nil {
		return nil, err
	}
	return b.PublishAndAwait(ctx, func(ctx context.Context, token string) error {
		_, err := b.PublishControl(ctx, id, body, token)
		return err
	})
}

// target reads the run a request is for.
func target(tenant string, body []byte) (loop.RunID, error) {
	var request struct {
		Run string `json:"run"`
	}
	if err := decode(body, &request); err != nil {
		return loop.RunID{}, err
	}
	return runOf(tenant, request.Run)
}

func runOf(tenant, run string) (loop.RunID, error) {
	if !loop.ValidID(run) {
		return loop.RunID{}, &APIError{400, fmt.Sprintf("run %q is no valid id: use 1 to 64 letters, digits, _ or -, not "+
			"beginning with _", oneLine(run))}
	}
	return loop.RunID{Tenant: tenant, Run: run}, nil
}

func (b *Bus) apiGet(ctx context.Context, tenant string, body []byte) (any, error) {
	var request GetRequest
	if err := decode(body, &request); err != nil {
		return nil, err
	}
	if request.Session != "" {
		return b.apiGetSession(ctx, tenant, request.Session)
	}
	id, err := runOf(tenant, request.Run)
	if err != nil {
		return nil, err
	}
	head, _, err := b.Load(ctx, id)
	switch {
	case errors.Is(err, loop.ErrNotFound):
		return nil, &APIError{404, "there is no run " + request.Run}
	case err != nil:
		return nil, err
	case head.Unreadable:
		return nil, &APIError{503, "the state of run " + request.Run + " is being rebuilt; ask again, or read its events"}
	}
	return head, nil
}

func (b *Bus) apiGetSession(ctx context.Context, tenant, session string) (any, error) {
	if !loop.ValidID(session) {
		return nil, &APIError{400, fmt.Sprintf("session %q is no valid id", oneLine(session))}
	}
	s, _, err := b.LoadSession(ctx, tenant, session)
	if errors.Is(err, loop.ErrNotFound) {
		return nil, &APIError{404, "there is no session " + session}
	} else if err != nil {
		return nil, err
	}
	answer := SessionAnswer{Session: session, Messages: s.Messages}
	if len(s.Runs) == 0 {
		return answer, nil
	}
	answer.Run = s.Runs[0]
	head, _, err := b.Load(ctx, loop.RunID{Tenant: tenant, Run: answer.Run})
	if err != nil && !errors.Is(err, loop.ErrNotFound) {
		return nil, err
	}
	answer.Question = head.Question
	return answer, nil
}

func (b *Bus) apiList(ctx context.Context, tenant string, body []byte) (any, error) {
	var request ListRequest
	if err := decode(body, &request); err != nil {
		return nil, err
	}
	limit, err := limitOf(request.Limit)
	if err != nil {
		return nil, err
	}
	answer := ListAnswer{Runs: []ListedRun{}, Next: request.After}
	for looked := 0; looked < maxListed; {
		heads, next, err := b.List(ctx, tenant, answer.Next, limit-len(answer.Runs))
		if err != nil {
			return nil, err
		}
		looked += len(heads)
		answer.Next = next
		for _, h := range heads {
			if request.Status == "" || h.Status == request.Status {
				answer.Runs = append(answer.Runs, ListedRun{h.Run, h.Status, h.N, h.Strategy, h.Goal, h.Updated})
			}
		}
		if next == 0 || len(answer.Runs) == limit {
			break
		}
	}
	return answer, nil
}

func limitOf(asked int) (int, error) {
	if asked < 0 || asked > maxLimit {
		return 0, &APIError{400, fmt.Sprintf("limit %d is not valid: use 1 to %d", asked, maxLimit)}
	}
	return cmp.Or(asked, defaultLimit), nil
}

func (b *Bus) apiEvents(ctx context.Context, tenant string, body []byte) (any, error) {
	var request EventsRequest
	if err := decode(body, &request); err != nil {
		return nil, err
	}
	limit, err := limitOf(request.Limit)
	if err != nil {
		return nil, err
	}
	id := loop.RunID{Tenant: tenant}
	if request.Run != "" {
		if id, err = runOf(tenant, request.Run); err != nil {
			return nil, err
		}
	}
	road := loop.Road(request.Road)
	if request.Road == "all" {
		road = ""
	}
	filter, err := b.pageFilter(id, road)
	if err != nil {
		return nil, &APIError{400, err.Error()}
	}
	if request.New {
		return b.eventsEnd(ctx)
	}
	answer, err := b.eventsPage(ctx, filter, request, limit)
	if err == nil && len(answer.Events) == 0 && request.After > 0 && answer.Next == request.After {
		// Nothing is new, or the journal has lost its newest events, and who reads it must go on from its end.
		last, err := b.LastEvent(ctx)
		answer.Next = min(answer.Next, last)
		return answer, err
	}
	return answer, err
}

// eventsEnd says where the events begin that are stored from now on.
func (b *Bus) eventsEnd(ctx context.Context) (EventsAnswer, error) {
	last, err := b.LastEvent(ctx)
	return EventsAnswer{Events: []json.RawMessage{}, Next: last}, err
}

// eventsPage collects events as they are stored, those of types unknown to this program included, as many as fit into
// one message.
func (b *Bus) eventsPage(ctx context.Context, filter string, request EventsRequest, limit int) (EventsAnswer, error) {
	answer := EventsAnswer{Events: []json.RawMessage{}, Next: request.After}
	room := int(b.nc.MaxPayload()) - deadSlack
	err := b.scan(ctx, b.names.events, filter, request.After, func(msg stored) bool {
		event, err := b.event(msg)
		wanted := err == nil && event.N >= request.From || errors.Is(err, loop.ErrNewer)
		if !wanted {
			answer.Next = msg.Seq
			return true
		}
		room -= len(msg.Data) + 1
		if room < 0 || len(answer.Events) == limit {
			answer.More = true
			return false
		}
		answer.Events = append(answer.Events, msg.Data)
		answer.Next = msg.Seq
		return true
	})
	return answer, err
}
