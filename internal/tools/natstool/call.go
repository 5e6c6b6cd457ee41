package natstool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Headers of a request to a tool.
const (
	HeaderKey    = "Idempotency-Key" // tenant/run/call, the same at every repeat
	HeaderTenant = "Ratchet-Tenant"
	HeaderRun    = "Ratchet-Run"
	HeaderCall   = "Ratchet-Call"
	HeaderTrace  = "traceparent"
)

// caller sends calls to one endpoint.
type caller struct {
	conn    *nats.Conn
	subject string
	lost    func()
}

// call sends the arguments and waits for the reply, JSON or text. A reply that comes after the context's end goes nowhere.
func (t caller) call(ctx context.Context, c loop.Invocation) (any, error) {
	if !t.conn.IsConnected() {
		// The client would keep the request and send it when the connection is back, perhaps long after the timeout.
		return nil, &tools.Fault{Err: errors.New("there is no connection to NATS at the moment, so it was not called; try again later")}
	}
	msg := nats.NewMsg(t.subject)
	msg.Data = c.Arguments
	msg.Header.Set(HeaderKey, c.Key())
	msg.Header.Set(HeaderTenant, c.Run.Tenant)
	msg.Header.Set(HeaderRun, c.Run.Run)
	msg.Header.Set(HeaderCall, c.Call)
	msg.Header.Set(HeaderTrace, tools.Traceparent(ctx, c))
	reply, err := t.conn.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, t.fault(ctx, err)
	}
	return result(reply)
}

func (t caller) fault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		t.lost()
		return &tools.Fault{Err: fmt.Errorf("no service answers on %s (no responders), so nothing was done; it may be down", t.subject)}
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("the arguments are too large for NATS (at most %d bytes), so it was not called", t.conn.MaxPayload())
	}
	return &tools.Fault{Err: fmt.Errorf("call %s: %w", t.subject, err), Sent: true}
}

// result reads a reply.
func result(reply *nats.Msg) (any, error) {
	code, text := reply.Header.Get(micro.ErrorCodeHeader), reply.Header.Get(micro.ErrorHeader)
	if code != "" || text != "" {
		message := fmt.Sprintf("the service answered with error %s: %s", code, text)
		if len(reply.Data) > 0 {
			message += ": " + string(reply.Data)
		}
		return nil, errors.New(message)
	}
	switch {
	case len(reply.Data) == 0:
		return nil, nil
	case json.Valid(reply.Data):
		return json.RawMessage(reply.Data), nil
	}
	return reply.Data, nil
}
