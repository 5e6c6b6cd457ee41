package loop_test

import (
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// The server comes back without what it stored last, as after a power failure, while its worker lives on. What has ended waits
// again, what had begun never was, and all of it can be done once more.
func TestRunsGoOnFromWhatAForgetfulServerHas(t *testing.T) {
	t.Parallel()
	server := bustest.StartForgetful(t)
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := newRigOn(t, nc, converse(planned, asks, answered))
	r.start(r.sweeping())
	ready := func() {
		t.Helper()
		r.eventually("the server is there", func() bool { return r.bus.Ready(r.ctx()) == nil })
	}
	r.submit("a", `{"goal": "g"}`)
	r.parked("a")
	server.Keep()
	ready()
	r.reply("a", `{"text": "five"}`)
	r.untilClosed("a")
	for _, id := range []string{"b", "c"} {
		r.submit(id, `{"goal": "g"}`)
		r.parked(id)
	}
	server.Forget()
	ready()
	r.parked("a")
	for _, id := range []string{"d", "c", "b"} { // in the places of what was lost
		r.submit(id, `{"goal": "g"}`)
		r.parked(id)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		r.reply(id, `{"text": "six"}`)
		events := r.untilClosed(id)
		if got, want := types(events), "accepted facts plan thought question reply thought answer"; got != want {
			t.Errorf("events of %s are %s, want %s", id, got, want)
		}
		if reply := events[5].Data.(loop.Reply); reply.Text != "six" {
			t.Errorf("the reply to %s is %q", id, reply.Text)
		}
	}
}
