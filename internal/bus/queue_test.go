package bus_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestDeliveries(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	_, err := b.PublishTask(ctx, "acme", []byte("task"), "id-1", "")
	must(t, err)
	_, err = b.PublishReply(ctx, run1, []byte("reply"), "")
	must(t, err)
	_, err = b.PublishControl(ctx, run1, []byte("control"), "")
	must(t, err)
	publish(t, nc, &nats.Msg{Subject: "agent.task.we ird"[:13] + "ß", Data: []byte("strange tenant")})
	untilKnown(t, b, "AGENT_TASKS", 4)
	var got []string
	for len(got) < 4 {
		d := fetchOne(t, b.Inbox())
		got = append(got, strings.Join([]string{string(d.Kind), d.Tenant, d.Run, string(d.Body)}, " "))
		if d.Stream != "AGENT_TASKS" || d.Seq == 0 || d.Seq > 4 || d.Attempt != 1 || time.Since(d.Time) > time.Minute {
			t.Errorf("delivery of %s is number %d of %s, attempt %d", d.Subject, d.Seq, d.Stream, d.Attempt)
		}
		must(t, d.Settler.Ack(ctx))
	}
	want := []string{"control acme r1 control", "reply acme r1 reply", "task acme  task", "task weß  strange tenant"}
	slices.Sort(got) // lanes have no order among them
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nothing(t, b.Inbox(), 100*time.Millisecond)
}

func TestDefaultID(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	ids := map[string]bool{}
	for _, msgID := range []string{"order-4417", "order 4417", "_x", "", ""} {
		_, err := b.PublishTask(ctx, "acme", []byte("{}"), msgID, "")
		must(t, err)
		d := fetchOne(t, b.Inbox())
		must(t, d.Settler.Nak(0))
		again := fetchOne(t, b.Inbox())
		if again.DefaultID != d.DefaultID || !loop.ValidID(d.DefaultID) || ids[d.DefaultID] {
			t.Errorf("message id %q: run id %q, then %q", msgID, d.DefaultID, again.DefaultID)
		}
		if msgID == "order-4417" && d.DefaultID != msgID {
			t.Errorf("a valid message id became %q", d.DefaultID)
		}
		ids[d.DefaultID] = true
		must(t, again.Settler.Ack(ctx))
	}
	_, err := b.PublishReply(ctx, run1, []byte("{}"), "")
	must(t, err)
	if d := fetchOne(t, b.Inbox()); d.DefaultID != "" {
		t.Errorf("a reply has the run id %q for a task", d.DefaultID)
	}
}

// A message without a body may carry headers that look like words of the server.
func TestDeliveryThatLooksLikeAStatus(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	for _, status := range []string{"100", "404", "408", "409", "503"} {
		publish(t, nc, &nats.Msg{
			Subject: "agent.task.acme", Header: nats.Header{"Status": {status}, "Description": {"Consumer Deleted"}},
		})
		d := fetchOne(t, b.Inbox())
		if d.Tenant != "acme" || len(d.Body) != 0 {
			t.Errorf("status %s: %+v", status, d)
		}
		must(t, d.Settler.Ack(bustest.Context(t)))
	}
}

func TestHugeTask(t *testing.T) {
	b := bustest.Start(t)
	body := make([]byte, 1_000_000)
	_, err := b.PublishTask(bustest.Context(t), "acme", body, "", "")
	must(t, err)
	if d := fetchOne(t, b.Inbox()); len(d.Body) != len(body) {
		t.Errorf("%d bytes arrived", len(d.Body))
	}
}

