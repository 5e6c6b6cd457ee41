package bus_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func head(run string, n uint64) loop.Head {
	return loop.Head{
		V: loop.HeadVersion, Tenant: "acme", Run: run, Status: loop.StatusRunning, N: n, Goal: "g",
		Owner: &loop.Owner{Worker: "w1", Wake: 3, Delivery: 1}, Updated: time.Unix(1_800_000_000, 0).UTC(),
	}
}

func TestHeads(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	_, _, err := b.Load(ctx, run1)
	wantErr(t, err, loop.ErrNotFound)
	rev, err := b.Save(ctx, head("r1", 1), 0)
	must(t, err)
	_, err = b.Save(ctx, head("r1", 2), 0)
	wantErr(t, err, loop.ErrConflict)
	next, err := b.Save(ctx, head("r1", 2), rev)
	must(t, err)
	_, err = b.Save(ctx, head("r1", 3), rev)
	wantErr(t, err, loop.ErrConflict)
	got, gotRev, err := b.Load(ctx, run1)
	must(t, err)
	if diff := cmp.Diff(head("r1", 2), got); diff != "" || gotRev != next {
		t.Errorf("revision %d, want %d (-want +got):\n%s", gotRev, next, diff)
	}
	wantErr(t, b.Delete(ctx, run1, rev), loop.ErrConflict)
	must(t, b.Delete(ctx, run1, next))
	_, _, err = b.Load(ctx, run1)
	wantErr(t, err, loop.ErrNotFound)
	_, err = b.Save(ctx, head("r1", 3), next)
	wantErr(t, err, loop.ErrConflict) // a zombie does not bring it back
	_, err = b.Save(ctx, head("r1", 1), 0)
	must(t, err)
}

func TestHeadOverMarkerOfAnotherProgram(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	publish(t, nc, &nats.Msg{Subject: "$KV.AGENT_RUNS.acme.r1", Header: nats.Header{"KV-Operation": {"DEL"}}})
	_, _, err := b.Load(bustest.Context(t), run1)
	wantErr(t, err, loop.ErrNotFound)
	_, err = b.Save(bustest.Context(t), head("r1", 1), 0)
	must(t, err)
}

