package bus_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestFollow(t *testing.T) {
	b, client, nc := worker(t)
	ctx := bustest.Context(t)
	events := []loop.Event{
		event(run1, 1, loop.Note{Text: "a"}), event(run1, 2, loop.Thought{Thought: "b"}),
		event(run1, 3, loop.Question{Text: "c"}), event(run1, 4, loop.Answer{Answer: "d"}),
	}
	seq := mustAppend(t, b, 0, events[0])
	seen := make(chan loop.Event, 8)
	done := make(chan error, 1)
	go func() {
		done <- client.Follow(ctx, "r1", 1, func(e loop.Event) error { seen <- e; return nil })
	}()
	var appended time.Time
	quickest := time.Hour
	for i := range events {
		select {
		case got := <-seen:
			if i > 0 { // the first was there before
				quickest = min(quickest, time.Since(appended))
			}
			if diff := cmp.Diff(events[i], got); diff != "" {
				t.Fatalf("event %d (-want +got):\n%s", i+1, diff)
			}
		case <-ctx.Done():
			t.Fatalf("event %d did not come", i+1)
		}
		if i+1 < len(events) {
			// An append that loses its race is seen by plain subscribers all the same.
			lost, err := event(run1, events[i+1].N, loop.Note{Text: "lost"}).Encode()
			must(t, err)
			publish(t, nc, &nats.Msg{
				Subject: "agent.event.acme.r1.step", Data: lost,
				Header: nats.Header{"Nats-Expected-Last-Subject-Sequence": {"999"}},
			})
			seq = mustAppend(t, b, seq, events[i+1])
			appended = time.Now()
		}
	}
	must(t, <-done)
	if quickest > 1500*time.Millisecond { // without hints, each of the three later events waits two seconds
		t.Errorf("each event came after %s or more: the hints were not used", quickest)
	}
	var got []uint64
	must(t, client.Follow(ctx, "r1", 3, func(e loop.Event) error { got = append(got, e.N); return nil }))
	if diff := cmp.Diff([]uint64{3, 4}, got); diff != "" {
		t.Errorf("from 3 (-want +got):\n%s", diff)
	}
	enough := errors.New("enough")
	wantErr(t, client.Follow(ctx, "r1", 1, func(loop.Event) error { return enough }), enough)
}

// A worker that goes away and comes back does not end a Follow.
func TestFollowOutlivesAWorker(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	service, err := b.Serve(withNothingElse(b.Queries()))
	must(t, err)
	client, err := bus.NewClient(bustest.Connect(t, server), "", "acme")
	must(t, err)
	ctx := bustest.Context(t)
	seq := mustAppend(t, b, 0, event(run1, 1, loop.Note{}))
	seen, done := make(chan uint64, 2), make(chan error, 1)
	go func() {
		done <- client.Follow(ctx, "r1", 1, func(e loop.Event) error { seen <- e.N; return nil })
	}()
	<-seen
	service.Stop()
	mustAppend(t, b, seq, event(run1, 2, loop.Failed{Reason: loop.FailTimeout}))
	serve(t, b, withNothingElse(b.Queries()))
	must(t, <-done)
	if n := <-seen; n != 2 {
		t.Errorf("last event is %d", n)
	}
}
