package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestDepths(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	before := time.Now().Add(-time.Second)
	look := func(want ...bus.Depth) {
		t.Helper()
		got, dead, err := b.Depths(ctx)
		must(t, err)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(bus.Depth{}, "Oldest")); diff != "" || dead != 1 {
			t.Errorf("%d dead letters (-want +got):\n%s", dead, diff)
		}
		for _, d := range got {
			if old := d.Oldest.After(before) && d.Oldest.Before(time.Now().Add(time.Second)); old != (d.Waiting > 0) {
				t.Errorf("the oldest of %s, where %d wait, was stored at %s", d.Queue, d.Waiting, d.Oldest)
			}
		}
	}
	must(t, b.Bury(ctx, loop.Delivery{Kind: loop.DeliverTask, Stream: "AGENT_TASKS", Seq: 1, Subject: "agent.task.acme"}, "invalid_task", "test"))
	look(bus.Depth{Queue: "inbox"}, bus.Depth{Queue: "wakes"})
	must(t, b.Schedule(ctx, run1, "timeout", time.Now().Add(time.Hour))) // waits for its time, not for a worker
	for range 3 {
		must(t, b.Wake(ctx, run1, "", loop.Wake{}))
	}
	_, err := b.PublishTask(ctx, "acme", []byte("{}"), "", "")
	must(t, err)
	fetchOne(t, b.Wakes())
	look(bus.Depth{Queue: "inbox", Waiting: 1}, bus.Depth{Queue: "wakes", Waiting: 2, InHand: 1})
	fetchOne(t, b.Inbox())
	look(bus.Depth{Queue: "inbox", InHand: 1}, bus.Depth{Queue: "wakes", Waiting: 2, InHand: 1})
}

// TestTraceparentOfARequest carries the trace of whoever asks the API for a run into the task's message, and what is no
// trace not.
func TestTraceparentOfARequest(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	api := b.Queries()
	api.Submit = func(ctx context.Context, tenant string, body []byte) (any, error) {
		_, err := b.PublishTask(ctx, tenant, body, "", "")
		return bus.SubmitAnswer{}, err
	}
	serve(t, b, api)
	client, err := bus.NewClient(bustest.Connect(t, server), "", "acme")
	must(t, err)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for given, want := range map[string]string{trace: trace, "": "", "nonsense": ""} {
		_, err = client.Submit(loop.WithTraceparent(bustest.Context(t), given), []byte("{}"))
		must(t, err)
		d := fetchOne(t, b.Inbox())
		if got := append(d.Header["traceparent"], "")[0]; got != want {
			t.Errorf("a request with %q makes a task with %q", given, got)
		}
		must(t, d.Settler.Ack(t.Context()))
	}
}
