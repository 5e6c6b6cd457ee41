package bus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// counts are the numbers of a collection by kind.
func counts(c bus.Collection) map[string]int {
	out := map[string]int{}
	for _, l := range c.Litter {
		out[l.What] = l.Count
	}
	return out
}

// TestCollect leaves one thing of each kind behind, and beside each one that is in use.
func TestCollect(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	js, err := jetstream.New(nc)
	must(t, err)
	ctx := bustest.Context(t)
	id := func(run string) loop.RunID { return loop.RunID{Tenant: "acme", Run: run} }
	long := time.Now().Add(-48 * time.Hour).UTC()
	// run makes a run with a journal, a state, a result and a message in a session.
	run := func(name string, closed bool, updated time.Time, end loop.Data) {
		first := event(id(name), 1, loop.Accepted{Task: loop.Task{Goal: "g"}, Catalogue: "used"})
		seq := mustAppend(t, b, 0, first)
		last := event(id(name), 2, end)
		last.Time = updated
		seq = mustAppend(t, b, seq, last)
		h := head(name, 2)
		h.Closed, h.Updated, h.Seq, h.Session, h.Owner = closed, updated, seq, "s-"+name, nil
		if closed {
			h.Status = loop.StatusDone
		}
		_, err := b.Save(ctx, h, 0)
		must(t, err)
		must(t, b.PutBlob(ctx, "acme/"+name+"/c1", make([]byte, 2000)))
		message := loop.SessionMessage{Role: "user", Text: "hello", Run: name, N: 1}
		must(t, b.SaveSession(ctx, "acme", "s-"+name, loop.Session{Messages: []loop.SessionMessage{message}}, 0))
	}
	run("over", true, long, loop.Answer{Answer: "x"})
	run("fresh", true, time.Now().UTC(), loop.Answer{Answer: "x"})
	run("open", false, long, loop.Thought{Thought: "x"})
	run("ending", false, long, loop.Answer{Answer: "x"}) // ended, and not closed yet

	ended := event(id("lost-ended"), 1, loop.Answer{Answer: "x"})
	ended.Time = long
	mustAppend(t, b, 0, ended)
	mustAppend(t, b, 0, event(id("lost-open"), 1, loop.Thought{Thought: "x"}))
	must(t, b.PutBlob(ctx, "acme/gone/c1", make([]byte, 3000)))
	must(t, b.PutBlob(ctx, "acme/_dead/1-2-3", make([]byte, 3000)))
	must(t, b.Bury(ctx, loop.Delivery{
		Kind: loop.DeliverTask, RunID: id(""), Subject: "agent.task.acme", Body: make([]byte, 1<<20-2000),
	}, "failed", "large")) // its payload lies in a blob
	must(t, b.SaveSession(ctx, "acme", "s-gone", loop.Session{Messages: []loop.SessionMessage{{Role: "user", Run: "gone"}}}, 0))
	sessions, err := js.KeyValue(ctx, "AGENT_SESSIONS")
	must(t, err)
	_, err = sessions.PutString(ctx, "acme.s-marked", "x")
	must(t, err)
	must(t, sessions.Delete(ctx, "acme.s-marked"))
	publish(t, nc, &nats.Msg{Subject: "$O.AGENT_BLOBS.C.unfinished", Data: make([]byte, 500)})
	must(t, b.PutCatalogue(ctx, "used", []byte("{}")))
	must(t, b.PutCatalogue(ctx, "unused", []byte("{}")))

	want := map[string]int{
		"runs past their time (the size is that of their journals)": 1,
		"journals of ended runs that have no state":                 1, "journals without a state and without an end": 1,
		"results of runs that are gone": 1, "payloads of dead letters that are gone": 1, "pieces of results that were never finished": 1,
		"conversations of which no run is left": 1, "marks of deleted keys": 1, "catalogues of tools that no run refers to": 1,
	}
	options := bus.CollectOptions{Keep: 24 * time.Hour, Age: time.Nanosecond}
	for range 2 { // looking changes nothing
		found, err := b.Collect(ctx, options)
		must(t, err)
		if diff := cmp.Diff(want, counts(found)); diff != "" || found.Removed != 0 {
			t.Errorf("%d were removed; found (-want +got):\n%s", found.Removed, diff)
		}
		for _, l := range found.Litter {
			if l.Bytes == 0 {
				t.Errorf("%s have no size", l.What)
			}
		}
	}
	nothing, err := b.Collect(ctx, bus.CollectOptions{Keep: 72 * time.Hour})
	must(t, err)
	if got := counts(nothing); len(got) != 1 { // catalogues have no age
		t.Errorf("what is new is found: %v", got)
	}
	options.Remove = true
	found, err := b.Collect(ctx, options)
	must(t, err)
	if found.Removed != 7 {
		t.Errorf("%d were removed", found.Removed)
	}
	left, err := b.Collect(ctx, options)
	must(t, err)
	stays := map[string]int{"journals without a state and without an end": 1, "catalogues of tools that no run refers to": 1}
	if diff := cmp.Diff(stays, counts(left)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	for name, there := range map[string]bool{"over": false, "fresh": true, "open": true, "ending": true} {
		_, _, headErr := b.Load(ctx, id(name))
		page, err := b.Read(ctx, id(name), 0)
		must(t, err)
		_, blobErr := b.GetBlob(ctx, "acme/"+name+"/c1")
		_, _, sessionErr := b.LoadSession(ctx, "acme", "s-"+name)
		got := fmt.Sprint(headErr == nil, len(page.Events), blobErr == nil, sessionErr == nil)
		want := "false 0 false false"
		if there {
			want = "true 2 true true"
		}
		if got != want {
			t.Errorf("of run %s there is %s, want %s", name, got, want)
		}
	}
	letters, _, err := b.DeadList(ctx, "", 0, 10)
	must(t, err)
	if shown, err := b.DeadShow(ctx, letters[0].Seq); err != nil || len(shown.Payload) == 0 {
		t.Errorf("the payload of a dead letter is gone: %v", err)
	}
}
