package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestAppendAndRead(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	want := []loop.Event{
		event(run1, 1, loop.Facts{Facts: []loop.Fact{{Text: "likes tea", Score: 0.5}}}),
		event(run1, 2, loop.Thought{Thought: "<&>"}),
		event(run1, 3, loop.Answer{Answer: "42"}),
	}
	mustAppend(t, b, 0, event(loop.RunID{Tenant: "acme", Run: "r2"}, 1, loop.Note{Text: "another run"}))
	seq := mustAppend(t, b, 0, want...)
	for i := range want {
		want[i].Seq = uint64(i) + 2
	}
	page, err := b.Read(ctx, run1, 0)
	must(t, err)
	if diff := cmp.Diff(loop.JournalPage{Events: want, Last: seq}, page); diff != "" {
		t.Errorf("whole journal (-want +got):\n%s", diff)
	}
	page, err = b.Read(ctx, run1, 3)
	must(t, err)
	if diff := cmp.Diff(loop.JournalPage{Events: want[2:], Last: seq}, page); diff != "" {
		t.Errorf("journal after 3 (-want +got):\n%s", diff)
	}
	page, err = b.Read(ctx, run1, seq)
	must(t, err)
	if diff := cmp.Diff(loop.JournalPage{Last: seq}, page); diff != "" {
		t.Errorf("nothing new (-want +got):\n%s", diff)
	}
	page, err = b.Page(ctx, run1, loop.RoadUser, 0, 10)
	must(t, err)
	if diff := cmp.Diff(loop.JournalPage{Events: want[2:], Last: seq}, page); diff != "" {
		t.Errorf("user road (-want +got):\n%s", diff)
	}
	page, err = b.Page(ctx, loop.RunID{Tenant: "acme"}, "", 0, 3)
	must(t, err)
	if len(page.Events) != 3 || page.Last != 3 {
		t.Errorf("first 3 of the tenant: %d events up to %d", len(page.Events), page.Last)
	}
}

func TestReadAcrossBatches(t *testing.T) {
	b := bustest.Start(t)
	const n = 700
	var seq uint64
	for i := range uint64(n) {
		seq = mustAppend(t, b, seq, event(run1, i+1, loop.Note{Text: strings.Repeat("x", 100)}))
	}
	page, err := b.Read(bustest.Context(t), run1, 0)
	must(t, err)
	if len(page.Events) != n || page.Events[n-1].N != n || page.Last != seq {
		t.Errorf("read %d events up to %d, want %d up to %d", len(page.Events), page.Last, n, seq)
	}
}

func TestReadLargeEvents(t *testing.T) {
	b := bustest.Start(t)
	var seq uint64
	for i := range uint64(40) { // more than fits into one batch
		seq = mustAppend(t, b, seq, event(run1, i+1, loop.Note{Text: strings.Repeat("x", bus.MaxEvent-600)}))
	}
	page, err := b.Read(bustest.Context(t), run1, 0)
	must(t, err)
	if len(page.Events) != 40 {
		t.Errorf("read %d events, want 40", len(page.Events))
	}
}

