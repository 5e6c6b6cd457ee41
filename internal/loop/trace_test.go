package loop_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

const asked = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParseTraceparent(t *testing.T) {
	for header, want := range map[string]string{
		asked: asked,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00":       "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03":       asked, // flags that mean nothing here
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later": asked, // a later version may add parts
		"": "", "00": "", strings.Repeat("-", 55): "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more": "", // this one may not
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":      "",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01":      "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01":      "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01":      "",
		"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01":      "",
		"00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01":      "",
	} {
		place, ok := loop.ParseTraceparent(header)
		got := ""
		if ok {
			got = place.Traceparent()
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q", header, got, want)
		}
	}
}

// TestTraceOfARun derives the same trace from the same first event in every worker, and another one when the id is used
// again.
func TestTraceOfARun(t *testing.T) {
	accepted := func(at time.Time, traceparent string) *loop.State {
		e := loop.Event{RunID: run("a"), N: 1, Time: at, Source: "/s", Data: loop.Accepted{Task: loop.Task{Goal: "g"}, Traceparent: traceparent}}
		encoded, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := loop.DecodeEvent(encoded)
		if err != nil {
			t.Fatal(err)
		}
		s := loop.Step(loop.State{}, stored)
		return &s
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)
	first, again, later := accepted(at, "").Trace(), accepted(at, "").Trace(), accepted(at.Add(time.Hour), "").Trace()
	if first != again || first.ID == later.ID || first.Parent != [8]byte{} || first.Flags != 1 {
		t.Errorf("the traces are\n%+v\n%+v\n%+v", first, again, later)
	}
	carried := accepted(at, asked).Trace()
	if carried.TraceID() != asked[3:35] || carried.Span != first.Span || carried.Parent != [8]byte{0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 2, 0xb7} {
		t.Errorf("the trace of a run that was asked for in a trace is %+v", carried)
	}
}

// TestTraceIsCarried follows the trace of whoever publishes a task, by hand or through the API's client, to the model and to
// a tool, without anybody that makes spans.
func TestTraceIsCarried(t *testing.T) {
	seen := make(chan string, 1)
	probe := tools.Tool{
		Spec: loop.ToolSpec{Name: "probe", Description: "d", Schema: []byte(`{"type":"object"}`), Effect: loop.EffectRead},
		Run: func(ctx context.Context, c loop.Invocation) (any, error) {
			seen <- tools.Traceparent(ctx, c)
			return "ok", nil
		},
	}
	script := say(planned, call("probe", `{}`), answered)
	told := make(chan string, 3)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		told <- q.Header.Get("traceparent")
		return script(q)
	}, probe)
	var log bytes.Buffer
	c := r.config()
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	w := r.start(c)
	msg := nats.NewMsg("agent.task.default")
	msg.Data = []byte(`{"id": "a", "goal": "g"}`)
	msg.Header.Set("traceparent", asked)
	if err := r.nc.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	events := r.untilClosed("a")
	w.stop()
	s, err := loop.Fold(loop.State{}, events)
	if err != nil {
		t.Fatal(err)
	}
	want := s.Trace().Traceparent()
	if !strings.HasPrefix(want, asked[:36]) || want == asked {
		t.Errorf("the run is at %s, and was asked for at %s", want, asked)
	}
	if got := <-seen; got != want {
		t.Errorf("the tool is told %q, want %q", got, want)
	}
	for range 3 {
		if got := <-told; got != want {
			t.Errorf("the model is told %q, want %q", got, want)
		}
	}
	if line := log.String(); !strings.Contains(line, "tenant=default run=a") || !strings.Contains(line, "trace_id="+asked[3:35]) {
		t.Errorf("the log does not say which run and trace it is about:\n%s", line)
	}
}

// TestUnobservedCostsNothing holds the seam to no allocation where nobody watches.
func TestUnobservedCostsNothing(t *testing.T) {
	var o loop.Observer = loop.Unobserved{}
	ctx, s := t.Context(), &loop.State{}
	d := loop.Delivery{Kind: loop.DeliverWake}
	if n := testing.AllocsPerRun(1000, func() {
		o.Delivered(&d)
		inner := o.Driving(ctx, loop.Driving{State: s, Worker: "w", Since: time.Time{}})
		o.Stepped(inner, loop.Stepped{Took: time.Second})
		o.Driven(inner, loop.Driven{State: s, Outcome: loop.DriveParked})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// watching notes what an observer is told.
type watching struct {
	loop.Unobserved
	told chan string
}

func (w watching) Driving(ctx context.Context, d loop.Driving) context.Context {
	w.told <- "driving " + d.State.Run + " from " + d.From
	return ctx
}

func (w watching) Stepped(context.Context, loop.Stepped) { w.told <- "stepped" }

func (w watching) Driven(_ context.Context, d loop.Driven) {
	w.told <- "driven " + d.State.Run + " " + string(d.Outcome)
}

func TestObserverIsTold(t *testing.T) {
	r := newRig(t, say(planned, m("ask_user", nil, `"question": "Which?"`), answered))
	c := r.config()
	told := make(chan string, 100)
	c.Observer = watching{told: told}
	r.start(c)
	r.submit("a", `{"goal": "g"}`)
	r.until("a", "question")
	r.eventually("parking", func() bool { h, _, err := r.bus.Load(r.ctx(), run("a")); return err == nil && h.Owner == nil })
	r.reply("a", `{"text": "This."}`)
	r.untilClosed("a")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "driven a ended" {
		select {
		case what := <-told:
			got = append(got, what)
		case <-r.ctx().Done():
			t.Fatalf("told of %q only", got)
		}
	}
	// The plan is a step with another one after it. After the question and the answer the worker has nothing to wait for.
	want := []string{"driving a from ", "stepped", "driven a parked", "driving a from ", "driven a ended"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the observer is told (-want +got):\n%s", diff)
	}
}
