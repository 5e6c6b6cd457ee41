package bus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// deadLetter returns the only dead letter on a subject.
func deadLetter(t *testing.T, nc *nats.Conn, subject string) *jetstream.RawStreamMsg {
	t.Helper()
	js, err := jetstream.New(nc)
	must(t, err)
	s, err := js.Stream(bustest.Context(t), "AGENT_DEAD")
	must(t, err)
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Fatalf("%d dead letters", n)
	}
	msg, err := s.GetLastMsgForSubject(bustest.Context(t), subject)
	must(t, err)
	for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
		msg.Header.Del(added) // by the server, in its answer
	}
	must(t, s.Purge(bustest.Context(t)))
	return msg
}

func TestBury(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	publish(t, nc, &nats.Msg{
		Subject: "agent.task.acme", Data: []byte("not JSON"),
		Header: nats.Header{
			"Nats-Msg-Id": {"order-1"}, "traceparent": {"00-1"}, "Ratchet-Reason": {"spoofed"}, "Nats-Expected-Stream": {"AGENT_TASKS"},
		},
	})
	d := fetchOne(t, b.Inbox())
	must(t, b.Bury(ctx, d, "invalid_task", "it is\r\nnot JSON"))
	must(t, b.Bury(ctx, d, "invalid_task", "a repeat"))
	got := deadLetter(t, nc, "agent.dead.acme.task")
	want := nats.Header{
		"Nats-Msg-Id":                           got.Header["Nats-Msg-Id"],
		"Ratchet-Reason":                        {"invalid_task"},
		"Ratchet-Error":                         {"it is not JSON"},
		"Ratchet-Subject":                       {"agent.task.acme"},
		"Ratchet-Sequence":                      {"1"},
		"Ratchet-Deliveries":                    {"1"},
		"Ratchet-Run":                           {"order-1"},
		"Ratchet-Original-Nats-Msg-Id":          {"order-1"},
		"Ratchet-Original-Nats-Expected-Stream": {"AGENT_TASKS"},
		"Ratchet-Original-Ratchet-Reason":       {"spoofed"},
		"traceparent":                           {"00-1"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" || string(got.Data) != "not JSON" {
		t.Errorf("body %q (-want +got):\n%s", got.Data, diff)
	}
}

// A worker lets go of a wake-up's text once it has claimed the run.
func TestBuryAWakeUpWhoseTextIsGone(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	must(t, b.Wake(ctx, loop.RunID{Tenant: "acme", Run: "r1"}, "key", loop.Wake{Seq: 7}))
	d := fetchOne(t, b.Wakes())
	want := string(d.Body)
	if d.Header, d.Body = nil, nil; want == "" {
		t.Fatal("a wake-up has no body")
	}
	must(t, b.Bury(ctx, d, "journal_gap", "event 3 is missing"))
	if got := deadLetter(t, nc, "agent.dead.acme.wake"); string(got.Data) != want || got.Header.Get("Ratchet-Reason") != "journal_gap" {
		t.Errorf("body %q, want %q, header %v", got.Data, want, got.Header)
	}
	must(t, d.Settler.Ack(ctx))
	d.Seq++ // one that is gone from the queue, too
	must(t, b.Bury(ctx, d, "journal_gap", "event 3 is missing"))
}

func TestBuryWhatDoesNotFit(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	huge := loop.Delivery{
		Kind: loop.DeliverTask, RunID: loop.RunID{Tenant: "a*b"}, Subject: "agent.task.a*b", Stream: "AGENT_TASKS", Seq: 7,
		Time: time.Unix(0, 99), Attempt: 5, Body: make([]byte, 1<<20), Header: map[string][]string{"X": {"kept"}},
	}
	must(t, b.Bury(ctx, huge, "invalid_task", strings.Repeat("long ", 1000)))
	got := deadLetter(t, nc, "agent.dead._.task")
	if len(got.Data) != 0 || got.Header.Get("X") != "kept" || got.Header.Get("Nats-Msg-Id") != "AGENT_TASKS:7:99" {
		t.Errorf("%d bytes, header %v", len(got.Data), got.Header)
	}
	blob, err := b.GetBlob(ctx, got.Header.Get("Ratchet-Blob"))
	if err != nil || len(blob) != 1<<20 {
		t.Errorf("blob %q has %d bytes, %v", got.Header.Get("Ratchet-Blob"), len(blob), err)
	}

	huge.Seq, huge.Body = 8, []byte("small")
	huge.Header = map[string][]string{"X": {strings.Repeat("x", 1<<20)}}
	must(t, b.Bury(ctx, huge, "invalid_task", "huge headers"))
	got = deadLetter(t, nc, "agent.dead._.task")
	if got.Header.Get("X") != "" || got.Header.Get("Ratchet-Headers-Dropped") != "true" {
		t.Errorf("header %v", got.Header)
	}
	blob, err = b.GetBlob(ctx, got.Header.Get("Ratchet-Blob"))
	if err != nil || string(blob) != "small" {
		t.Errorf("blob is %q, %v", blob, err)
	}
	huge.Kind = "a.b"
	if err := b.Bury(ctx, huge, "invalid_task", "e"); err == nil {
		t.Error("a kind of two tokens was accepted")
	}
}
