package bus_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// Whoever may see a run's events sees the reply subject of each append, and may have the acknowledgement of a task of their
// own sent there. It must not pass for that of the event.
func TestAnAcknowledgementOfAnotherStreamIsNone(t *testing.T) {
	for name, header := range map[string]nats.Header{
		"an acknowledgement": {},
		"a refusal":          {"Nats-Expected-Last-Sequence": {"77"}}, // in the words of a lost compare-and-set
	} {
		t.Run(name, func(t *testing.T) {
			server := bustest.Server(t)
			b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
			ctx := bustest.Context(t)
			must(t, newJetStream(t, server).DeleteStream(ctx, "AGENT_EVENTS")) // nothing is stored, and nobody else answers
			stranger := bustest.Connect(t, server)
			_, err := stranger.Subscribe("agent.event.>", func(msg *nats.Msg) {
				_ = stranger.PublishMsg(&nats.Msg{Subject: "agent.task.acme", Reply: msg.Reply, Header: header, Data: []byte(`{"goal": "x"}`)})
			})
			must(t, err)
			must(t, stranger.Flush())
			seq, err := b.Append(ctx, event(run1, 1, loop.Note{}), 0)
			switch {
			case err == nil:
				t.Fatalf("an event that no stream has was stored as %d", seq)
			case errors.Is(err, loop.ErrConflict):
				t.Errorf("nobody else has appended: %v", err)
			case !strings.Contains(err.Error(), "answer came from another stream"):
				t.Errorf("the error does not say what came: %v", err)
			}
		})
	}
}
