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
	api.Submit, api.Facts, api.Prompt = n.submit, n.facts, n.prompt
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
	task, err := n.worker.Vet(ctx, tenant, body, id)
	var invalid *loop.InvalidTaskError
	var full *loop.FullError
	switch {
	case errors.As(err, &full):
		return nil, &bus.APIError{Code: 429, Message: full.Error()}
	case errors.As(err, &invalid):
		return nil, &bus.APIError{Code: 400, Message: invalid.Error()}
	case err != nil:
		return nil, err
	case task.Known:
		return bus.SubmitAnswer{Run: task.Run, Status: loop.OutcomeDuplicate, Starts: task.Starts}, nil
	}
	msgID := ""
	if task.Run == id {
		msgID = id
	}
	if _, err := n.bus.PublishTask(ctx, tenant, body, msgID, ""); err != nil {
		return nil, err
	}
	return bus.SubmitAnswer{Run: task.Run, Status: loop.OutcomeAccepted, Starts: task.Starts}, nil
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

// prompt makes the messages of a turn again.
func (n *Node) prompt(ctx context.Context, tenant string, body []byte) (any, error) {
	var request bus.PromptRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, &bus.APIError{Code: 400, Message: "the request is not the JSON object it should be: " + err.Error()}
	}
	switch {
	case !loop.ValidID(request.Run):
		return nil, &bus.APIError{Code: 400, Message: "run is no valid id: use 1 to 64 letters, digits, _ or -, not beginning with _"}
	case request.Turn < 0:
		return nil, &bus.APIError{Code: 400, Message: "turn must be 1 or more, or left out for the last one"}
	}
	view, err := n.worker.Prompt(ctx, loop.RunID{Tenant: tenant, Run: request.Run}, request.Turn)
	var noTurn *loop.NoTurnError
	switch {
	case errors.As(err, &noTurn):
		return nil, &bus.APIError{Code: 400, Message: noTurn.Error()}
	case errors.Is(err, loop.ErrNotFound):
		return nil, &bus.APIError{Code: 404, Message: "there is no run " + request.Run}
	case errors.Is(err, loop.ErrNewer):
		return nil, &bus.APIError{Code: 503, Message: "run " + request.Run + " was written by a newer worker, and only such a one can show its prompts; ask again"}
	case err != nil:
		return nil, err
	}
	return view, nil
}
