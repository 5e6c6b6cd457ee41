package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/web"
)

// console makes the console over the node's bus. It ends with the node.
func (n *Node) console() (*web.Server, error) {
	access := n.opts.Access
	access.Address = n.opts.HTTP
	s, err := web.New(web.Config{
		Store: n.bus, Actions: actions{n}, Dead: deadLetters{n.bus}, System: operations{n.bus},
		Worker: n.opts.Name, Keep: n.opts.Keep, Recent: n.recent, Access: access, Log: n.log,
	})
	if err != nil {
		return nil, fmt.Errorf("start the console: %w", err)
	}
	n.later(s.Close)
	return s, nil
}

// actions do for the console what the API does for others, by the same handlers.
type actions struct{ node *Node }

// Submit implements [web.Actions].
func (a actions) Submit(ctx context.Context, tenant string, task []byte) (web.Said, error) {
	answer, err := a.node.submit(ctx, tenant, task)
	if err != nil {
		return web.Said{}, refusal(err)
	}
	submitted, ok := answer.(bus.SubmitAnswer)
	if !ok {
		return web.Said{}, fmt.Errorf("submit a task: the answer is a %T", answer)
	}
	return web.Said{Run: submitted.Run, Status: submitted.Status}, nil
}

// Reply implements [web.Actions].
func (a actions) Reply(ctx context.Context, id loop.RunID, r loop.Reply) (web.Said, error) {
	return a.tell(ctx, id.Tenant, a.node.bus.Queries().Reply, bus.ReplyRequest{Run: id.Run, Reply: r})
}

// Control implements [web.Actions].
func (a actions) Control(ctx context.Context, id loop.RunID, c loop.Control) (web.Said, error) {
	return a.tell(ctx, id.Tenant, a.node.bus.Queries().Control, bus.ControlRequest{Run: id.Run, Control: c})
}

func (a actions) tell(ctx context.Context, tenant string, handler bus.Handler, request any) (web.Said, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return web.Said{}, err
	}
	answer, err := handler(ctx, tenant, body)
	if err != nil {
		return web.Said{}, refusal(err)
	}
	outcome, ok := answer.(bus.Outcome)
	if !ok {
		return web.Said{}, fmt.Errorf("the answer is a %T", answer)
	}
	return web.Said{Status: outcome.Status, Message: outcome.Message}, nil
}

// refusal tells what a person can mend from what they can't.
func refusal(err error) error {
	var told *bus.APIError
	if errors.As(err, &told) && told.Code < 500 {
		return &web.Refusal{Message: told.Message}
	}
	return err
}

// deadLetters are the bus's, in the console's words.
type deadLetters struct{ bus *bus.Bus }

// List implements [web.DeadLetters].
func (d deadLetters) List(ctx context.Context, after uint64, limit int) ([]web.DeadLetter, uint64, error) {
	letters, next, err := d.bus.DeadList(ctx, "", after, limit)
	out := make([]web.DeadLetter, len(letters))
	for i, l := range letters {
		out[i] = letter(l)
	}
	return out, next, err
}

// Show implements [web.DeadLetters].
func (d deadLetters) Show(ctx context.Context, seq uint64) (web.DeadLetter, error) {
	l, err := d.bus.DeadShow(ctx, seq)
	return letter(l), gone(err)
}

// Redrive implements [web.DeadLetters].
func (d deadLetters) Redrive(ctx context.Context, seq uint64) (web.DeadLetter, error) {
	l, err := d.bus.DeadRedrive(ctx, seq)
	return letter(l), gone(err)
}

// Drop implements [web.DeadLetters].
func (d deadLetters) Drop(ctx context.Context, seq uint64) error {
	_, err := d.bus.DeadDrop(ctx, seq)
	return gone(err)
}

func gone(err error) error {
	if errors.Is(err, loop.ErrNotFound) {
		return fmt.Errorf("%w: %w", web.ErrGone, err)
	}
	return err
}

func letter(l bus.DeadLetter) web.DeadLetter {
	return web.DeadLetter{
		Seq: l.Seq, Tenant: l.Tenant, Kind: string(l.Kind), Run: l.Run, Reason: l.Reason, Error: l.Error, Subject: l.Subject,
		Sequence: l.Sequence, Deliveries: l.Deliveries, Redriven: l.Redriven, Stored: l.Stored, Header: l.Header, Again: l.Again,
		Payload: l.Payload,
	}
}

// operations are the bus's, in the console's words.
type operations struct{ bus *bus.Bus }

// Ready implements [web.Operations].
func (o operations) Ready(ctx context.Context) error { return o.bus.Ready(ctx) }

// Overview implements [web.Operations].
func (o operations) Overview(ctx context.Context) (web.Overview, error) {
	seen, err := o.bus.Overview(ctx)
	out := web.Overview{Server: seen.Server, Version: seen.Version}
	for _, s := range seen.Streams {
		out.Streams = append(out.Streams, web.Stream{
			Name: s.Name, Description: s.Description, Messages: s.Messages, Bytes: s.Bytes, Last: s.LastTime,
			Replicas: s.Replicas, Leader: s.Leader,
		})
	}
	for _, c := range seen.Consumers {
		out.Queues = append(out.Queues, web.Queue{
			Name: c.Name, Stream: c.Stream, Pending: c.Pending, InHand: c.InHand, Redelivered: c.Redelivered, Pulls: c.Pulls,
			LastActive: c.LastActive,
		})
	}
	return out, err
}
