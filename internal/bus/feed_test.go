package bus_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// A feed has what is for people of all runs of its tenant, from its place on, also what was stored while no worker answered.
func TestFeed(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	service, err := b.Serve(withNothingElse(b.Queries()))
	must(t, err)
	client, err := bus.NewClient(bustest.Connect(t, server), "", "acme")
	must(t, err)
	old := mustAppend(t, b, 0, event(loop.RunID{Tenant: "acme", Run: "old"}, 1, loop.Answer{Answer: "before"}))
	after, err := client.Latest(bustest.Context(t))
	must(t, err)
	if after != old {
		t.Errorf("the end of the events is %d, want %d", after, old)
	}
	ctx, stop := context.WithCancel(bustest.Context(t))
	defer stop()
	seen, troubles, done := make(chan string, 16), make(chan error, 1024), make(chan error, 1)
	go func() {
		done <- client.Feed(ctx, after, func(e loop.Event) error {
			seen <- fmt.Sprint(e.Run, " ", e.Type())
			return nil
		}, func(err error) { troubles <- err })
	}()
	for i := range 3 {
		id := loop.RunID{Tenant: "acme", Run: fmt.Sprint("r", i)}
		seq := mustAppend(t, b, 0, event(id, 1, loop.Thought{Thought: "not for people"}))
		mustAppend(t, b, seq, event(id, 2, loop.Answer{Answer: "x"}))
		mustAppend(t, b, 0, event(loop.RunID{Tenant: "other", Run: id.Run}, 1, loop.Answer{Answer: "y"}))
	}
	next := func() string {
		select {
		case what := <-seen:
			return what
		case <-ctx.Done():
			t.Fatal("no event came")
			return ""
		}
	}
	if diff := cmp.Diff([]string{"r0 answer", "r1 answer", "r2 answer"}, []string{next(), next(), next()}); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	service.Stop()
	mustAppend(t, b, 0, event(loop.RunID{Tenant: "acme", Run: "late"}, 1, loop.Failed{Reason: loop.FailTimeout}))
	if err := <-troubles; err == nil {
		t.Error("no trouble is told while no worker answers")
	}
	serve(t, b, withNothingElse(b.Queries()))
	if got := next(); got != "late failed" {
		t.Errorf("after the gap came %s", got)
	}
	for err := range troubles {
		if err == nil {
			break // it is over, and that is told too
		}
	}
	stop()
	<-done
}
