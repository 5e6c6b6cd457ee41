package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// turnModel answers by what it is shown, so that a call that is repeated after a crash gets the same reply.
type turnModel func(purpose loop.Purpose, turn int, last string) string

func (m turnModel) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	turn := 0
	for _, msg := range r.Messages {
		if msg.Role == "assistant" {
			turn++
		}
	}
	text := m(r.Purpose, turn, r.Messages[len(r.Messages)-1].Content)
	return loop.ModelReply{Text: text, Model: "scripted", Usage: loop.Usage{PromptTokens: 1}}, nil
}

// crashPlays are runs of each strategy that look and then pay, once.
var crashPlays = map[string]turnModel{
	"react": func(_ loop.Purpose, turn int, _ string) string {
		return []string{"Action: look\nAction Input: {}", "Action: pay\nAction Input: {}", reacted}[turn]
	},
	"plan_execute": func(purpose loop.Purpose, turn int, _ string) string {
		if purpose == loop.PurposeFill {
			return `{"type": "fill", "fields": {"what": "rent"}}`
		}
		return []string{steps(step("1", "look", `{}`, ""), step("2", "look", `{"n": 2}`, ""),
			step("3", "pay", `{}`, `"after": ["1", "2"], "open": ["what"]`)), finished}[turn]
	},
	"plan_act_reflect": func(purpose loop.Purpose, turn int, last string) string {
		switch {
		case purpose == loop.PurposeReflect && strings.Contains(last, "The planner's answer so far"):
			return verdictYes
		case purpose == loop.PurposeReflect:
			return `{"done": false, "guidance": "Say so."}`
		case turn == 0:
			return `{"type": "tool_call", "calls": [{"name": "look", "arguments": {}}, {"name": "pay", "arguments": {}}]}`
		}
		return "Paid."
	},
}

type crashed struct {
	events []loop.Event
	points []string
	pays   int
}

// crashRun runs one run of a strategy. The first worker is killed at the given operation, a second one goes on.
func crashRun(t *testing.T, strategy string, at int, after bool) crashed {
	t.Helper()
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{Lease: crashLease, Log: slog.New(slog.DiscardHandler)})
	r := &rig{t: t, nc: nc, bus: b, model: crashPlays[strategy]}
	count := &counting{times: map[string]int{}}
	r.tools = count.tools()
	for i := range r.tools {
		r.tools[i].Spec.Schema = []byte(`{"type":"object","properties":{"what":{"type":"string"},"n":{"type":"integer"}}}`)
	}
	r.tools[2].Spec.Schema = []byte(`{"type":"object"}`) // the reconcile check
	c := newCrash(at, after)
	next := r.startToCrash(b, c)
	r.submit("a", `{"goal": "g", "strategy": "`+strategy+`"}`)
	out := crashed{events: r.untilClosed("a")}
	if at > 0 {
		<-next
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	for key, n := range count.times {
		for _, e := range out.events {
			if d, ok := e.Data.(loop.Call); ok {
				for _, k := range d.Calls {
					if key == "default/a/"+k.Call && k.Tool == "pay" {
						out.pays += n
					}
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.points = append(out.points, c.names...)
	return out
}

var _ loop.Model = turnModel(nil)

// TestStrategiesKilled kills a worker at its operations and compares what the run comes to with an undisturbed one.
func TestStrategiesKilled(t *testing.T) {
	for strategy := range crashPlays {
		calm := crashRun(t, strategy, 0, false)
		want := settled(calm.events)
		if !strings.Contains(want, "answer started 1") || calm.pays != 1 {
			t.Fatalf("%s undisturbed: %s, paid %d times", strategy, want, calm.pays)
		}
		for at := 3; at <= len(calm.points); at++ {
			after := at%2 == 0
			t.Run(fmt.Sprintf("%s/%d %s/after=%t", strategy, at, calm.points[at-1], after), func(t *testing.T) {
				t.Parallel()
				got := crashRun(t, strategy, at, after)
				if s := settled(got.events); s != want {
					t.Errorf("the run came to\n%s, want\n%s\nin full: %s", s, want, types(got.events))
				}
				if got.pays != 1 {
					t.Errorf("paid %d times: %s", got.pays, types(got.events))
				}
			})
		}
	}
}

// startToCrash starts a worker that dies at the crash point, and then a second one; next is closed once that has begun.
func (r *rig) startToCrash(b *bus.Bus, c *crash) (next <-chan struct{}) {
	config := r.config()
	config.Lease, config.Grace, config.Log = crashLease, time.Millisecond, slog.New(slog.DiscardHandler)
	second := config
	second.Name = "second"
	cb := crashBus{b, c}
	config.Journal, config.Heads, config.Wakes, config.Sessions, config.Orders = cb, cb, cb, cb, cb
	config.Inbox, config.WakeQueue = crashSource{config.Inbox, c}, crashSource{config.WakeQueue, c}
	config.Model, config.Tools = crashModel{config.Model, c}, crashTools{config.Tools, c}
	first := r.start(config)
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		select {
		case <-c.dead:
			first.stop()
			r.start(second)
		case <-r.t.Context().Done():
		}
	}()
	return begun
}
