package loop_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"ratchet/internal/loop"
)

// said passes log messages on.
type said chan string

func (s said) Enabled(context.Context, slog.Level) bool { return true }
func (s said) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s said) WithGroup(string) slog.Handler            { return s }
func (s said) Handle(_ context.Context, r slog.Record) error {
	select {
	case s <- r.Message:
	default: // nobody waits any more
	}
	return nil
}

// lateClaim is a journal during whose append of a thought another worker takes the run over.
type lateClaim struct {
	loop.Journal
	claim func()
}

func (j lateClaim) Append(ctx context.Context, e loop.Event, expected uint64) (uint64, error) {
	if _, thought := e.Data.(loop.Thought); thought {
		j.claim()
	}
	return j.Journal.Append(ctx, e, expected)
}

// countedModel counts how often it is asked.
type countedModel struct {
	loop.Model
	calls *atomic.Int64
}

func (m countedModel) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	m.calls.Add(1)
	return m.Model.Complete(ctx, r)
}

// TestClaimIsHeededBeforeTheNextStep has a run taken over while its worker stores a reply. That is stored, for the append is
// free; but the next model call is the new owner's to make, and to pay for.
func TestClaimIsHeededBeforeTheNextStep(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, say(planned, m("reasoning_step", []string{"done"}, ""), answered))
	log := make(said, 1000)
	c := r.config()
	c.Log, c.Model = slog.New(log), countedModel{c.Model, &calls}
	var w worker
	c.Journal = lateClaim{c.Journal, func() {
		takeOver(t, r, "a")
		w.HearClaim(run("a"), "other")
	}}
	w = r.start(c)
	r.submit("a", `{"goal": "go"}`)
	for message := range log {
		if strings.Contains(message, "another worker owns the run") {
			break
		}
	}
	w.stop()
	if n := calls.Load(); n != 2 {
		t.Errorf("%d model calls, want 2", n)
	}
	if got, want := types(r.events("a")), "accepted facts plan thought"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

// takeOver makes another worker the owner of a run.
func takeOver(t *testing.T, r *rig, id string) {
	for {
		h, revision, err := r.bus.Load(r.ctx(), run(id))
		if err != nil {
			t.Error(err)
			return
		}
		h.Owner = &loop.Owner{Worker: "other", Wake: h.Owner.Wake, Delivery: 100}
		if _, err = r.bus.Save(r.ctx(), h, revision); err == nil {
			return
		}
	}
}