func TestHeadRace(t *testing.T) {
	b := bustest.Start(t)
	var rev uint64
	for n := range uint64(20) {
		var wg sync.WaitGroup
		won := make(chan uint64, 8)
		for range 8 {
			wg.Go(func() {
				next, err := b.Save(bustest.Context(t), head("r1", n), rev)
				if err == nil {
					won <- next
				} else if !errors.Is(err, loop.ErrConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d writes won", len(won))
		}
		rev = <-won
	}
}

func TestUnreadableAndNewerHeads(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	for run, body := range map[string]string{
		"bad": "not JSON", "ack": `{"stream":"AGENT_TASKS","seq":7}`,
		"other": `{"v":1,"tenant":"acme","run":"r9","status":"done"}`, "typed": `{"v":1,"tenant":"acme","run":"typed","n":"x"}`,
	} {
		publish(t, nc, &nats.Msg{Subject: "$KV.AGENT_RUNS.acme." + run, Data: []byte(body)})
		h, rev, err := b.Load(ctx, loop.RunID{Tenant: "acme", Run: run})
		if err != nil || !h.Unreadable || rev == 0 {
			t.Errorf("%s: %+v at %d, %v", run, h, rev, err)
		}
		_, err = b.Save(ctx, head(run, 1), rev)
		must(t, err)
	}
	publish(t, nc, &nats.Msg{
		Subject: "$KV.AGENT_RUNS.acme.new", Data: []byte(`{"v":99,"tenant":"acme","run":"new","n":{"now":"an object"}}`),
	})
	_, _, err := b.Load(ctx, loop.RunID{Tenant: "acme", Run: "new"})
	wantErr(t, err, loop.ErrNewer)
	heads, _, err := b.List(ctx, "acme", 0, 100)
	must(t, err)
	if last := heads[len(heads)-1]; last.Run != "new" || last.V != 99 {
		t.Errorf("newest of the list is %+v", last)
	}
}

func TestListHeads(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	revs := map[string]uint64{}
	for i := range 10 {
		run := fmt.Sprint("r", i)
		rev, err := b.Save(ctx, head(run, 1), 0)
		must(t, err)
		revs[run] = rev
	}
	foreign := head("x", 1)
	foreign.Tenant = "acme2"
	_, err := b.Save(ctx, foreign, 0)
	must(t, err)
	must(t, b.Delete(ctx, loop.RunID{Tenant: "acme", Run: "r3"}, revs["r3"]))
	_, err = b.Save(ctx, head("r0", 2), revs["r0"])
	must(t, err)
	var got []string
	var after uint64
	for {
		heads, next, err := b.List(ctx, "acme", after, 4)
		must(t, err)
		for _, h := range heads {
			got = append(got, fmt.Sprint(h.Run, "/", h.N))
		}
		if after = next; next == 0 {
			break
		}
		got = append(got, "|")
	}
	want := []string{"r1/1", "r2/1", "r4/1", "r5/1", "|", "r6/1", "r7/1", "r8/1", "r9/1", "|", "r0/2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSessions(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	_, _, err := b.LoadSession(ctx, "acme", "chat-9")
	wantErr(t, err, loop.ErrNotFound)
	want := loop.Session{
		V: 1, Runs: []string{"r1"},
		Messages: []loop.SessionMessage{{Role: "user", Text: "hi", Run: "r1", N: 1, Time: time.Unix(1_800_000_000, 0).UTC()}},
		Summary:  &loop.SessionSummary{Text: "They said hi.", Run: "r1", N: 1, Time: time.Unix(1_800_000_001, 0).UTC()},
	}
	must(t, b.SaveSession(ctx, "acme", "chat-9", want, 0))
	wantErr(t, b.SaveSession(ctx, "acme", "chat-9", want, 0), loop.ErrConflict)
	got, rev, err := b.LoadSession(ctx, "acme", "chat-9")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, b.SaveSession(ctx, "acme", "chat-9", want, rev))
	wantErr(t, b.SaveSession(ctx, "acme", "chat-9", want, rev), loop.ErrConflict)

	for _, stray := range []string{`{"stream":"X","seq":1}`, `{"v":1,"summary":{"text":"x","run":"a.b"}}`} {
		publish(t, nc, &nats.Msg{Subject: "$KV.AGENT_SESSIONS.acme.chat-9", Data: []byte(stray)})
		got, rev, err = b.LoadSession(ctx, "acme", "chat-9")
		must(t, err)
		if diff := cmp.Diff(loop.Session{V: 1}, got); diff != "" {
			t.Errorf("overwritten by a stranger (-want +got):\n%s", diff)
		}
	}
	must(t, b.SaveSession(ctx, "acme", "chat-9", want, rev))
	publish(t, nc, &nats.Msg{Subject: "$KV.AGENT_SESSIONS.acme.new", Data: []byte(`{"v":2}`)})
	_, _, err = b.LoadSession(ctx, "acme", "new")
	wantErr(t, err, loop.ErrNewer)
	if _, _, err := b.LoadSession(ctx, "acme", "*"); err == nil {
		t.Error("a wildcard was accepted for a session")
	}
}

func TestBlobs(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i * i >> 8)
	}
	must(t, b.PutBlob(ctx, "acme/r1/c1", big))
	must(t, b.PutBlob(ctx, "acme/r1/c2", []byte("two")))
	must(t, b.PutBlob(ctx, "acme/r11/c1", []byte("of another run")))
	must(t, b.PutBlob(ctx, "acme/r1/c2", []byte("two again")))
	publish(t, nc, &nats.Msg{Subject: "$O.AGENT_BLOBS.M.eA==", Data: []byte(`{"stream":"X","seq":1}`)})
	got, err := b.GetBlob(ctx, "acme/r1/c1")
	must(t, err)
	if !bytes.Equal(big, got) {
		t.Error("blob came back different")
	}
	got, err = b.GetBlob(ctx, "acme/r1/c2")
	if err != nil || string(got) != "two again" {
		t.Errorf("replaced blob is %q, %v", got, err)
	}
	must(t, b.DeleteBlobs(ctx, run1))
	must(t, b.DeleteBlobs(ctx, run1))
	for _, name := range []string{"acme/r1/c1", "acme/r1/c2", "acme/r1/never"} {
		_, err = b.GetBlob(ctx, name)
		wantErr(t, err, loop.ErrNotFound)
	}
	got, err = b.GetBlob(ctx, "acme/r11/c1")
	if err != nil || string(got) != "of another run" {
		t.Errorf("blob of another run is %q, %v", got, err)
	}
	must(t, b.PutBlob(ctx, "acme/r1/c1", []byte("a new run")))
	got, err = b.GetBlob(ctx, "acme/r1/c1")
	if err != nil || string(got) != "a new run" {
		t.Errorf("blob of the new run is %q, %v", got, err)
	}
}

// TestCatalogues stores what tools say. What is there stays, whatever somebody stores under its name.
func TestCatalogues(t *testing.T) {
	b := bustest.Open(t, bustest.Connect(t, bustest.Server(t)), bus.Options{})
	ctx := bustest.Context(t)
	digest := strings.Repeat("0a", 32)
	must(t, b.PutCatalogue(ctx, digest, []byte("tools")))
	must(t, b.PutCatalogue(ctx, digest, []byte("other tools")))
	got, err := b.GetCatalogue(ctx, digest)
	if err != nil || string(got) != "tools" {
		t.Errorf("the catalogue is %q, %v", got, err)
	}
	for _, unknown := range []string{strings.Repeat("0b", 32), "", "*", ">", digest + ".x"} {
		if _, err := b.GetCatalogue(ctx, unknown); !errors.Is(err, loop.ErrNotFound) {
			t.Errorf("catalogue %q: %v", unknown, err)
		}
	}
}