func TestFetchSeveral(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	for range 10 {
		must(t, b.Wake(ctx, run1, "", loop.Wake{}))
	}
	for _, want := range []int{7, 3} {
		got := 0
		must(t, b.Wakes().Fetch(ctx, want, func(loop.Delivery) { got++ }))
		if got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	must(t, b.Wakes().Fetch(ctx, 0, func(loop.Delivery) { t.Error("asked for none") }))
}

func TestNakAndRedelivery(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	must(t, b.Wake(ctx, run1, "k", loop.Wake{Seq: 5}))
	first := fetchOne(t, b.Wakes())
	must(t, first.Settler.Nak(0))
	second := fetchOne(t, b.Wakes())
	if second.Attempt != 2 || second.Seq != first.Seq {
		t.Fatalf("second delivery is %+v", second)
	}
	given := time.Now()
	must(t, second.Settler.Nak(500*time.Millisecond))
	third := fetchOne(t, b.Wakes())
	if waited := time.Since(given); third.Attempt != 3 || waited < 400*time.Millisecond {
		t.Fatalf("delivery %d came after %s", third.Attempt, waited)
	}
	var w loop.Wake
	must(t, json.Unmarshal(third.Body, &w))
	if diff := cmp.Diff(loop.Wake{Seq: 5}, w); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	fourth := fetchOne(t, b.Wakes()) // the third was left alone until its lease passed
	if fourth.Attempt != 4 {
		t.Fatalf("delivery %d", fourth.Attempt)
	}
	must(t, third.Settler.Extend(ctx)) // a zombie is confirmed
	must(t, third.Settler.Ack(ctx))    // and its acknowledgement counts
	gone(t, b, fourth.Seq)
	must(t, fourth.Settler.Ack(ctx))
}

// gone waits until a wake-up is not pending any more: an acknowledgement is not confirmed, its word is on its way.
func gone(t *testing.T, b *bus.Bus, seq uint64) {
	t.Helper()
	ctx := bustest.Context(t)
	for pending := true; pending; {
		var err error
		if pending, err = b.Pending(ctx, seq); err != nil {
			t.Fatalf("wake-up %d is still pending: %v", seq, err)
		}
	}
}

func TestExtendKeepsTheLease(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	must(t, b.Wake(ctx, run1, "k", loop.Wake{}))
	d := fetchOne(t, b.Wakes())
	until := time.Now().Add(2 * bustest.Lease)
	for time.Now().Before(until) {
		must(t, d.Settler.Extend(ctx))
		nothing(t, b.Wakes(), bustest.Lease/3)
	}
	must(t, d.Settler.Ack(ctx))
}

func TestFetchEndsWithItsContext(t *testing.T) {
	b := bustest.Start(t)
	soon(t, "to end with its context", func() {
		ctx, cancel := context.WithCancel(bustest.Context(t))
		defer cancel()
		must(t, b.Wake(ctx, run1, "", loop.Wake{}))
		must(t, b.Wakes().Fetch(ctx, 5, func(d loop.Delivery) {
			must(t, d.Settler.Ack(ctx))
			cancel()
		}))
	})
}

// soon fails where each of several calls takes about as long as a pull may wait (two seconds): those that wait for its end do,
// those that don't may once be slow on a machine that has other work.
func soon(t *testing.T, what string, call func()) {
	t.Helper()
	quickest := time.Hour
	for i := 0; i < 5 && quickest > time.Second; i++ {
		began := time.Now()
		call()
		quickest = min(quickest, time.Since(began))
	}
	if quickest > time.Second {
		t.Errorf("it took %s and more %s", quickest, what)
	}
}

// What arrives while a fetch gives up goes to the next one at once, not after a lease.
func TestFetchHandsBackWhatArrivesTooLate(t *testing.T) {
	b := bustest.Start(t)
	late := 0
	for range 20 {
		ctx, cancel := context.WithCancel(bustest.Context(t))
		taken := make(chan loop.Delivery, 1)
		published := make(chan error, 1)
		go func() {
			err := b.Wake(bustest.Context(t), run1, "", loop.Wake{})
			cancel()
			published <- err
		}()
		must(t, b.Wakes().Fetch(ctx, 5, func(d loop.Delivery) { taken <- d }))
		must(t, <-published)
		if len(taken) == 0 {
			start := time.Now()
			taken <- fetchOne(t, b.Wakes())
			if time.Since(start) > bustest.Lease*9/10 {
				late++
			}
		}
		d := <-taken
		must(t, d.Settler.Ack(bustest.Context(t)))
	}
	if late > 1 { // one may be the machine's
		t.Errorf("%d of 20 messages came after a lease", late)
	}
}

func TestFetchFromDeletedConsumer(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	js, err := jetstream.New(bustest.Connect(t, server))
	must(t, err)
	ctx := bustest.Context(t)
	done := make(chan error)
	go func() {
		done <- b.Wakes().Fetch(ctx, 1, func(loop.Delivery) {})
	}()
	waitForPull(t, js)
	must(t, js.DeleteConsumer(ctx, "AGENT_WAKE", "wakes"))
	wantErr(t, <-done, bus.ErrNoConsumer)
	wantErr(t, b.Wakes().Fetch(ctx, 1, func(loop.Delivery) {}), bus.ErrNoConsumer)
	must(t, js.DeleteStream(ctx, "AGENT_TASKS"))
	wantErr(t, b.Inbox().Fetch(ctx, 1, func(loop.Delivery) {}), bus.ErrNoConsumer)
	must(t, b.Setup(ctx))
	must(t, b.Wake(ctx, run1, "", loop.Wake{}))
	fetchOne(t, b.Wakes())
}

// waitForPull waits until the server knows of somebody who waits for wake-ups.
func waitForPull(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx := bustest.Context(t)
	for {
		c, err := js.Consumer(ctx, "AGENT_WAKE", "wakes")
		must(t, err)
		if c.CachedInfo().NumWaiting > 0 {
			return
		}
	}
}

func TestFetchWithoutServer(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	server.Shutdown()
	start := time.Now()
	if err := b.Wakes().Fetch(bustest.Context(t), 1, func(loop.Delivery) {}); err == nil {
		t.Error("fetch without a server succeeded")
	}
	if err := b.Ready(bustest.Context(t)); err == nil {
		t.Error("ready without a server")
	}
	if took := time.Since(start); took > 30*time.Second { // a hang: the deadline of the context is minutes away
		t.Errorf("it took %s", took)
	}
}

// A pull that is waiting when the server goes away ends without an error, and the next one waits for the connection and asks
// as soon as it is back: nobody has to find out by the server's silence.
func TestFetchGoesOnWithTheConnection(t *testing.T) {
	start := startAgain(t)
	server := start()
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL()})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	must(t, b.Wake(ctx, run1, "", loop.Wake{}))
	taken := make(chan loop.Delivery, 8)
	ended := make(chan error, 1)
	fetch := func() { ended <- b.Wakes().Fetch(ctx, 2, func(d loop.Delivery) { taken <- d }) }
	go fetch()
	d := <-taken
	must(t, d.Settler.Ack(ctx))
	must(t, nc.Flush())
	server.Shutdown()
	must(t, <-ended)
	go fetch()
	start()
	for err := b.Wake(ctx, run1, "", loop.Wake{}); err != nil; err = b.Wake(ctx, run1, "", loop.Wake{}) {
		must(t, ctx.Err())
	}
	for len(taken) == 0 {
		select {
		case err := <-ended: // the server takes its time, or a pull's time is up
			if err != nil && ctx.Err() == nil {
				t.Logf("while the server is away: %v", err)
			}
			go fetch()
		case d := <-taken:
			must(t, d.Settler.Ack(ctx))
			must(t, <-ended)
			return
		}
	}
}

