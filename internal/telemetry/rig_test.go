package telemetry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/telemetry"
	builtin "ratchet/internal/tools"
)

func TestMain(m *testing.M) { bustest.Main(m) }

// rig is a real server and a scripted model, for workers that are watched.
type rig struct {
	t      *testing.T
	server *bus.Embedded
	bus    *bus.Bus
	fake   *llmtest.Fake
	tools  []builtin.Tool
}

func newRig(t *testing.T, script func(llmtest.Request) llmtest.Reply, extra ...builtin.Tool) *rig {
	t.Helper()
	server := bustest.Server(t)
	return &rig{
		t: t, server: server, bus: bustest.Open(t, bustest.Connect(t, server), bus.Options{}), fake: llmtest.Server(t, script),
		tools: append(builtin.Builtins(time.Now), extra...),
	}
}

// worker is a running engine with a connection of its own.
type worker struct {
	*loop.Worker
	nc   *nats.Conn
	stop func()
}

// start runs a worker that tel watches.
func (r *rig) start(name string, tel *telemetry.Telemetry) worker {
	r.t.Helper()
	registry, err := builtin.New(builtin.Config{Tools: r.tools, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	nc := bustest.Connect(r.t, r.server)
	b := bustest.Open(r.t, nc, bus.Options{})
	w, err := loop.NewWorker(tel.Watch(loop.Config{
		Name: name, Journal: b, Heads: b, Wakes: b, Sessions: b, Blobs: b, Graveyard: b, Outcomes: b, Orders: b,
		Inbox: b.Inbox(), WakeQueue: b.Wakes(), Model: r.fake.Client(r.t), Tools: registry, Lease: bustest.Lease, Grace: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	}))
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	stop := sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(stop)
	return worker{w, nc, stop}
}

func (r *rig) ctx() context.Context { return bustest.Context(r.t) }

// submit publishes a task as a service would that takes part in a trace; an empty trace: none.
func (r *rig) submit(task, trace string) {
	r.t.Helper()
	if _, err := r.bus.PublishTask(loop.WithTraceparent(r.ctx(), trace), "acme", []byte(task), "", ""); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for an event of that type.
func (r *rig) until(run, eventType string) {
	r.t.Helper()
	r.eventually(eventType+" of "+run, func() bool {
		page, err := r.bus.Read(r.ctx(), loop.RunID{Tenant: "acme", Run: run}, 0)
		for _, e := range page.Events {
			if e.Type() == eventType {
				return true
			}
		}
		return err != nil
	})
}

// untilClosed waits until all that follows a run's end was done.
func (r *rig) untilClosed(run string) {
	r.t.Helper()
	r.eventually("closing of "+run, func() bool {
		h, _, err := r.bus.Load(r.ctx(), loop.RunID{Tenant: "acme", Run: run})
		return err == nil && h.Closed
	})
}

func (r *rig) eventually(what string, check func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !check(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// message is one of plan_react with a plan of two steps, of which so many are done.
func message(kind string, done int, fields string) string {
	type step struct {
		Step   string  `json:"step"`
		Status string  `json:"status"`
		Result *string `json:"result"`
	}
	result := "known"
	plan := []step{{Step: "Work", Status: "pending"}, {Step: "Answer", Status: "pending"}}
	for i := range done {
		plan[i].Status, plan[i].Result = "done", &result
	}
	encoded, err := json.Marshal(plan)
	if err != nil {
		panic(err)
	}
	if fields != "" {
		fields = ", " + fields
	}
	return fmt.Sprintf(`{"type": %q, "thought": "t", "plan": %s%s}`, kind, encoded, fields)
}

// say answers the turns of each run in order. A text that begins with ! is a refusal of the endpoint.
func say(texts ...string) func(llmtest.Request) llmtest.Reply {
	var mu sync.Mutex
	turns := map[string]int{}
	return func(q llmtest.Request) llmtest.Reply {
		mu.Lock()
		defer mu.Unlock()
		run := q.Header.Get("X-Ratchet-Run")
		text := texts[min(turns[run], len(texts)-1)]
		turns[run]++
		if refusal, ok := strings.CutPrefix(text, "!"); ok {
			return llmtest.Raw(401, `{"error": {"message": "`+refusal+`"}}`)
		}
		return llmtest.Text(text)
	}
}

var (
	planned  = message("create_plan", 0, "")
	asks     = message("ask_user", 0, `"question": "Which?"`)
	answered = message("final_answer", 2, `"answer": "It is 42."`)
)

func callOf(tool string) string {
	return message("tool_call", 0, fmt.Sprintf(`"name": %q, "arguments": {"secret": "hush"}`, tool))
}
