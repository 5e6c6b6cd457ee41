package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

// moveOldTasks puts tasks that were stored before there were lanes into those. Each keeps the id that its run would have,
// so that a run which has begun already is not begun twice. There are none but at the first start of this version.
func (b *Bus) moveOldTasks(ctx context.Context) error {
	for moved := 0; ; moved++ {
		msg, err := b.leaderNext(ctx, b.names.tasks, b.names.task("*"), 0)
		if errors.Is(err, errNoMessage) {
			if moved > 0 {
				b.log.Info("tasks stored by an earlier version were put into lanes", "tasks", moved)
			}
			return nil
		} else if err != nil {
			return fmt.Errorf("look for tasks stored by an earlier version: %w", b.explain(err))
		}
		if err := b.moveTask(ctx, msg); err != nil {
			return fmt.Errorf("put task %d of stream %s into a lane: %w", msg.Seq, b.names.tasks, b.explain(err))
		}
	}
}

func (b *Bus) moveTask(ctx context.Context, msg stored) error {
	stream, err := b.js.Stream(ctx, b.names.tasks) // there is no handle yet
	if err != nil {
		return err
	}
	copied := &nats.Msg{Subject: msg.Subject, Header: nats.Header(msg.Header), Data: msg.Data}
	if copied.Header == nil {
		copied.Header = nats.Header{}
	}
	if copied.Header.Get(headerMsgID) == "" {
		d := loop.Delivery{Stream: b.names.tasks, Seq: msg.Seq, Time: msg.Time}
		copied.Header.Set(headerMsgID, defaultID(d))
	}
	for {
		ack, err := b.js.PublishMsg(ctx, copied)
		if err != nil {
			return err
		}
		if !ack.Duplicate {
			break
		}
		select { // another task had this message id a moment ago, which does not make them one
		case <-time.After(150 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return stream.DeleteMsg(ctx, msg.Seq)
}
