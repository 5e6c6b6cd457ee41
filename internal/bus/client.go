package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"ratchet/internal/loop"
)

// askTimeout bounds an API request: longer than the worker takes to give up on it.
const askTimeout = handlerTimeout + 2*time.Second

// ErrNoWorker says that nobody serves the API.
var ErrNoWorker = errors.New("no worker is running")

// Client speaks for one tenant through the API. It needs publish on the tenant's API subjects, a subscription to the
// tenant's own events, and nothing of JetStream. It is safe for concurrent use.
type Client struct {
	nc     *nats.Conn
	names  names
	tenant string
}

// NewClient returns a client of the workers under a prefix (empty: agent) that speaks for a tenant (empty: default).
func NewClient(nc *nats.Conn, prefix, tenant string) (*Client, error) {
	if prefix == "" {
		prefix = defaultPrefix
	}
	if tenant == "" {
		tenant = "default"
	}
	n, err := newNames(prefix)
	if err != nil {
		return nil, err
	}
	if !loop.ValidID(tenant) {
		return nil, fmt.Errorf("tenant %q is no valid id: use 1 to 64 letters, digits, _ or -, not beginning with _", tenant)
	}
	return &Client{nc: nc, names: n, tenant: tenant}, nil
}

// Submit hands in a task, as JSON, and returns when it is stored. What no worker would accept is an [*APIError] with
// code 400.
func (c *Client) Submit(ctx context.Context, task []byte) (answer SubmitAnswer, err error) {
	return answer, c.ask(ctx, "submit", json.RawMessage(task), &answer)
}

// Reply answers a question; status is accepted, duplicate, stale, unknown or invalid.
func (c *Client) Reply(ctx context.Context, r ReplyRequest) (o Outcome, err error) {
	return o, c.ask(ctx, "reply", r, &o)
}

// Control cancels, pauses or resumes a run; status is accepted, finished or unknown.
func (c *Client) Control(ctx context.Context, r ControlRequest) (o Outcome, err error) {
	return o, c.ask(ctx, "control", r, &o)
}

// Get returns a run's state. One that does not exist is an [*APIError] with code 404.
func (c *Client) Get(ctx context.Context, run string) (h loop.Head, err error) {
	return h, c.ask(ctx, "get", GetRequest{Run: run}, &h)
}

// GetSession returns a conversation. One that does not exist is an [*APIError] with code 404.
func (c *Client) GetSession(ctx context.Context, session string) (s SessionAnswer, err error) {
	return s, c.ask(ctx, "get", GetRequest{Session: session}, &s)
}

// List returns a page of runs.
func (c *Client) List(ctx context.Context, r ListRequest) (l ListAnswer, err error) {
	return l, c.ask(ctx, "list", r, &l)
}

// Events returns a page of events.
func (c *Client) Events(ctx context.Context, r EventsRequest) (e EventsAnswer, err error) {
	return e, c.ask(ctx, "events", r, &e)
}

// Prompt returns the messages that a model was sent at a turn of a run. Where there is no such run it is an [*APIError] with
// code 404, where there is no such turn one with code 400.
func (c *Client) Prompt(ctx context.Context, r PromptRequest) (v loop.PromptView, err error) {
	return v, c.ask(ctx, "prompt", r, &v)
}

// Schedules lists the tasks for later, or removes one. One that does not exist is an [*APIError] with code 404.
func (c *Client) Schedules(ctx context.Context, r SchedulesRequest) (a SchedulesAnswer, err error) {
	return a, c.ask(ctx, "schedules", r, &a)
}

// Facts lists, adds or removes long-term facts of a user.
func (c *Client) Facts(ctx context.Context, r FactsRequest) (a FactsAnswer, err error) {
	return a, c.ask(ctx, "facts", r, &a)
}

// ask sends a request and decodes the answer.
func (c *Client) ask(ctx context.Context, op string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, raw := request.(json.RawMessage) // sent as it is: what is no JSON is for the worker to say
	if !raw {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	question := &nats.Msg{Subject: c.names.api(op, c.tenant), Data: body}
	if trace := loop.Traceparent(ctx); trace != "" {
		question.Header = nats.Header{headerTrace: {trace}}
	}
	msg, err := c.nc.RequestMsgWithContext(ctx, question)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%s: %w under prefix %s at %s; start one", op, ErrNoWorker, c.names.prefix, c.nc.ConnectedUrlRedacted())
	case err != nil:
		return fmt.Errorf("%s: %w", op, explain(c.nc, err))
	}
	if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" {
		number, _ := strconv.Atoi(code) // 0 where a stranger answers
		return &APIError{Code: number, Message: msg.Header.Get(micro.ErrorHeader)}
	}
	if err := json.Unmarshal(msg.Data, answer); err != nil {
		return fmt.Errorf("%s: the worker's answer is not what it should be: %w", op, err)
	}
	return nil
}