// Two subjects, one history: of all that append after the same event one wins, whatever road it takes.
func TestAppendRace(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	var seq uint64
	for n := uint64(1); n <= 30; n++ {
		var wg sync.WaitGroup
		won := make(chan uint64, 8)
		for i := range 8 {
			var data loop.Data = loop.Note{Text: fmt.Sprint(i)}
			if i%2 == 0 {
				data = loop.Question{Text: fmt.Sprint(i)}
			}
			wg.Go(func() {
				stored, err := b.Append(ctx, event(run1, n, data), seq)
				switch {
				case err == nil:
					won <- stored
				case !errors.Is(err, loop.ErrConflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d appends of event %d won", len(won), n)
		}
		seq = <-won
	}
	page, err := b.Read(ctx, run1, 0)
	must(t, err)
	for i, e := range page.Events {
		if e.N != uint64(i)+1 {
			t.Fatalf("event %d has n %d", i+1, e.N)
		}
	}
	if len(page.Events) != 30 {
		t.Errorf("%d events, want 30", len(page.Events))
	}
}

// Whoever repeats an append that was stored, because its answer got lost, is told so, also when more followed.
func TestAppendRepeated(t *testing.T) {
	b := bustest.Start(t)
	first, second := event(run1, 1, loop.Note{Text: "a"}), event(run1, 2, loop.Note{Text: "b"})
	mustAppend(t, b, 0, first, second)
	for _, c := range []struct {
		event    loop.Event
		expected uint64
		want     uint64
	}{{first, 0, 1}, {second, 1, 2}} {
		got, err := b.Append(bustest.Context(t), c.event, c.expected)
		if err != nil || got != c.want {
			t.Errorf("repeat of event %d: %d, %v, want %d", c.event.N, got, err, c.want)
		}
	}
	_, err := b.Append(bustest.Context(t), event(run1, 2, loop.Note{Text: "c"}), 1)
	wantErr(t, err, loop.ErrConflict)
}

// The answer of the server is lost on its way: the journal says what became of the append.
func TestAppendUnanswered(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	ctx, cancel := context.WithCancel(bustest.Context(t))
	cancel() // gives up before the answer is there
	stored := event(run1, 1, loop.Note{Text: "a"})
	mustAppend(t, b, 0, stored)
	if seq, err := b.Append(ctx, stored, 0); err != nil || seq != 1 {
		t.Errorf("append that was stored: %d, %v", seq, err)
	}
	_, err := b.Append(ctx, event(run1, 1, loop.Note{Text: "b"}), 0)
	wantErr(t, err, loop.ErrConflict)
	_, err = b.Append(ctx, event(run1, 9, loop.Note{Text: "never sent"}), 1)
	if err == nil || errors.Is(err, loop.ErrConflict) || !errors.Is(err, context.Canceled) {
		t.Errorf("append of unknown outcome: %v", err)
	}
	server.Shutdown()
	_, err = b.Append(bustest.Context(t), event(run1, 2, loop.Note{Text: "c"}), 1)
	if err == nil || errors.Is(err, loop.ErrConflict) {
		t.Errorf("append without a server: %v", err)
	}
}

func TestForeignMessagesInJournal(t *testing.T) {
	server := bustest.Server(t)
	nc := bustest.Connect(t, server)
	b := bustest.Open(t, nc, bus.Options{})
	other, err := event(loop.RunID{Tenant: "acme", Run: "r2"}, 1, loop.Note{Text: "moved"}).Encode()
	must(t, err)
	mustAppend(t, b, 0, event(run1, 1, loop.Note{Text: "ours"}))
	for _, body := range []string{"", "not JSON", `{"stream":"AGENT_TASKS","seq":3}`, string(other), `{"specversion":"1.0"}`} {
		publish(t, nc, &nats.Msg{Subject: "agent.event.acme.r1.step", Data: []byte(body)})
	}
	for _, status := range []string{"204", "404", "503"} { // what a server says at the end of a batch
		publish(t, nc, &nats.Msg{
			Subject: "agent.event.acme.r1.user",
			Header:  nats.Header{"Status": {status}, "Description": {"EOB"}},
		})
	}
	for _, h := range []nats.Header{ // what a server adds to a message in a batch
		{"Nats-Num-Pending": {"0"}},
		{"Nats-Num-Pending": {"x"}},
		{"Nats-Sequence": {"999"}},
		{"Nats-Sequence": {"1"}},
		{"Nats-Sequence": {"x"}},
		{"Nats-Subject": {"agent.event.acme.r2.step"}},
		{"Nats-Time-Stamp": {"x"}},
	} {
		publish(t, nc, &nats.Msg{Subject: "agent.event.acme.r1.step", Header: h, Data: other})
	}
	page, err := b.Read(bustest.Context(t), run1, 0)
	must(t, err)
	if len(page.Events) != 1 || page.Foreign != 15 || page.Last != 16 {
		t.Fatalf("%d events, %d foreign up to %d; want 1, 15, 16", len(page.Events), page.Foreign, page.Last)
	}
	mustAppend(t, b, page.Last, event(run1, 2, loop.Note{Text: "goes on"}))
	page, err = b.Read(bustest.Context(t), run1, 0)
	must(t, err)
	if len(page.Events) != 2 || page.Foreign != 15 {
		t.Errorf("%d events, %d foreign; want 2 and 15", len(page.Events), page.Foreign)
	}
}

func TestEventOfNewerVersion(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	mustAppend(t, b, 0, event(run1, 1, loop.Note{Text: "known"}))
	publish(t, nc, &nats.Msg{Subject: "agent.event.acme.r1.step", Data: []byte(`{"specversion": "1.0",
		"id": "acme/r1/2", "type": "agent.telepathy", "source": "/x", "subject": "r1", "tenant": "acme", "n": 2, "data": {}}`)})
	_, err := b.Read(bustest.Context(t), run1, 0)
	wantErr(t, err, loop.ErrNewer)
	page, err := b.Page(bustest.Context(t), run1, "", 0, 10)
	if err != nil || len(page.Events) != 1 || page.Last != 2 || page.Foreign != 0 {
		t.Errorf("page: %d events up to %d, %d foreign, %v", len(page.Events), page.Last, page.Foreign, err)
	}
}

func TestPurge(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	mustAppend(t, b, 0, event(run1, 1, loop.Note{}), event(run1, 2, loop.Note{}))
	other := loop.RunID{Tenant: "acme", Run: "r11"}
	mustAppend(t, b, 0, event(other, 1, loop.Note{}))
	must(t, b.Purge(ctx, run1, 0))
	must(t, b.Purge(ctx, run1, 1))
	page, err := b.Read(ctx, run1, 0)
	must(t, err)
	if len(page.Events) != 1 || page.Events[0].N != 2 {
		t.Errorf("after purging the first event: %d events", len(page.Events))
	}
	must(t, b.Purge(ctx, run1, 2))
	mustAppend(t, b, 0, event(run1, 1, loop.Note{})) // an empty journal expects 0
	page, err = b.Read(ctx, other, 0)
	if err != nil || len(page.Events) != 1 {
		t.Errorf("the other run has %d events, %v", len(page.Events), err)
	}
}

func TestAppendRefuses(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	_, err := b.Append(ctx, event(run1, 1, loop.Note{Text: strings.Repeat("x", bus.MaxEvent)}), 0)
	if err == nil || !strings.Contains(err.Error(), "more than the 524288") {
		t.Errorf("too large: %v", err)
	}
	for _, id := range []loop.RunID{{}, {Tenant: "acme", Run: "*"}, {Tenant: ">", Run: "r"}, {Tenant: "a.b", Run: "r"}} {
		if _, err := b.Append(ctx, event(id, 1, loop.Note{}), 0); err == nil {
			t.Errorf("append for %q succeeded", id)
		}
		if err := b.Purge(ctx, id, 9); err == nil {
			t.Errorf("purge of %q succeeded", id)
		}
		if _, err := b.Read(ctx, id, 0); err == nil {
			t.Errorf("read of %q succeeded", id)
		}
	}
}

// BenchmarkAppend measures events of 1 KB, 32 runs at a time.
func BenchmarkAppend(bb *testing.B) {
	b := bustest.Start(bb)
	var next sync.Mutex
	var runs int
	text := strings.Repeat("x", 700)
	bb.SetParallelism(16) // times GOMAXPROCS
	bb.RunParallel(func(pb *testing.PB) {
		next.Lock()
		runs++
		id := loop.RunID{Tenant: "acme", Run: fmt.Sprint("r", runs)}
		next.Unlock()
		var n, seq uint64
		for pb.Next() {
			n++
			var err error
			if seq, err = b.Append(context.Background(), event(id, n, loop.Note{Text: text}), seq); err != nil {
				bb.Error(err)
				return
			}
		}
	})
}

// BenchmarkRead measures the reading of a run of 6 events among others.
func BenchmarkRead(bb *testing.B) {
	b := bustest.Start(bb)
	for i := range 200 {
		id := loop.RunID{Tenant: "acme", Run: fmt.Sprint("r", i)}
		var seq uint64
		for n := range uint64(6) {
			seq = mustAppend(bb, b, seq, event(id, n+1, loop.Note{Text: strings.Repeat("x", 700)}))
		}
	}
	for bb.Loop() {
		page, err := b.Read(context.Background(), loop.RunID{Tenant: "acme", Run: "r7"}, 0)
		if err != nil || len(page.Events) != 6 {
			bb.Fatal(len(page.Events), err)
		}
	}
}

func TestConflictCodes(t *testing.T) {
	for code, want := range map[jetstream.ErrorCode]bool{10071: true, 10158: true, 10163: true, 10164: true, 10077: false, 10059: false} {
		if got := bus.IsConflict(fmt.Errorf("append: %w", &jetstream.APIError{ErrorCode: code})); got != want {
			t.Errorf("code %d is a conflict: %t", code, got)
		}
	}
}
