package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

// Repeat implements [loop.Wakes]. The schedule's subject is the job's own, so that every worker's replaces the one before.
func (b *Bus) Repeat(ctx context.Context, job string, every time.Duration) error {
	id := loop.RunID{Tenant: "_", Run: job}
	_, err := b.js.PublishMsg(ctx, &nats.Msg{
		Subject: b.names.schedule(id, "every"),
		Data:    []byte("{}"),
		Header: nats.Header{
			headerSchedule:       {"@every " + max(every, time.Second).String()},
			headerScheduleTarget: {b.names.wakeUp(id, loop.RankBegun)},
		},
	})
	if err != nil {
		return fmt.Errorf("publish schedule of job %s: %w", job, b.explain(err))
	}
	return nil
}

// Job implements [loop.Wakes].
func (b *Bus) Job(ctx context.Context, tenant, job, key string, body any) error {
	if !loop.ValidID(tenant) {
		return fmt.Errorf("publish job %s: %q is no valid tenant", job, tenant)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("publish job %s of %s: %w", job, tenant, err)
	}
	// Nobody waits for a job: it comes behind all runs.
	subject := b.names.wakeInBulk(loop.RunID{Tenant: tenant, Run: job}, loop.RankLow)
	msg := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
	msg.Header.Set(headerMsgID, tenant+"/"+job+":"+key)
	if _, err := b.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("publish job %s of %s: %w", job, tenant, b.explain(err))
	}
	return nil
}

// Order implements [loop.Orders].
func (b *Bus) Order(ctx context.Context, id loop.RunID, control json.RawMessage) error {
	_, err := b.PublishControl(ctx, id, control, "")
	return err
}

// Idle implements [loop.Wakes].
func (b *Bus) Idle(ctx context.Context) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	infos, err := b.consumers(ctx, b.names.wake)
	if err != nil {
		return false, fmt.Errorf("look whether wake-ups wait: %w", err)
	}
	for _, info := range infos {
		if info.NumPending > 0 {
			return false, nil
		}
	}
	return true, nil
}

// Changed implements [loop.Heads].
func (b *Bus) Changed(ctx context.Context, after loop.Cursor, limit int) (heads []loop.Head, last loop.Cursor, err error) {
	if last, err = b.begin(ctx, after); err != nil {
		return nil, after, fmt.Errorf("list changed states: %w", err)
	}
	prefix := kvSubject(b.names.heads, "")
	err = b.scanMany(ctx, kvStream(b.names.heads), prefix+">", last.Revision, limit+1, func(msg stored) bool {
		if len(heads) == limit {
			return false
		}
		last.Revision = msg.Seq
		tenant, run, ok := strings.Cut(strings.TrimPrefix(msg.Subject, prefix), ".")
		id := loop.RunID{Tenant: tenant, Run: run}
		if ok && checkRun(id) == nil && len(msg.Header[headerKVOperation]) == 0 {
			heads = append(heads, readHead(id, msg.Data))
		}
		return true
	})
	if err != nil {
		return nil, after, fmt.Errorf("list changed states: %w", err)
	}
	return heads, last, nil
}

// begin returns the place at which to read on: the given one, or the beginning where its revision may be another state's by
// now. That is so where the bucket was deleted or restored, and where the server restarted, which loses what it had not
// synced if the machine went down with it.
func (b *Bus) begin(ctx context.Context, at loop.Cursor) (loop.Cursor, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	info, err := b.headLog.Info(ctx)
	if err != nil {
		return at, b.explain(err)
	}
	life := fmt.Sprintf("%s of %s", b.nc.ConnectedServerId(), info.Created.UTC().Format(time.RFC3339Nano))
	if at.Life != life || info.State.LastSeq < at.Revision {
		return loop.Cursor{Life: life}, nil
	}
	return at, nil
}
