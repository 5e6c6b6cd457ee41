package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// door answers everything in the inbox with a status, as the real one does.
func door(t *testing.T, b *bus.Bus, status string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			err := b.Inbox().Fetch(ctx, 10, func(d loop.Delivery) {
				b.Tell(d, status, string(d.Kind))
				if err := d.Settler.Nak(time.Hour); err != nil { // an acknowledgement would wait, and take must not
					t.Error(err)
				}
			})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func serve(t *testing.T, b *bus.Bus, api bus.API) {
	t.Helper()
	s, err := b.Serve(api)
	must(t, err)
	t.Cleanup(s.Stop)
}

// worker is a bus with the API served, and a client that speaks for tenant acme.
func worker(t *testing.T) (*bus.Bus, *bus.Client, *nats.Conn) {
	t.Helper()
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	api := b.Queries()
	api.Submit = func(ctx context.Context, tenant string, body []byte) (any, error) {
		if !json.Valid(body) {
			return nil, &bus.APIError{Code: 400, Message: "the task is not JSON"}
		}
		if _, err := b.PublishTask(ctx, tenant, body, "", ""); err != nil {
			return nil, err
		}
		return bus.SubmitAnswer{Run: "r1", Status: "accepted"}, nil
	}
	serve(t, b, api)
	nc := bustest.Connect(t, server)
	client, err := bus.NewClient(nc, "", "acme")
	must(t, err)
	return b, client, nc
}

func wantCode(t *testing.T, err error, code int) {
	t.Helper()
	var api *bus.APIError
	if !errors.As(err, &api) || api.Code != code {
		t.Errorf("error is %v, want code %d", err, code)
	}
}

func TestSubmitReplyControl(t *testing.T) {
	b, client, _ := worker(t)
	ctx := bustest.Context(t)
	got, err := client.Submit(ctx, []byte(`{"goal":"g"}`))
	if err != nil || got != (bus.SubmitAnswer{Run: "r1", Status: "accepted"}) {
		t.Errorf("submit: %+v, %v", got, err)
	}
	_, err = client.Submit(ctx, []byte("{"))
	wantCode(t, err, 400)
	door(t, b, "accepted")
	outcome, err := client.Reply(ctx, bus.ReplyRequest{Run: "r1", Reply: loop.Reply{Question: "q1", Text: "yes"}})
	if err != nil || outcome != (bus.Outcome{Status: "accepted", Message: "reply"}) {
		t.Errorf("reply: %+v, %v", outcome, err)
	}
	outcome, err = client.Control(ctx, bus.ControlRequest{Run: "r1", Control: loop.Control{Op: loop.OpCancel}})
	if err != nil || outcome != (bus.Outcome{Status: "accepted", Message: "control"}) {
		t.Errorf("control: %+v, %v", outcome, err)
	}
	_, err = client.Control(ctx, bus.ControlRequest{Run: "*"})
	wantCode(t, err, 400)
}

func TestOutcomeDoesNotCome(t *testing.T) {
	b := bustest.Start(t)
	ctx, cancel := context.WithTimeout(bustest.Context(t), 200*time.Millisecond)
	defer cancel()
	_, err := b.PublishAndAwait(ctx, func(ctx context.Context, token string) error {
		_, err := b.PublishReply(ctx, run1, []byte("{}"), token)
		return err
	})
	wantErr(t, err, bus.ErrNoOutcome)
	failed := errors.New("queue full")
	_, err = b.PublishAndAwait(ctx, func(context.Context, string) error { return failed })
	wantErr(t, err, failed)
}

func TestOutcomeTokensOfStrangers(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	heard, err := nc.SubscribeSync("agent.>")
	must(t, err)
	for _, token := range []string{"", "a.b", "*", "x y", strings.Repeat("x", 65), ">"} {
		b.Tell(loop.Delivery{Header: map[string][]string{"Ratchet-Outcome": {token}}}, "accepted", "")
	}
	b.Tell(loop.Delivery{}, "accepted", "")
	b.Tell(loop.Delivery{Header: map[string][]string{"Ratchet-Outcome": {"good"}}}, "accepted", "m")
	msg, err := heard.NextMsgWithContext(bustest.Context(t))
	must(t, err)
	if msg.Subject != "agent.outcome.good" || string(msg.Data) != `{"status":"accepted","message":"m"}` {
		t.Errorf("first message is %s %s", msg.Subject, msg.Data)
	}
}

func TestGetAndList(t *testing.T) {
	b, client, _ := worker(t)
	ctx := bustest.Context(t)
	_, err := client.Get(ctx, "r1")
	wantCode(t, err, 404)
	want := head("r1", 3)
	want.Question = &loop.Question{Question: "q1", Text: "how many?"}
	_, err = b.Save(ctx, want, 0)
	must(t, err)
	got, err := client.Get(ctx, "r1")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	_, err = client.GetSession(ctx, "chat")
	wantCode(t, err, 404)
	said := []loop.SessionMessage{{Role: "user", Text: "hi", Run: "r1", N: 1, Time: time.Unix(1, 0).UTC()}}
	must(t, b.SaveSession(ctx, "acme", "chat", loop.Session{Messages: said, Runs: []string{"r1"}}, 0))
	session, err := client.GetSession(ctx, "chat")
	must(t, err)
	wantSession := bus.SessionAnswer{Session: "chat", Messages: said, Run: "r1", Question: want.Question}
	if diff := cmp.Diff(wantSession, session); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	for i := range 5 {
		h := head(fmt.Sprint("done-", i), 2)
		h.Status = loop.StatusDone
		_, err := b.Save(ctx, h, 0)
		must(t, err)
	}
	var runs []string
	request := bus.ListRequest{Status: loop.StatusDone, Limit: 2}
	for {
		page, err := client.List(ctx, request)
		must(t, err)
		for _, r := range page.Runs {
			runs = append(runs, r.Run)
		}
		if request.After = page.Next; page.Next == 0 {
			break
		}
	}
	if diff := cmp.Diff([]string{"done-0", "done-1", "done-2", "done-3", "done-4"}, runs); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	_, err = client.List(ctx, bus.ListRequest{Limit: -1})
	wantCode(t, err, 400)
}

func TestEvents(t *testing.T) {
	b, client, nc := worker(t)
	ctx := bustest.Context(t)
	seq := mustAppend(t, b, 0, event(run1, 1, loop.Note{Text: "a"}), event(run1, 2, loop.Question{Text: "q"}))
	publish(t, nc, &nats.Msg{Subject: "agent.event.acme.r1.step", Data: []byte("foreign")})
	large := loop.Note{Text: strings.Repeat("x", 400_000)}
	mustAppend(t, b, seq+1, event(run1, 3, large), event(run1, 4, large), event(run1, 5, large))
	mustAppend(t, b, 0, event(loop.RunID{Tenant: "evil", Run: "r1"}, 1, loop.Note{Text: "not for acme"}))

	all := func(r bus.EventsRequest) (ns []uint64, pages int) {
		for {
			page, err := client.Events(ctx, r)
			must(t, err)
			pages++
			for _, raw := range page.Events {
				e, err := loop.DecodeEvent(raw)
				must(t, err)
				ns = append(ns, e.N)
			}
			if r.After = page.Next; !page.More {
				return ns, pages
			}
		}
	}
	for _, c := range []struct {
		request bus.EventsRequest
		want    []uint64
		pages   int
	}{
		{bus.EventsRequest{Run: "r1"}, []uint64{1, 2, 3, 4, 5}, 2}, // a message holds two of the large ones
		{bus.EventsRequest{Run: "r1", Limit: 2}, []uint64{1, 2, 3, 4, 5}, 3},
		{bus.EventsRequest{Run: "r1", From: 4}, []uint64{4, 5}, 1},
		{bus.EventsRequest{Run: "r1", Road: "user"}, []uint64{2}, 1},
		{bus.EventsRequest{Run: "r1", Road: "step", Limit: 1}, []uint64{1, 3, 4, 5}, 4},
		{bus.EventsRequest{Road: "all"}, []uint64{1, 2, 3, 4, 5}, 2},
		{bus.EventsRequest{Run: "nope"}, nil, 1},
	} {
		got, pages := all(c.request)
		if diff := cmp.Diff(c.want, got); diff != "" || pages != c.pages {
			t.Errorf("%+v: %d pages, want %d (-want +got):\n%s", c.request, pages, c.pages, diff)
		}
	}
	_, err := client.Events(ctx, bus.EventsRequest{Run: "r1", Road: "rail"})
	wantCode(t, err, 400)
	_, err = client.Events(ctx, bus.EventsRequest{Run: ">"})
	wantCode(t, err, 400)
}

func TestHostileReplySubjects(t *testing.T) {
	b, client, nc := worker(t)
	ctx := bustest.Context(t)
	for _, reply := range []string{"agent.task.victim", "agent.event.acme.r1.step", "$JS.API.STREAM.PURGE.AGENT_EVENTS", "$KV.AGENT_RUNS.acme.r1"} {
		must(t, nc.PublishRequest("agent.api.list.acme", reply, []byte("{}")))
	}
	if _, err := client.List(ctx, bus.ListRequest{}); err != nil { // served in order: the ones before are through
		t.Fatal(err)
	}
	nothing(t, b.Inbox(), 200*time.Millisecond)
	page, err := b.Read(ctx, run1, 0)
	if err != nil || page.Last != 0 {
		t.Errorf("the journal has messages up to %d, %v", page.Last, err)
	}
}

func TestHandlerErrors(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	fails := func(err error) bus.Handler {
		return func(context.Context, string, []byte) (any, error) { return nil, err }
	}
	serve(t, b, bus.API{
		Submit:  fails(errors.New("secret detail")),
		Reply:   fails(fmt.Errorf("wrapped: %w", &bus.APIError{Code: 409, Message: "told\nas it is"})),
		Control: func(context.Context, string, []byte) (any, error) { panic("oops") },
		Get:     fails(fmt.Errorf("wrapped: %w", loop.ErrNotFound)),
		List:    fails(fmt.Errorf("wrapped: %w", bus.ErrNoOutcome)),
		Events:  func(context.Context, string, []byte) (any, error) { return strings.Repeat("x", 2<<20), nil },
	})
	client, err := bus.NewClient(bustest.Connect(t, server), "", "acme")
	must(t, err)
	ctx := bustest.Context(t)
	_, err = client.Submit(ctx, []byte("{}"))
	wantCode(t, err, 500)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells too much: %v", err)
	}
	_, err = client.Reply(ctx, bus.ReplyRequest{})
	wantCode(t, err, 409)
	_, err = client.Control(ctx, bus.ControlRequest{})
	wantCode(t, err, 500)
	_, err = client.Get(ctx, "r")
	wantCode(t, err, 404)
	_, err = client.List(ctx, bus.ListRequest{})
	wantCode(t, err, 504)
	_, err = client.Events(ctx, bus.EventsRequest{})
	wantCode(t, err, 413)
}

