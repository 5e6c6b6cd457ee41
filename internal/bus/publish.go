package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// ErrFull says that the queue takes no more messages until some have been handled.
var ErrFull = errors.New("the queue of tasks, replies and controls is full; send it again later")

// codeNotStored is the server's word for a message that a stream did not take, with the reason in its text.
const codeNotStored = 10077

// isFull reports whether err says that a stream has as many messages or bytes as it may have.
func isFull(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeNotStored && strings.HasPrefix(api.Description, "maximum ")
}

// Stored says where a queue message lies.
type Stored struct {
	Stream    string
	Seq       uint64
	Duplicate bool // a message with the same id was stored a moment ago; this one was not
}

// PublishTask puts a task into the queue. msgID, where it is not empty, is the id that the run's id may be derived from;
// token, where it is not empty, is the one its outcome is told under.
func (b *Bus) PublishTask(ctx context.Context, tenant string, body []byte, msgID, token string) (Stored, error) {
	if !loop.ValidID(tenant) {
		return Stored{}, fmt.Errorf("publish task: %q is no valid tenant", tenant)
	}
	return b.publish(ctx, b.names.task(tenant), body, msgID, token)
}

// PublishReply puts a reply to a run's question into the queue; see [Bus.PublishTask] for token.
func (b *Bus) PublishReply(ctx context.Context, id loop.RunID, body []byte, token string) (Stored, error) {
	if err := checkRun(id); err != nil {
		return Stored{}, fmt.Errorf("publish reply: %w", err)
	}
	return b.publish(ctx, b.names.reply(id), body, "", token)
}

// PublishControl puts an order for a run into the queue; see [Bus.PublishTask] for token.
func (b *Bus) PublishControl(ctx context.Context, id loop.RunID, body []byte, token string) (Stored, error) {
	if err := checkRun(id); err != nil {
		return Stored{}, fmt.Errorf("publish control: %w", err)
	}
	return b.publish(ctx, b.names.control(id), body, "", token)
}

func (b *Bus) publish(ctx context.Context, subject string, body []byte, msgID, token string) (Stored, error) {
	msg := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	if msgID != "" {
		msg.Header.Set(headerMsgID, msgID)
	}
	if token != "" {
		msg.Header.Set(headerOutcome, token)
	}
	if trace := loop.Traceparent(ctx); trace != "" {
		msg.Header.Set(headerTrace, trace)
	}
	ack, err := b.js.PublishMsg(ctx, msg)
	if isFull(err) {
		return Stored{}, fmt.Errorf("publish to %s: %w (%w)", subject, ErrFull, err)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("publish to %s: %w", subject, b.explain(err))
	}
	return Stored{Stream: ack.Stream, Seq: ack.Sequence, Duplicate: ack.Duplicate}, nil
}
