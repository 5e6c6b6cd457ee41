package node_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/memory/weaviate/weaviatetest"
	"ratchet/internal/node"
)

// TestWeaviateKilledAndRestarted kills Weaviate in the middle of 20 runs. Ten have recalled and wait for the model; when it
// answers, they ask memory again. Ten more begin after the kill. All answer. Then Weaviate is started again on its data: runs
// recall, and what there was to learn meanwhile is learned.
func TestWeaviateKilledAndRestarted(t *testing.T) {
	t.Parallel()
	server := weaviatetest.Start(t)
	gate := make(chan struct{})
	m := rememberWith(t, node.MemoryOptions{Weaviate: server.URL, WeaviateKey: weaviatetest.Key},
		func(_ string, n int, _ string) llmtest.Reply {
			switch n {
			case 0:
				reply := move("create_plan", "")
				reply.Wait = gate
				return reply
			case 1:
				return move("tool_call", `, "name": "recall_facts", "arguments": {"query": "When does the user row?"}`)
			}
			return move("final_answer", `, "answer": "Done."`)
		}, func(run string) string {
			return `{"add": ["The user had the wish ` + run + ` once."], "replace": {}}`
		})
	client := m.client("default")
	if _, err := client.Facts(m.ctx, bus.FactsRequest{Op: "add", User: "ann", Text: "The user rows on Sundays."}); err != nil {
		t.Fatal(err)
	}
	task := func(id string) map[string]any {
		return map[string]any{"id": id, "user": "ann", "goal": "When does the user row? Sundays?"}
	}
	for i := range 10 {
		m.submit("default", task(fmt.Sprint("r", i)))
	}
	for i := range 10 {
		if facts := m.began(fmt.Sprint("r", i)); facts.Degraded != "" || len(facts.Facts) != 1 {
			t.Errorf("before the kill, run %d recalled %+v", i, facts)
		}
	}
	server.Kill()
	for i := 10; i < 20; i++ {
		m.submit("default", task(fmt.Sprint("r", i)))
	}
	for i := 10; i < 20; i++ {
		facts := m.began(fmt.Sprint("r", i))
		if !degradedAs(facts.Degraded, "down", "slow", "paused") || len(facts.Facts) > 0 {
			t.Errorf("after the kill, run %d recalled %+v", i, facts)
		}
	}
	close(gate)
	for i := range 20 {
		events := m.follow("default", fmt.Sprint("r", i))
		if answerOf(events) != "Done." || tried(events) != "recall_facts:error" {
			t.Errorf("run %d: %s\n%s", i, tried(events), transcript(events))
		}
	}

	server.Restart(t)
	deadline, tick := time.After(time.Minute), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for i := 20; ; i++ {
		m.submit("default", task(fmt.Sprint("r", i)))
		facts := m.began(fmt.Sprint("r", i))
		if facts.Degraded == "" {
			if !slices.ContainsFunc(facts.Facts, func(f loop.Fact) bool { return f.Text == "The user rows on Sundays." }) {
				t.Errorf("back, a run recalled %+v", facts)
			}
			break
		}
		select {
		case <-deadline:
			t.Fatalf("a minute after the restart, runs recall %+v", facts)
		case <-tick.C:
		}
	}
	m.known("default", "ann", 21) // the fact, and one of each of the 20 runs
}

// degradedAs reports whether the reason of a degraded recall is one of these.
func degradedAs(degraded string, reasons ...string) bool {
	return slices.ContainsFunc(reasons, func(reason string) bool { return strings.HasPrefix(degraded, "memory is "+reason+":") })
}

var errBegan = errors.New("the run has recalled")

// began waits until a run has recalled.
func (m *remembering) began(run string) (facts loop.Facts) {
	m.t.Helper()
	err := m.client("default").Follow(m.ctx, run, 1, func(e loop.Event) error {
		if f, ok := e.Data.(loop.Facts); ok {
			facts = f
			return errBegan
		}
		return nil
	})
	if err != nil && !errors.Is(err, errBegan) {
		m.t.Fatalf("run %s: %v", run, err)
	}
	return facts
}
