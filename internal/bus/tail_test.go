package bus_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// tailing begins a Tail and returns what comes of it. The Tail has ended when the test does.
func tailing(t *testing.T, b *bus.Bus, after uint64) <-chan loop.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen, ended := make(chan loop.Event, 64), make(chan struct{})
	go func() {
		defer close(ended)
		if err := b.Tail(ctx, after, func(e loop.Event) { seen <- e }); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return seen
}

func wantSeqs(t *testing.T, seen <-chan loop.Event, want ...uint64) {
	t.Helper()
	var got []uint64
	for range want {
		select {
		case e := <-seen:
			got = append(got, e.Seq)
		case <-bustest.Context(t).Done():
			t.Fatalf("got events %v, want %v", got, want)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
}

func TestTailGivesTheEventsOfAllRunsInOrder(t *testing.T) {
	b := bustest.Start(t)
	other := loop.RunID{Tenant: "globex", Run: "r2"}
	mustAppend(t, b, 0, event(run1, 1, loop.Note{Text: "a"}))
	last, err := b.LastEvent(bustest.Context(t))
	must(t, err)
	if last != 1 {
		t.Errorf("the last event is %d, want 1", last)
	}
	fromStart, fromThere := tailing(t, b, 0), tailing(t, b, last)
	mustAppend(t, b, 0, event(other, 1, loop.Question{Text: "b"}))
	mustAppend(t, b, 1, event(run1, 2, loop.Answer{Answer: "c"}))
	wantSeqs(t, fromStart, 1, 2, 3)
	wantSeqs(t, fromThere, 2, 3)
}

func TestTailLeavesOutWhatIsNoEvent(t *testing.T) {
	server := bustest.Server(t)
	nc := bustest.Connect(t, server)
	b := bustest.Open(t, nc, bus.Options{})
	seen := tailing(t, b, 0)
	forged, err := event(run1, 1, loop.Answer{Answer: "forged"}).Encode()
	must(t, err)
	publish(t, nc, &nats.Msg{Subject: "agent.event.acme.r1.step", Data: []byte("not JSON")})
	publish(t, nc, &nats.Msg{Subject: "agent.event.globex.r9.step", Data: forged})
	for _, status := range []string{"100", "404", "408", "409", "503"} { // what a server says in place of a message
		publish(t, nc, &nats.Msg{Subject: "agent.event.acme.r2.user", Header: nats.Header{"Status": {status}}})
	}
	mustAppend(t, b, 1, event(run1, 1, loop.Note{Text: "real"}))
	wantSeqs(t, seen, 8)
}

// TestTailGoesOnAfterARestart takes the server away.
func TestTailGoesOnAfterARestart(t *testing.T) {
	server := startAgain(t)
	first := server()
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: first.URL()})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{})
	seen := tailing(t, b, 0)
	mustAppend(t, b, 0, event(run1, 1, loop.Note{Text: "a"}))
	wantSeqs(t, seen, 1)
	first.Shutdown()
	server()
	ctx := bustest.Context(t)
	for {
		if _, err = b.Append(ctx, event(run1, 2, loop.Note{Text: "b"}), 1); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	wantSeqs(t, seen, 2)
}

func TestOverviewCountsWhatLiesThere(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	if _, err := b.PublishTask(ctx, "acme", []byte(`{"goal": "x"}`), "", ""); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, b, 0, event(run1, 1, loop.Note{Text: "a"}))
	seen, err := b.Overview(ctx)
	must(t, err)
	messages := map[string]uint64{}
	for _, s := range seen.Streams {
		messages[s.Name] = s.Messages
		if s.Messages > 0 && s.Bytes == 0 {
			t.Errorf("stream %s has %d messages and no bytes", s.Name, s.Messages)
		}
	}
	if messages["AGENT_TASKS"] != 1 || messages["AGENT_EVENTS"] != 1 || len(messages) != 9 {
		t.Errorf("streams hold %v", messages)
	}
	pending := map[string]uint64{}
	for _, c := range seen.Consumers {
		pending[c.Name] = c.Pending
	}
	if diff := cmp.Diff(map[string]uint64{"inbox": 1, "wakes": 0}, pending); diff != "" {
		t.Errorf("consumers (-want +got):\n%s", diff)
	}
	if seen.Version == "" || seen.Server == "" {
		t.Errorf("the server is %q, version %q", seen.Server, seen.Version)
	}
}