func TestWakeKeys(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	other := loop.RunID{Tenant: "acme", Run: "r2"}
	must(t, b.Wake(ctx, run1, "k", loop.Wake{}))
	must(t, b.Wake(ctx, run1, "k", loop.Wake{}))
	must(t, b.Wake(ctx, other, "k", loop.Wake{}))
	must(t, b.Wake(ctx, loop.RunID{Tenant: "acme", Run: "_learn"}, "k", loop.Wake{}))
	var got []string
	for range 3 {
		d := fetchOne(t, b.Wakes())
		got = append(got, d.RunID.String())
		must(t, d.Settler.Ack(ctx))
	}
	if diff := cmp.Diff([]string{"acme/r1", "acme/r2", "acme/_learn"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nothing(t, b.Wakes(), 100*time.Millisecond)
	for _, id := range []loop.RunID{{Tenant: "a", Run: "*"}, {Tenant: "", Run: "r"}, {Tenant: "a", Run: "__x"}} {
		if err := b.Wake(ctx, id, "", loop.Wake{}); err == nil {
			t.Errorf("wake-up of %q was accepted", id)
		}
	}
}

func TestPending(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	must(t, b.Wake(ctx, run1, "k", loop.Wake{}))
	must(t, b.Schedule(ctx, run1, "timeout", time.Now().Add(time.Hour)))
	d := fetchOne(t, b.Wakes())
	for seq, want := range map[uint64]bool{0: false, d.Seq: true, d.Seq + 1: false /* the schedule */, 99: false} {
		if got, err := b.Pending(ctx, seq); err != nil || got != want {
			t.Errorf("pending(%d) is %t, %v", seq, got, err)
		}
	}
	must(t, d.Settler.Ack(ctx))
	gone(t, b, d.Seq)
}

func TestSchedules(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	start := time.Now()
	must(t, b.Schedule(ctx, run1, "q-1", start.Add(time.Hour)))
	must(t, b.Schedule(ctx, run1, "q-1", start.Add(1200*time.Millisecond))) // replaces
	must(t, b.Schedule(ctx, run1, "timeout", start.Add(300*time.Millisecond)))
	must(t, b.Schedule(ctx, loop.RunID{Tenant: "acme", Run: "r2"}, "timeout", start.Add(300*time.Millisecond)))
	must(t, b.Unschedule(ctx, run1, "timeout"))
	must(t, b.Unschedule(ctx, run1, "never-was"))
	first := fetchOne(t, b.Wakes())
	if first.Kind != loop.DeliverWake || first.Run != "r2" || time.Since(start) < 300*time.Millisecond {
		t.Errorf("first is %s after %s", first.RunID, time.Since(start))
	}
	second := fetchOne(t, b.Wakes())
	if second.Run != "r1" || time.Since(start) < 1200*time.Millisecond { // the first schedule was for an hour later
		t.Errorf("second is %s after %s", second.RunID, time.Since(start))
	}
	var w loop.Wake
	must(t, json.Unmarshal(second.Body, &w))
	must(t, b.Schedule(ctx, run1, "late", start.Add(-time.Hour))) // a time that has passed
	third := fetchOne(t, b.Wakes())
	if third.Run != "r1" {
		t.Errorf("third is %s", third.RunID)
	}
	nothing(t, b.Wakes(), 300*time.Millisecond)
	if err := b.Schedule(ctx, run1, "a.b", start); err == nil {
		t.Error("a name of two tokens was accepted")
	}
	if err := b.Unschedule(ctx, run1, "*"); err == nil {
		t.Error("a wildcard was accepted")
	}
}

func TestBacklog(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	for range 2 {
		must(t, b.Wake(ctx, run1, "", loop.Wake{}))
	}
	must(t, b.Schedule(ctx, run1, "timeout", time.Now().Add(time.Hour))) // is no backlog
	_, err := b.PublishTask(ctx, "acme", []byte("{}"), "", "")
	must(t, err)
	must(t, b.Bury(ctx, fetchOne(t, b.Inbox()), "invalid_task", "test"))
	fetchOne(t, b.Wakes())
	// What a fetch did not want is on its way back for a moment.
	diff := "never looked"
	for ctx.Err() == nil && diff != "" {
		got, err := b.Backlog(ctx)
		must(t, err)
		diff = cmp.Diff(bus.Backlog{Inbox: 1, Wakes: 2, Dead: 1}, got)
	}
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHear(t *testing.T) {
	b := bustest.Start(t)
	heard := make(chan loop.RunID, 4)
	stop, err := b.Hear(func(id loop.RunID) { heard <- id })
	must(t, err)
	_, err = b.PublishControl(bustest.Context(t), run1, []byte(`{"op":"cancel"}`), "")
	must(t, err)
	select {
	case id := <-heard:
		if id != run1 {
			t.Errorf("heard %s", id)
		}
	case <-time.After(30 * time.Second):
		t.Error("heard nothing")
	}
	stop()
}

func TestHeadersOfStrangersHaveNoPower(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	_, err := b.PublishTask(ctx, "acme", []byte("keep"), "", "")
	must(t, err)
	for _, h := range []nats.Header{
		{"Nats-Rollup": {"all"}},
		{"Nats-Schedule": {"@at 2020-01-01T00:00:00Z"}, "Nats-Schedule-Target": {"agent.control.other.r1"}},
		{"Nats-TTL": {"1s"}},
	} {
		answer, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: "agent.task.evil", Header: h, Data: []byte("x")})
		must(t, err)
		if !strings.Contains(string(answer.Data), `"error"`) {
			t.Errorf("a task with %v was stored: %s", h, answer.Data)
		}
	}
	if d := fetchOne(t, b.Inbox()); string(d.Body) != "keep" {
		t.Errorf("got %q", d.Body)
	}
}
