package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// Tasks for later lie in the stream of wake-ups as message schedules, each under the id of its task. At its time the server
// makes it a wake-up with the reserved name _task, which any worker takes.

// Plan implements [loop.Wakes].
func (b *Bus) Plan(ctx context.Context, id loop.RunID, p loop.Planned) error {
	if err := checkRun(id); err != nil {
		return fmt.Errorf("plan a task: %w", err)
	}
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("plan task %s: %w", id, err)
	}
	job := loop.RunID{Tenant: id.Tenant, Run: loop.JobTask}
	msg := &nats.Msg{Subject: b.names.schedule(job, id.Run), Data: body, Header: nats.Header{
		headerSchedule:       {"@at " + p.At.UTC().Format(time.RFC3339Nano)},
		headerScheduleTarget: {b.names.wakeUp(job, loop.RankBegun)},
		headerExpectedSeq:    {"0"}, // there is none with this id
	}}
	if p.At.IsZero() {
		r, err := parseRule(p.Every)
		if err != nil {
			return fmt.Errorf("plan task %s: %w", id, err)
		}
		msg.Header.Set(headerSchedule, r.pattern)
		if r.zone != "" {
			msg.Header.Set(headerScheduleZone, r.zone)
		}
	}
	_, err = b.js.PublishMsg(ctx, msg)
	switch {
	case isConflict(err):
		return fmt.Errorf("plan task %s: %w", id, loop.ErrConflict)
	case err != nil:
		return fmt.Errorf("plan task %s: %w", id, b.explain(err))
	}
	return nil
}

// IsPlanned implements [loop.Wakes].
func (b *Bus) IsPlanned(ctx context.Context, id loop.RunID) (bool, error) {
	if err := checkRun(id); err != nil {
		return false, fmt.Errorf("look for a planned task: %w", err)
	}
	subject := b.names.schedule(loop.RunID{Tenant: id.Tenant, Run: loop.JobTask}, id.Run)
	_, err := b.leaderNext(ctx, b.names.wake, subject, 0)
	if errors.Is(err, errNoMessage) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for planned task %s: %w", id, b.explain(err))
	}
	return true, nil
}

// Unplan implements [loop.Wakes].
func (b *Bus) Unplan(ctx context.Context, id loop.RunID) (found bool, err error) {
	if found, err = b.IsPlanned(ctx, id); err != nil || !found {
		return found, err
	}
	subject := b.names.schedule(loop.RunID{Tenant: id.Tenant, Run: loop.JobTask}, id.Run)
	if err := b.wakes.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
		return true, fmt.Errorf("remove planned task %s: %w", id, b.explain(err))
	}
	return true, nil
}

// apiSchedules lists and removes tasks for later.
func (b *Bus) apiSchedules(ctx context.Context, tenant string, body []byte) (any, error) {
	var request SchedulesRequest
	if err := decode(body, &request); err != nil {
		return nil, err
	}
	switch request.Op {
	case "", "list":
		limit, err := limitOf(request.Limit)
		if err != nil {
			return nil, err
		}
		return b.schedules(ctx, tenant, request.After, limit)
	case "remove":
		if !loop.ValidID(request.ID) {
			return nil, &APIError{400, fmt.Sprintf("id %q is no valid id", oneLine(request.ID))}
		}
		found, err := b.Unplan(ctx, loop.RunID{Tenant: tenant, Run: request.ID})
		switch {
		case err != nil:
			return nil, err
		case !found:
			return nil, &APIError{404, "there is no schedule " + request.ID}
		}
		return SchedulesAnswer{Schedules: []Schedule{}, Removed: true}, nil
	default:
		return nil, &APIError{400, fmt.Sprintf("op %q is not one of list, remove", oneLine(request.Op))}
	}
}

func (b *Bus) schedules(ctx context.Context, tenant string, after uint64, limit int) (SchedulesAnswer, error) {
	answer := SchedulesAnswer{Schedules: []Schedule{}}
	filter := b.names.schedule(loop.RunID{Tenant: tenant, Run: loop.JobTask}, "*")
	for {
		msg, err := b.leaderNext(ctx, b.names.wake, filter, after)
		switch {
		case errors.Is(err, errNoMessage):
			return answer, nil
		case err != nil:
			return answer, fmt.Errorf("list schedules of %s: %w", tenant, b.explain(err))
		case len(answer.Schedules) == limit:
			answer.Next = after
			return answer, nil
		}
		after = msg.Seq
		if s, ok := readSchedule(msg); ok {
			answer.Schedules = append(answer.Schedules, s)
		}
	}
}

func readSchedule(msg stored) (s Schedule, ok bool) {
	var p loop.Planned
	if json.Unmarshal(msg.Data, &p) != nil {
		return s, false
	}
	s = Schedule{
		ID: msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:], Goal: p.Task.Goal, Every: p.Task.Every, Next: p.At, Created: p.Created,
	}
	if p.At.IsZero() {
		r, err := parseRule(p.Every)
		if err != nil {
			return s, false
		}
		last := time.Now()
		if r.schedule == nil { // the message is stored anew each time, at the time that the next interval is counted from
			last = msg.Time
		}
		s.Next = r.next(last).UTC()
	}
	return s, true
}
