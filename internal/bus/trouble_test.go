package bus_test

import (
	"strings"
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// A stream that takes nothing answers all questions as if all were well: only the attempt tells.
func TestReadyRemembersWhatFailed(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	js := newJetStream(t, server)
	ctx := bustest.Context(t)
	limit := func(bytes int64) {
		t.Helper()
		s, err := js.Stream(ctx, "AGENT_EVENTS")
		must(t, err)
		c := s.CachedInfo().Config
		c.MaxBytes = bytes
		_, err = js.UpdateStream(ctx, c)
		must(t, err)
	}
	seq := mustAppend(t, b, 0, event(run1, 1, loop.Note{}))
	_, err := b.Append(ctx, event(run1, 2, loop.Note{}), 0) // a lost race is no trouble
	wantErr(t, err, loop.ErrConflict)
	_, err = b.Append(ctx, event(run1, 2, loop.Note{Text: strings.Repeat("x", bus.MaxEvent)}), seq) // nor is a message too large
	wantErr(t, err, loop.ErrRefused)
	must(t, b.Ready(ctx))

	limit(1)
	if _, err := b.Append(ctx, event(run1, 2, loop.Note{}), seq); err == nil {
		t.Fatal("a full stream took an event")
	}
	err = b.Ready(ctx)
	if err == nil || !strings.Contains(err.Error(), "storing on agent.event") || !strings.Contains(err.Error(), "maximum bytes") {
		t.Errorf("ready with a full stream: %v", err)
	}
	limit(-1)
	mustAppend(t, b, seq, event(run1, 2, loop.Note{}))
	must(t, b.Ready(ctx))
}

func TestDeletedBucketsAreMadeAgain(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	js := newJetStream(t, server)
	ctx := bustest.Context(t)
	must(t, js.DeleteKeyValue(ctx, "AGENT_RUNS"))
	must(t, js.DeleteStream(ctx, "AGENT_DEAD"))
	h := loop.Head{V: 1, Tenant: run1.Tenant, Run: run1.Run}
	for {
		_, err := b.Save(ctx, h, 0)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	must(t, b.Bury(ctx, loop.Delivery{Kind: loop.DeliverTask, Stream: "AGENT_TASKS", Subject: "agent.task.acme"}, "failed", "test"))

	must(t, js.DeleteStream(ctx, "AGENT_EVENTS"))
	if _, err := b.Append(ctx, event(run1, 1, loop.Note{}), 0); err == nil {
		t.Error("an event was stored without a journal")
	}
	b.Close() // waits for what was begun
	if _, err := js.Stream(ctx, "AGENT_EVENTS"); err == nil {
		t.Error("the journal was made again in silence")
	}
}
