package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestMain(m *testing.M) { bustest.Main(m) }

var run1 = loop.RunID{Tenant: "acme", Run: "r1"}

// event makes an event of a run.
func event(id loop.RunID, n uint64, data loop.Data) loop.Event {
	return loop.Event{
		RunID: id, N: n, Time: time.Unix(1_800_000_000, 0).UTC(), Source: "/agent/worker/test",
		Metadata: json.RawMessage(`{"k":1}`), Data: data,
	}
}

// mustAppend appends events one after the other and returns the sequence of the last.
func mustAppend(t testing.TB, b *bus.Bus, seq uint64, events ...loop.Event) uint64 {
	t.Helper()
	for _, e := range events {
		var err error
		if seq, err = b.Append(bustest.Context(t), e, seq); err != nil {
			t.Fatal(err)
		}
	}
	return seq
}

// fetchOne waits for the next message of a queue.
func fetchOne(t testing.TB, s *bus.Source) loop.Delivery {
	t.Helper()
	var got *loop.Delivery
	ctx := bustest.Context(t)
	for got == nil {
		if err := s.Fetch(ctx, 1, func(d loop.Delivery) { got = &d }); err != nil {
			t.Fatal(err)
		}
		if ctx.Err() != nil {
			t.Fatal("nothing came")
		}
	}
	return *got
}

// nothing fails the test if a message comes within the time.
func nothing(t testing.TB, s *bus.Source, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(bustest.Context(t), within)
	defer cancel()
	err := s.Fetch(ctx, 1, func(d loop.Delivery) { t.Errorf("got %s, want nothing", d.Subject) })
	if err != nil {
		t.Error(err)
	}
}

func publish(t testing.TB, nc *nats.Conn, msg *nats.Msg) {
	t.Helper()
	if _, err := nc.RequestMsgWithContext(bustest.Context(t), msg); err != nil {
		t.Fatalf("publish to %s: %v", msg.Subject, err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
