package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
)

// limited answers each run's turns in order, as fast as a token bucket lets it.
type limited struct {
	rate, burst float64
	script      []string

	mu       sync.Mutex
	turns    map[string]int
	began    time.Time
	at       time.Time // of tokens
	tokens   float64
	answered int
	refused  []time.Duration // since the first request
}

func (l *limited) reply(r llmtest.Request) llmtest.Reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.turns == nil {
		l.turns, l.began, l.at, l.tokens = map[string]int{}, now, now, l.burst
	}
	l.tokens = min(l.burst, l.tokens+l.rate*now.Sub(l.at).Seconds())
	l.at = now
	if l.tokens < 1 {
		l.refused = append(l.refused, now.Sub(l.began))
		reply := llmtest.Raw(http.StatusTooManyRequests, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`)
		reply.Header = map[string]string{"Retry-After": "1"}
		return reply
	}
	l.tokens--
	l.answered++
	id := r.Header.Get("X-Ratchet-Run")
	turn := l.turns[id]
	l.turns[id]++
	if turn >= len(l.script) {
		return llmtest.Raw(http.StatusBadRequest, `{"error": {"message": "the script is over"}}`)
	}
	return llmtest.Text(l.script[turn])
}

// TestWorkersShareAnEndpointsLimit has four workers with a connection each, which know of one another by NATS alone, share an
// endpoint that allows five requests a second. All runs begin at once, which is many times what it allows.
func TestWorkersShareAnEndpointsLimit(t *testing.T) {
	t.Parallel()
	const workers, runs = 4, 60
	plan := func(status, result string) string {
		return fmt.Sprintf(`"plan": [{"step": "a", "status": %q, "result": %s}, {"step": "b", "status": %q, "result": %s}]`, status, result, status, result)
	}
	server := &limited{rate: 5, burst: 5, script: []string{
		`{"type": "create_plan", "thought": "t", ` + plan("pending", "null") + `}`,
		`{"type": "tool_call", "thought": "t", "name": "calculate", "arguments": {"expression": "6*7"}, ` + plan("pending", "null") + `}`,
		`{"type": "final_answer", "thought": "t", "answer": "42", ` + plan("done", `"r"`) + `}`,
	}}
	model := llmtest.Server(t, server.reply)
	endpoint := func(o *node.Options) {
		o.Demo, o.Memory.Off = false, true
		o.Model = llm.Config{BaseURL: model.URL, Model: "m"}
	}
	first := start(t, endpoint)
	for i := 1; i < workers; i++ {
		start(t, func(o *node.Options) {
			endpoint(o)
			o.Name, o.Embedded, o.Connect = fmt.Sprintf("test%d", i), nil, bus.ConnectOptions{URL: first.URL()}
		})
	}
	began := time.Now()
	for i := range runs {
		task, err := json.Marshal(map[string]any{"goal": "g", "id": fmt.Sprintf("r%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.Bus().PublishTask(t.Context(), "default", task, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range runs {
		events := untilFinal(t, first, fmt.Sprintf("r%d", i), 5*time.Minute)
		if last := events[len(events)-1]; last.Type() != "answer" {
			t.Errorf("run %d ended as %+v", i, last.Data)
		}
	}
	took := time.Since(began)

	server.mu.Lock()
	defer server.mu.Unlock()
	total, late := runs*len(server.script), 0
	for _, at := range server.refused {
		if at > time.Second {
			late++
		}
	}
	t.Logf("%d calls in %v, %.2f a second; %d refused in the first second, %d later: %v", server.answered, took.Round(time.Second),
		float64(server.answered)/took.Seconds(), len(server.refused)-late, late, server.refused)
	if server.answered != total {
		t.Errorf("%d calls were answered, want %d", server.answered, total)
	}
	if late*100 > 2*(total+len(server.refused)) {
		t.Errorf("%d of %d calls were refused after the first second, want 2%% at most", late, total+len(server.refused))
	}
	if workers := workersOf(t, first, runs); workers < 2 {
		t.Errorf("%d worker did all of it", workers)
	}
}

// untilFinal waits for a run's end and returns its events. The journal has nothing to wait on, so it is read again and again.
func untilFinal(t *testing.T, n *node.Node, id string, patience time.Duration) []loop.Event {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		page, err := n.Bus().Read(t.Context(), loop.RunID{Tenant: "default", Run: id}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if k := len(page.Events); k > 0 && page.Events[k-1].Final() {
			return page.Events
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("run %s has not ended within %v", id, patience)
	return nil
}

// workersOf counts the workers that have driven these runs.
func workersOf(t *testing.T, n *node.Node, runs int) int {
	t.Helper()
	seen := map[string]bool{}
	for i := range runs {
		page, err := n.Bus().Read(t.Context(), loop.RunID{Tenant: "default", Run: fmt.Sprintf("r%d", i)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if e.Cause == "" && strings.HasPrefix(e.Source, "/") {
				seen[e.Source] = true
			}
		}
	}
	return len(seen)
}
