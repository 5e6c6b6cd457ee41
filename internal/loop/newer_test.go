package loop_test

import (
	"strings"
	"testing"
	"time"

	"ratchet/internal/loop"
)

// TestNewerEventsAreLeftForANewerWorker has a newer version write an event of a type that this one does not know. The run
// is neither driven on nor ended: its wake-up stays in the queue.
func TestNewerEventsAreLeftForANewerWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	r.eventually("parked", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run("a"))
		return err == nil && h.Owner == nil
	})
	events := r.events("a")
	last := events[len(events)-1]
	last.N++
	encoded, err := last.Encode()
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(encoded), `"agent.question"`, `"agent.of-tomorrow"`, 1)
	if err := r.nc.Publish("agent.event.default.a.step", []byte(newer)); err != nil {
		t.Fatal(err)
	}
	if err := r.bus.Wake(r.ctx(), run("a"), "test", loop.Wake{}); err != nil {
		t.Fatal(err)
	}
	later := time.After(2 * time.Second)
	<-later // it has been looked at and handed back by now
	h, _, err := r.bus.Load(r.ctx(), run("a"))
	if err != nil || h.Status != loop.StatusWaiting || h.Claim.Attempts > 0 {
		t.Errorf("the state is %+v, %v", h, err)
	}
	b, err := r.bus.Backlog(r.ctx())
	if err != nil || b.Wakes != 1 || b.Dead != 0 {
		t.Errorf("the queues hold %+v, %v", b, err)
	}
}

// TestTwoRepliesAtTheSameInstant sends two different replies to two workers at once: one is taken, the other is told.
func TestTwoRepliesAtTheSameInstant(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.config())
	r.start(r.config())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	statuses := make(chan string, 2)
	for _, text := range []string{"one", "two"} {
		go func() { statuses <- r.ask("a", `{"question": "q1", "text": "`+text+`"}`) }()
	}
	got := map[string]int{<-statuses: 1}
	got[<-statuses]++
	if got[loop.OutcomeAccepted] != 1 || got[loop.OutcomeStale] != 1 {
		t.Errorf("the replies are %v", got)
	}
	if got, want := types(r.untilClosed("a")), "accepted facts plan thought question reply thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}