func TestTenantIsChecked(t *testing.T) {
	_, _, nc := worker(t)
	for _, tenant := range []string{"_", "ä", strings.Repeat("x", 65)} {
		msg, err := nc.RequestWithContext(bustest.Context(t), "agent.api.list."+tenant, []byte("{}"))
		must(t, err)
		if code := msg.Header.Get("Nats-Service-Error-Code"); code != "400" {
			t.Errorf("tenant %q: code %q, %s", tenant, code, msg.Data)
		}
	}
	if _, err := bus.NewClient(nc, "", "a.b"); err == nil {
		t.Error("a client for a tenant of two tokens was made")
	}
}

func TestSlowHandlersAreBoundedAndDoNotBlockOthers(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	api := b.Queries()
	var running, most atomic.Int64
	release := make(chan struct{})
	api.Submit = func(context.Context, string, []byte) (any, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		return bus.SubmitAnswer{Run: "r", Status: "accepted"}, nil
	}
	serve(t, b, api)
	client, err := bus.NewClient(bustest.Connect(t, server), "", "acme")
	must(t, err)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := client.Submit(bustest.Context(t), []byte("{}")); err != nil {
				t.Error(err)
			}
		})
	}
	for running.Load() < 64 {
		if _, err := client.List(bustest.Context(t), bus.ListRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	wg.Wait()
	if most.Load() != 64 {
		t.Errorf("%d handlers ran at once, want 64", most.Load())
	}
}

// Requests in hand are let end, then cut; those that come too late are told so or find nobody.
func TestStopWhileBusy(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	entered := make(chan struct{}, 2)
	quick := make(chan struct{})
	api := b.Queries()
	api.Submit = func(context.Context, string, []byte) (any, error) {
		entered <- struct{}{}
		<-quick
		return bus.SubmitAnswer{Run: "r", Status: "accepted"}, nil
	}
	api.Get = func(ctx context.Context, _ string, _ []byte) (any, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s, err := b.Serve(api)
	must(t, err)
	client, err := bus.NewClient(bustest.Connect(t, server), "", "acme")
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := client.Submit(bustest.Context(t), []byte("{}")); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		_, err := client.Get(bustest.Context(t), "r1")
		wantCode(t, err, 503)
	})
	<-entered
	<-entered
	stopped := make(chan struct{})
	go func() { s.Stop(); s.Stop(); close(stopped) }()
	close(quick)
	wg.Wait()
	<-stopped
	if _, err := client.List(bustest.Context(t), bus.ListRequest{}); err == nil {
		t.Error("a stopped service answered")
	}
}

