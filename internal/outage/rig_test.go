package outage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/demo"
	"ratchet/internal/loop"
)

// Goals of the runs in these tests, as the demo model knows them.
const (
	sum = "What is 17 plus 25?"         // a few steps to an answer
	buy = "Buy a few Microsoft shares." // asks how many, and then at what price
)

// model is the demo model with a gate before it.
type model struct {
	url  string
	pace time.Duration // each answer takes that long; set before there are requests

	mu       sync.Mutex
	shut     chan struct{} // closed when the gate opens; nil: it is open
	waiting  int
	requests int
}

func newModel(t *testing.T) *model {
	m := &model{}
	talk := demo.Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // to be read before the server notices that the client is gone
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if m.pass(r.Context()) && m.think(r.Context()) {
			talk.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		m.open()
		s.Close()
	})
	m.url = s.URL + "/v1"
	return m
}

// pass waits for the gate and reports whether the client did too.
func (m *model) pass(ctx context.Context) bool {
	m.mu.Lock()
	m.requests++
	shut := m.shut
	if shut == nil {
		m.mu.Unlock()
		return true
	}
	m.waiting++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.waiting--
	}()
	select {
	case <-shut:
		return true
	case <-ctx.Done():
		return false
	}
}

// think takes the time that an answer takes and reports whether the client waited.
func (m *model) think(ctx context.Context) bool {
	if m.pace == 0 {
		return true
	}
	select {
	case <-time.After(m.pace):
		return true
	case <-ctx.Done():
		return false
	}
}

// close lets no request through until open.
func (m *model) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = make(chan struct{})
}

func (m *model) open() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut != nil {
		close(m.shut)
		m.shut = nil
	}
}

func (m *model) counts() (waiting, requests int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting, m.requests
}

// rig is a server, a worker, a model, and somebody who submits tasks.
type rig struct {
	t      *testing.T
	server *natsServer
	worker *worker
	model  *model
	person
}

// person speaks for a tenant, over a connection that is made again for ever.
type person struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	client *bus.Client
}

func newPerson(t *testing.T, url string) person {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nc, err := bus.Connect(ctx, bus.ConnectOptions{URL: url, Name: "person"})
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	client, err := bus.NewClient(nc, "", "")
	must(t, err)
	return person{nc, js, client}
}

// newRig starts everything. The server's store lies in a directory of the test.
func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(t, newServer(t, t.TempDir(), ""))
}

func rigOn(t *testing.T, s *natsServer) *rig {
	t.Helper()
	r := &rig{t: t, server: s, model: newModel(t)}
	r.worker = newWorker(t, workerConfig{Name: "w1", NATS: s.url(), Model: r.model.url})
	r.person = newPerson(t, s.url())
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) submit(id, goal string) {
	r.t.Helper()
	task, err := json.Marshal(loop.Task{ID: id, Goal: goal})
	must(r.t, err)
	_, err = r.client.Submit(r.ctx(), task)
	must(r.t, err)
}

// inFlight starts a run and returns when its first model call is in hand; the gate stays closed.
func (r *rig) inFlight(id string) {
	r.t.Helper()
	r.model.close()
	r.submit(id, sum)
	eventually(r.t, "a model call is in hand", func() error {
		if waiting, _ := r.model.counts(); waiting == 0 {
			return fmt.Errorf("%d wait", waiting)
		}
		return nil
	})
}

// parked starts a run and returns when it waits for a person.
func (r *rig) parked(id string) {
	r.t.Helper()
	r.submit(id, buy)
	r.asks(id, "q1")
}

// asks waits until a run waits for the answer to a question.
func (r *rig) asks(id, question string) {
	r.t.Helper()
	eventually(r.t, "run "+id+" asks "+question, func() error {
		head, err := r.client.Get(r.ctx(), id)
		if err != nil || head.Question == nil || head.Question.Question != question || head.Owner != nil {
			return fmt.Errorf("it is at event %d, %s, error %w", head.N, head.Status, err)
		}
		return nil
	})
}

// answers the question of a parked run and waits for the next one: the run goes on.
func (r *rig) answers(id string) {
	r.t.Helper()
	eventually(r.t, "the reply to "+id+" is taken", func() error {
		ctx, cancel := context.WithTimeout(r.ctx(), 5*time.Second)
		defer cancel()
		outcome, err := r.client.Reply(ctx, bus.ReplyRequest{Run: id, Reply: loop.Reply{Question: "q1", Text: "200 shares."}})
		if err == nil && outcome.Status != loop.OutcomeAccepted && outcome.Status != loop.OutcomeDuplicate && outcome.Status != loop.OutcomeStale {
			err = fmt.Errorf("it is %s: %s", outcome.Status, outcome.Message)
		}
		return err
	})
	r.asks(id, "q2")
}

// answered waits for the run's end and checks its journal.
func (r *rig) answered(id string) {
	r.t.Helper()
	must(r.t, r.checkJournal(r.ctx(), id))
}

// checkJournal reads a run to its end: n has no gaps, and the last event and no other is final, an answer.
func (p person) checkJournal(ctx context.Context, id string) error {
	if err := p.client.Follow(ctx, id, 1, func(loop.Event) error { return nil }); err != nil {
		return err
	}
	var all []loop.Event
	request := bus.EventsRequest{Run: id}
	for more := true; more; {
		page, err := p.client.Events(ctx, request)
		if err != nil {
			return err
		}
		for _, raw := range page.Events {
			e, err := loop.DecodeEvent(raw)
			if err != nil {
				return err
			}
			all = append(all, e)
		}
		request.After, more = page.Next, page.More
	}
	for i, e := range all {
		if e.N != uint64(i+1) || e.Final() != (i == len(all)-1) {
			return fmt.Errorf("event %d of %s is number %d and final: %t, of %d", i+1, id, e.N, e.Final(), len(all))
		}
	}
	if _, ok := all[len(all)-1].Data.(loop.Answer); !ok {
		return fmt.Errorf("run %s ended with %+v", id, all[len(all)-1].Data)
	}
	return nil
}

// restart starts the server again and waits until everybody has found it.
func (r *rig) restart() {
	r.t.Helper()
	r.server.start()
	eventually(r.t, "the person is connected", func() error {
		if !r.nc.IsConnected() {
			return nats.ErrConnectionReconnecting
		}
		return nil
	})
	r.worker.becomesReady()
}

// bounded checks that a failure did not make the worker spin.
func (r *rig) bounded(what string, got, most int) {
	r.t.Helper()
	if got > most {
		r.t.Errorf("%s: %d, at most %d are sensible:\n%s", what, got, most, tail(r.worker.log.String(), 5))
	}
}

// tail returns the last lines of a text.
func tail(text string, n int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
