package loop_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
	demotools "ratchet/internal/tools/demo"
)

func TestMain(m *testing.M) {
	// Parallel tests here wait for leases, not for a processor.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	bustest.Main(m)
}

// rig is a real server with as many workers as a test starts, over one scripted model.
type rig struct {
	t     *testing.T
	nc    *nats.Conn
	bus   *bus.Bus
	model loop.Model
	tools []tools.Tool
	names int
	mu    sync.Mutex
}

func newRig(t *testing.T, script func(llmtest.Request) llmtest.Reply, extra ...tools.Tool) *rig {
	t.Helper()
	return newRigOn(t, bustest.Connect(t, bustest.Server(t)), script, extra...)
}

// newRigOn is newRig on a server of the test's own.
func newRigOn(t *testing.T, nc *nats.Conn, script func(llmtest.Request) llmtest.Reply, extra ...tools.Tool) *rig {
	t.Helper()
	fake := llmtest.Server(t, script)
	set := append(tools.Builtins(time.Now), demotools.Tools(demotools.Options{Outbox: t.TempDir()})...)
	return &rig{
		t: t, nc: nc, bus: bustest.Open(t, nc, bus.Options{}), model: fake.Client(t), tools: append(set, extra...),
	}
}

// worker is a running engine.
type worker struct {
	*loop.Worker
	stop func() // as SIGTERM does; returns when it has stopped
}

func (r *rig) config() loop.Config {
	r.mu.Lock()
	r.names++
	name := fmt.Sprintf("w%d-%s", r.names, uuid.NewString()[:4])
	r.mu.Unlock()
	registry, err := tools.New(tools.Config{Tools: r.tools, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	return loop.Config{
		Name: name, Journal: r.bus, Heads: r.bus, Wakes: r.bus, Sessions: r.bus, Blobs: r.bus, Graveyard: r.bus,
		Outcomes: r.bus, Orders: r.bus, Inbox: r.bus.Inbox(), WakeQueue: r.bus.Wakes(), Model: r.model, Tools: registry, Catalogues: r.bus,
		Lease: bustest.Lease, Grace: time.Second, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	}
}

func (r *rig) start(c loop.Config) worker {
	r.t.Helper()
	w, err := loop.NewWorker(c)
	if err != nil {
		r.t.Fatal(err)
	}
	stopHearing, err := r.bus.Hear(w.Hear)
	if err != nil {
		r.t.Fatal(err)
	}
	stopClaims, err := r.bus.HearClaims(w.HearClaim)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			r.t.Errorf("worker: %v", err)
		}
	}()
	stop := sync.OnceFunc(func() {
		stopHearing()
		stopClaims()
		cancel()
		<-done
	})
	r.t.Cleanup(stop)
	return worker{w, stop}
}

func (r *rig) ctx() context.Context { return bustest.Context(r.t) }

func run(id string) loop.RunID { return loop.RunID{Tenant: "default", Run: id} }