func TestNoWorker(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	client, err := bus.NewClient(nc, "agent-two", "")
	must(t, err)
	_, err = client.Submit(bustest.Context(t), []byte("{}"))
	wantErr(t, err, bus.ErrNoWorker)
	wantErr(t, client.Follow(bustest.Context(t), "r1", 1, func(loop.Event) error { return nil }), bus.ErrNoWorker)
}

func withNothingElse(api bus.API) bus.API {
	api.Submit = func(context.Context, string, []byte) (any, error) { return nil, loop.ErrNotFound }
	return api
}

// A queue that the operator has limited refuses what does not fit, and whoever asked is told so.
func TestAFullQueueIsToldToTheSubmitter(t *testing.T) {
	server := bustest.Server(t)
	nc := bustest.Connect(t, server)
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	js := newJetStream(t, server)
	config := newStream(t, js, "AGENT_TASKS").CachedInfo().Config
	config.MaxMsgs = 2
	_, err := js.UpdateStream(ctx, config)
	must(t, err)
	must(t, b.Setup(ctx)) // leaves the limit
	api := b.Queries()
	api.Submit = func(ctx context.Context, tenant string, body []byte) (any, error) {
		_, err := b.PublishTask(ctx, tenant, body, "", "")
		return bus.SubmitAnswer{Status: "accepted"}, err
	}
	serve(t, b, api)
	client, err := bus.NewClient(nc, "", "acme")
	must(t, err)
	for i := range 4 {
		_, err := client.Submit(ctx, []byte("{}"))
		var told *bus.APIError
		switch {
		case i < 2:
			must(t, err)
		case !errors.As(err, &told) || told.Code != 503 || !strings.Contains(told.Message, "is full; send it again later"):
			t.Errorf("task %d: %v", i, err)
		}
	}
	_, err = b.PublishTask(ctx, "acme", []byte("{}"), "", "")
	wantErr(t, err, bus.ErrFull)
	must(t, fetchOne(t, b.Inbox()).Settler.Ack(ctx))
	for err != nil {
		_, err = b.PublishTask(ctx, "acme", []byte("{}"), "", "") // there is room again
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
