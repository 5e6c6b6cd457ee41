package node_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/llm"
	"ratchet/internal/llm/peertest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
)

// answer42 is what the peers' configurations end every run with.
const answer42 = "17 plus 25 is 42. 🙂"

// TestRunAgainstOtherServers drives whole runs of a whole node against OpenAI-compatible servers that others wrote. They say
// what their configurations have for what the worker said last; nothing in the worker knows of them.
func TestRunAgainstOtherServers(t *testing.T) {
	const (
		planned = `{"id": "run", "goal": "What is 17 plus 25?"}`
		native  = `{"id": "run", "goal": "Add 17 and 25.", "strategy": "plan_act_reflect"}`
	)
	mockLLM := func(t *testing.T) string { return peertest.MockLLM(t, "run-mock-llm.yaml") }
	aimock := func(t *testing.T) string { return peertest.AIMock(t, "run-aimock.json") }
	for name, c := range map[string]struct {
		server func(*testing.T) string
		stream bool
		task   string
		want   string
	}{
		"mock-llm":              {mockLLM, false, planned, "accepted facts plan call observation thought thought answer"},
		"mock-llm, streamed":    {mockLLM, true, planned, "accepted facts plan call observation thought thought answer"},
		"mock-llm, native tool": {mockLLM, false, native, "accepted facts call observation reflection thought answer"},
		"aimock":                {aimock, false, planned, "accepted facts plan call observation thought thought answer"},
		"aimock, streamed":      {aimock, true, planned, "accepted facts plan call observation thought thought answer"},
		"aimock, native tool":   {aimock, true, native, "accepted facts call observation reflection thought answer"},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.server(t)
			n := start(t, func(o *node.Options) {
				o.Demo, o.Stream, o.Memory.Off = false, c.stream, true
				o.Model = llm.Config{BaseURL: url, APIKey: "test-key", Model: "gpt-4o-mini"}
			})
			watch := watchTokens(t, n)
			events := followRun(t, n, c.task)
			if got := types(events); got != c.want {
				t.Fatalf("events are %s, want %s\n%s", got, c.want, transcript(events))
			}
			for _, e := range events {
				switch d := e.Data.(type) {
				case loop.Observation:
					if d.Status != loop.ObservedOK || string(d.Result) != "42" {
						t.Errorf("the tool said %s %s", d.Status, d.Result)
					}
				case loop.Answer:
					if d.Answer != answer42 {
						t.Errorf("answer %q, want %q", d.Answer, answer42)
					}
				case loop.Thought:
					if d.Model != "gpt-4o-mini" || d.Usage.Total() == 0 {
						t.Errorf("event %d is by %q, usage %+v", e.N, d.Model, d.Usage)
					}
				}
			}
			if pieces, text := watch(); c.stream != (pieces >= 5) || c.stream && !strings.Contains(text, answer42) {
				t.Errorf("%d pieces were streamed: %s", pieces, text)
			}
		})
	}
}

// followRun submits a task with the id run and returns the events up to the final one.
func followRun(t *testing.T, n *node.Node, task string) []loop.Event {
	t.Helper()
	client, err := bus.NewClient(n.Conn(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.Submit(ctx, []byte(task)); err != nil {
		t.Fatal(err)
	}
	var events []loop.Event
	if err := client.Follow(ctx, "run", 1, func(e loop.Event) error {
		events = append(events, e)
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, transcript(events))
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

// watchTokens listens to the tokens of the run. The returned function says how many pieces came, and their text.
func watchTokens(t *testing.T, n *node.Node) func() (pieces int, text string) {
	t.Helper()
	sub, err := n.Conn().SubscribeSync("agent.stream.default.run")
	if err != nil {
		t.Fatal(err)
	}
	return func() (pieces int, text string) {
		for {
			// The run has ended on this very connection, so all that was published is here or will never be.
			msg, err := sub.NextMsg(200 * time.Millisecond)
			if err != nil {
				return pieces, text
			}
			var in struct{ Piece string }
			if err := json.Unmarshal(msg.Data, &in); err != nil {
				t.Fatal(err)
			}
			pieces, text = pieces+1, text+in.Piece
		}
	}
}
