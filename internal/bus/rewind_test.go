package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// A machine that loses its power loses what its server had not synced, and a backup is older than what it replaces: sequences
// and revisions are then given a second time. Who reads what is new notices, though the second life is as long as the first.
func TestReadersNoticeThatTheServerHasForgotten(t *testing.T) {
	server := bustest.StartForgetful(t)
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL()})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{})
	runs := []loop.RunID{{Tenant: "acme", Run: "a"}, {Tenant: "acme", Run: "b"}, {Tenant: "acme", Run: "c"}, {Tenant: "acme", Run: "d"}}
	begin := func(id loop.RunID) {
		t.Helper()
		mustAppend(t, b, 0, event(id, 1, loop.Note{Text: id.Run}))
		_, err := b.Save(bustest.Context(t), loop.Head{V: loop.HeadVersion, Tenant: id.Tenant, Run: id.Run}, 0)
		must(t, err)
	}
	changed := func(after loop.Cursor) (ids []string, last loop.Cursor) {
		t.Helper()
		heads, last, err := b.Changed(bustest.Context(t), after, 10)
		must(t, err)
		for _, h := range heads {
			ids = append(ids, h.Run)
		}
		return ids, last
	}
	begin(runs[0])
	server.Keep()
	connected(t, b)
	seen := tailing(t, b, 0)
	begin(runs[1])
	begin(runs[2])
	wantSeqs(t, seen, 1, 2, 3)
	ids, read := changed(loop.Cursor{})
	if diff := cmp.Diff([]string{"a", "b", "c"}, ids); diff != "" {
		t.Fatalf("states (-want +got):\n%s", diff)
	}
	if more, still := changed(read); len(more) > 0 || !still.Continues(read) || still != read {
		t.Errorf("nothing has changed, and after %v there are %v up to %v", read, more, still)
	}
	server.Forget()
	connected(t, b)
	begin(runs[3])
	begin(runs[1])
	begin(runs[2])
	ids, last := changed(read)
	if diff := cmp.Diff([]string{"a", "d", "b", "c"}, ids); diff != "" || last.Continues(read) {
		t.Errorf("after %v there are states up to %v (-want +got):\n%s", read, last, diff)
	}
	wantSeqs(t, seen, 2, 3, 4)
}

// Holds that are stored after the server has forgotten are heard of by all.
func TestHoldsAreSharedThoughTheServerHasForgotten(t *testing.T) {
	server := bustest.StartForgetful(t)
	var buses []*bus.Bus
	var paces []*bus.Pace
	for range 2 {
		nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL()})
		must(t, err)
		t.Cleanup(nc.Close)
		b := bustest.Open(t, nc, bus.Options{})
		p, err := b.Pace(bustest.Context(t))
		must(t, err)
		t.Cleanup(p.Close)
		buses, paces = append(buses, b), append(paces, p)
	}
	hold := func(key string) {
		t.Helper()
		for _, b := range buses {
			connected(t, b)
		}
		ctx, until := bustest.Context(t), time.Now().Add(time.Hour).Truncate(time.Second)
		paces[0].Hold(ctx, key, until)
		eventually(t, "the other worker knows of the hold on "+key, func() error {
			if at := paces[1].NotBefore(ctx, key); !at.Equal(until) {
				return fmt.Errorf("it knows of one until %s", at)
			}
			return nil
		})
	}
	hold("a")
	server.Keep()
	for _, key := range []string{"b", "c", "d"} {
		hold(key)
	}
	server.Forget()
	hold("e")
}

// connected waits until the server is there again.
func connected(t *testing.T, b *bus.Bus) {
	t.Helper()
	ctx := bustest.Context(t)
	eventually(t, "the server is there again", func() error { return b.Ready(ctx) })
}

// eventually waits until there is no problem. It looks at what is in memory, or answers at once without a server, so between
// two looks it leaves the processor to others.
func eventually(t *testing.T, what string, problem func() error) {
	t.Helper()
	ctx, look := bustest.Context(t), time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for err := problem(); err != nil; err = problem() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s: %v", what, err)
		}
	}
}

// A feed goes on from the end of what is left.
func TestAFeedGoesOnThoughTheServerHasForgotten(t *testing.T) {
	server := bustest.StartForgetful(t)
	connect := func() *nats.Conn {
		nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL()})
		must(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	b := bustest.Open(t, connect(), bus.Options{})
	service, err := b.Serve(withNothingElse(b.Queries()))
	must(t, err)
	defer service.Stop()
	client, err := bus.NewClient(connect(), "", "acme")
	must(t, err)
	answer := func(run string) {
		t.Helper()
		mustAppend(t, b, 0, event(loop.RunID{Tenant: "acme", Run: run}, 1, loop.Answer{Answer: run}))
	}
	at := func() (next uint64) {
		t.Helper()
		ctx := bustest.Context(t)
		eventually(t, "the worker answers", func() error {
			page, err := client.Events(ctx, bus.EventsRequest{Road: "user", After: 3, Limit: 1})
			next = page.Next
			return err
		})
		return next
	}
	answer("a")
	server.Keep()
	connected(t, b)
	answer("b")
	answer("c")
	if next := at(); next != 3 {
		t.Errorf("the next place is %d, want 3", next)
	}
	server.Forget()
	connected(t, b)
	if next := at(); next != 1 {
		t.Errorf("the next place is %d, want 1", next)
	}
	ctx, stop := context.WithCancel(bustest.Context(t))
	defer stop()
	listener := connect()
	requests, err := listener.SubscribeSync("agent.api.events.acme")
	must(t, err)
	must(t, listener.Flush())
	seen := make(chan string, 8)
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- client.Feed(ctx, 3, func(e loop.Event) error { // a place that was lost
			seen <- e.Run
			return enough
		}, func(error) {})
	}()
	for range 2 { // the second is made when the first was answered
		_, err := requests.NextMsgWithContext(ctx)
		must(t, err)
	}
	answer("d")
	wantErr(t, <-done, enough)
	if run := <-seen; run != "d" {
		t.Errorf("the feed has %s, want d", run)
	}
}
