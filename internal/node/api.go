package node

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

func (n *Node) startAPI(context.Context) (err error) {
	api := n.bus.Queries()
	api.Submit, api.Facts = n.submit, n.facts
	stored := api.Get
	api.Get = func(ctx context.Context, tenant string, body []byte) (any, error) {
		answer, err := stored(ctx, tenant, body)
		return n.orPeek(ctx, tenant, body, answer, err)
	}
	n.service, err = n.bus.Serve(api)
	return err
}

// submit puts a task into the queue, once it is known that workers will accept it.
func (n *Node) submit(ctx context.Context, tenant string, body []byte) (any, error) {
	id := uuid.NewString()
	run, known, err := n.worker.Vet(ctx, tenant, body, id)
	var invalid *loop.InvalidTaskError
	switch {
	case errors.As(err, &invalid):
		return nil, &bus.APIError{Code: 400, Message: invalid.Error()}
	case err != nil:
		return nil, err
	case known:
		return bus.SubmitAnswer{Run: run, Status: loop.OutcomeDuplicate}, nil
	}
	msgID := ""
	if run == id {
		msgID = id
	}
	if _, err := n.bus.PublishTask(ctx, tenant, body, msgID, ""); err != nil {
		return nil, err
	}
	return bus.SubmitAnswer{Run: run, Status: loop.OutcomeAccepted}, nil
}

// orPeek answers for a run that no worker has taken yet, and so has no stored state, from its journal.
func (n *Node) orPeek(ctx context.Context, tenant string, body []byte, answer any, err error) (any, error) {
	var missing *bus.APIError
	if !errors.As(err, &missing) || missing.Code == 400 {
		return answer, err
	}
	var request bus.GetRequest
	if json.Unmarshal(body, &request) != nil || !loop.ValidID(request.Run) || request.Session != "" {
		return answer, err
	}
	head, peekErr := n.worker.Peek(ctx, loop.RunID{Tenant: tenant, Run: request.Run})
	if peekErr != nil {
		return answer, err
	}
	return head, nil
}