// submit publishes a task as a service would.
func (r *rig) submit(id, task string) {
	r.t.Helper()
	body := task
	if id != "" {
		body = strings.Replace(task, "{", fmt.Sprintf(`{"id": %q, `, id), 1)
	}
	if _, err := r.bus.PublishTask(r.ctx(), "default", []byte(body), "", ""); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) reply(id, body string) {
	r.t.Helper()
	if _, err := r.bus.PublishReply(r.ctx(), run(id), []byte(body), ""); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) control(id, op string) {
	r.t.Helper()
	if _, err := r.bus.PublishControl(r.ctx(), run(id), []byte(`{"op":"`+op+`"}`), ""); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) events(id string) []loop.Event {
	r.t.Helper()
	page, err := r.bus.Read(r.ctx(), run(id), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return page.Events
}

// eventually waits until check returns true. The journal has no notification that a test could wait for, so it is read
// again and again.
func (r *rig) eventually(what string, check func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !check() {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within two minutes", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// until waits for an event of that type and returns it.
func (r *rig) until(id, eventType string) loop.Event {
	r.t.Helper()
	var found loop.Event
	r.eventually(fmt.Sprintf("%s of run %s", eventType, id), func() bool {
		for _, e := range r.events(id) {
			if e.Type() == eventType {
				found = e
				return true
			}
			if e.Final() {
				b, _ := json.Marshal(e.Data)
				r.t.Fatalf("run %s ended without %s: %s %s", id, eventType, e.Type(), b)
			}
		}
		return false
	})
	return found
}

// untilClosed waits until everything after the final event was done, and returns the events.
func (r *rig) untilClosed(id string) []loop.Event {
	r.t.Helper()
	r.eventually("closing of run "+id, func() bool {
		h, _, err := r.bus.Load(r.ctx(), run(id))
		return err == nil && h.Closed
	})
	events := r.events(id)
	for i, e := range events {
		if e.N != uint64(i+1) {
			r.t.Fatalf("run %s: event %d has n %d", id, i+1, e.N)
		}
		if e.Final() != (i == len(events)-1) {
			r.t.Fatalf("run %s: event %d of %d is %s", id, i+1, len(events), e.Type())
		}
	}
	return events
}

func types(events []loop.Event) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Type()
	}
	return strings.Join(names, " ")
}

// m is a plan_react message with the plan of two steps, closed ones marked with their results.
func m(kind string, results []string, fields string) string {
	steps := []string{"Work", "Answer"}
	plan := make([]map[string]any, len(steps))
	for i, s := range steps {
		plan[i] = map[string]any{"step": s, "status": "pending", "result": nil}
		if i < len(results) {
			plan[i]["status"], plan[i]["result"] = "done", results[i]
		}
	}
	b, _ := json.Marshal(plan)
	if fields != "" {
		fields = ", " + fields
	}
	return fmt.Sprintf(`{"type": %q, "thought": "t", "plan": %s%s}`, kind, b, fields)
}

var (
	planned  = m("create_plan", nil, "")
	answered = m("final_answer", []string{"found", "said"}, `"answer": "It is 42."`)
)

func call(tool, args string) string {
	return m("tool_call", nil, fmt.Sprintf(`"name": %q, "arguments": %s`, tool, args))
}

// say answers the model calls of each run in the order in which they come.
func say(texts ...string) func(llmtest.Request) llmtest.Reply {
	var mu sync.Mutex
	turns := map[string]int{}
	return func(r llmtest.Request) llmtest.Reply {
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("X-Ratchet-Run")
		turn := turns[id]
		turns[id]++
		if turn >= len(texts) {
			return llmtest.Raw(400, `{"error": {"message": "the script is over"}}`)
		}
		return llmtest.Text(texts[turn])
	}
}

// converse answers each turn of a conversation. The prompt shows which turn it is, so that a call that is made again, by
// another worker for one, gets the same answer again.
func converse(texts ...string) func(llmtest.Request) llmtest.Reply {
	return func(r llmtest.Request) llmtest.Reply {
		turn := 0
		for _, m := range r.Messages {
			if m.Role == "assistant" {
				turn++
			}
		}
		if turn >= len(texts) {
			return llmtest.Raw(400, `{"error": {"message": "the script is over"}}`)
		}
		return llmtest.Text(texts[turn])
	}
}

func TestTaskBecomesAnswer(t *testing.T) {
	r := newRig(t, converse(planned, call("calculate", `{"expression": "6*7"}`), answered))
	r.start(r.config())
	r.submit("a", `{"goal": "What is six times seven?", "metadata": {"channel": "C42"}}`)
	events := r.untilClosed("a")
	if got, want := types(events), "accepted facts plan call observation thought answer"; got != want {
		t.Fatalf("events are %s, want %s", got, want)
	}
	observation := events[4].Data.(loop.Observation)
	if observation.Status != loop.ObservedOK || string(observation.Result) != "42" {
		t.Errorf("observation is %s %s", observation.Status, observation.Result)
	}
	answer := events[6].Data.(loop.Answer)
	if answer.Answer != "It is 42." || answer.Usage.Total() != 3*120 {
		t.Errorf("answer is %+v", answer)
	}
	for _, e := range events {
		if string(e.Metadata) != `{"channel":"C42"}` && string(e.Metadata) != `{"channel": "C42"}` {
			t.Errorf("event %d has metadata %s", e.N, e.Metadata)
		}
	}
}

// noWork is a queue that never has anything.
type noWork struct{}

func (noWork) Fetch(ctx context.Context, _ int, _ func(loop.Delivery)) error {
	<-ctx.Done()
	return nil
}
