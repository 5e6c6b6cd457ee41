package loop_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

func (r *rig) stream(name string) jetstream.Stream {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	stream, err := js.Stream(r.ctx(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return stream
}

// loseEvent deletes an event behind the workers' back.
func (r *rig) loseEvent(e loop.Event) {
	r.t.Helper()
	if err := r.stream("AGENT_EVENTS").DeleteMsg(r.ctx(), e.Seq); err != nil {
		r.t.Fatal(err)
	}
}

// purge deletes messages behind the workers' back.
func (r *rig) purge(subject string) {
	r.t.Helper()
	if err := r.stream("AGENT_WAKE").Purge(r.ctx(), jetstream.WithPurgeSubject(subject)); err != nil {
		r.t.Fatal(err)
	}
}

// wakes counts what lies in the queue of wake-ups, schedules included.
func (r *rig) wakes() uint64 {
	r.t.Helper()
	return r.stream("AGENT_WAKE").CachedInfo().State.Msgs
}

func (r *rig) sweeping() loop.Config {
	c := r.config()
	c.Sweep = time.Second
	c.Lease = time.Second // of the sweep's patience; the consumer's is its own
	return c
}

func TestSweepFindsALostSchedule(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.sweeping())
	r.losesItsSchedule("a")
}

// losesItsSchedule submits a run that asks, deletes the schedule of its time, and sees it time out all the same.
func (r *rig) losesItsSchedule(id string) {
	r.t.Helper()
	r.submit(id, `{"goal": "g", "ask": {"timeout": "4s", "on_timeout": "continue"}}`)
	r.until(id, "question")
	r.purge("agent.schedule.default.>")
	if got, want := types(r.untilClosed(id)), "accepted facts plan thought question timeout thought answer"; got != want {
		r.t.Errorf("events are %s, want %s", got, want)
	}
}

func TestSweepFindsALostWakeUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	first := r.start(r.sweeping())
	r.submit("parked", `{"goal": "g"}`)
	r.until("parked", "question")
	r.parked("parked")
	first.stop()
	// A reply and a fresh task come in while only doors work; their wake-ups are deleted before a driver sees them.
	doorOnly := r.sweeping()
	doorOnly.WakeQueue = noWork{}
	door := r.start(doorOnly)
	r.reply("parked", `{"text": "five"}`)
	r.submit("fresh", `{"goal": "g"}`)
	r.until("parked", "reply")
	r.eventually("the fresh run is shown", func() bool {
		_, _, err := r.bus.Load(r.ctx(), run("fresh"))
		return err == nil
	})
	r.eventually("both wake-ups are there", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Inbox == 0 && b.Wakes >= 2
	})
	door.stop()
	r.purge("agent.wake.>")
	r.start(r.sweeping())
	r.untilClosed("parked")
	r.until("fresh", "question")
}

func TestSweepLeavesWaitingRunsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.sweeping())
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	r.parked("a")
	woken, err := r.nc.SubscribeSync("agent.wake.*.default.a")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := woken.NextMsg(5 * time.Second); err == nil { // in which several sweeps look at it
		t.Errorf("a run that waits was woken: %s %s", m.Subject, m.Header.Get(jetstream.MsgIDHeader))
	}
}

// After a power failure the journal may have lost an event that the state of its run still shows. The run goes on from its
// journal, as if the event had never been.
func TestSweepFindsAStateThatIsAheadOfItsJournal(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	r.start(r.sweeping())
	r.submit("a", `{"goal": "g"}`)
	question := r.until("a", "question")
	r.parked("a")
	r.loseEvent(question)
	if again := r.until("a", "question"); again.Seq <= question.Seq {
		t.Fatalf("the question is event %d, which was deleted", again.Seq)
	}
	r.reply("a", `{"text": "five"}`)
	if got, want := types(r.untilClosed("a")), "accepted facts plan thought question reply thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}

// The bucket of states is deleted and made again, and counts its revisions from one: the sweep knows of none of its states by
// what it read of the old one.
func TestSweepFindsALostScheduleInABucketMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, asks, answered))
	w := r.start(r.sweeping())
	for _, id := range []string{"a", "b", "c"} { // their revisions are given again
		r.submit(id, `{"goal": "g"}`)
		r.until(id, "question")
	}
	r.eventually("a sweep has seen that they wait", func() bool { return w.Load().Open[loop.StatusWaiting] == 3 })
	js, err := jetstream.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(r.ctx(), "AGENT_RUNS"); err != nil {
		t.Fatal(err)
	}
	if err := r.bus.SetupAgain(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.losesItsSchedule("d")
}
