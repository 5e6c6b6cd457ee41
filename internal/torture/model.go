package torture

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ratchet/internal/loop"
)

// scriptedModel speaks the OpenAI chat API. It keeps nothing but how often a turn was refused.
type scriptedModel struct {
	ledger *Ledger
	well   atomic.Bool // it refuses nothing any more

	mu      sync.Mutex
	refused map[string]int // by prompt
}

// ServeHTTP answers a request of the worker that the path names: /w/<worker>/v1/chat/completions.
func (m *scriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Messages []chatMessage     `json:"messages"`
		Tools    []json.RawMessage `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, `{"error":{"message":"no chat request","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	run, worker := strings.TrimPrefix(r.Header.Get("X-Ratchet-Run"), tenant+"/"), r.PathValue("worker")
	p, ok := readPrompt(request.Messages, loop.Purpose(r.Header.Get("X-Ratchet-Purpose")), len(request.Tools) > 0)
	if p.purpose == loop.PurposeLearn {
		end := m.ledger.asked(run, p.digest, worker)
		end(true, send(w, reply{text: fmt.Sprintf(`{"add": [{"text": %q, "kind": "other"}], "replace": {}}`, factOf(run))}) != nil)
		return
	}
	if !ok {
		http.Error(w, `{"error":{"message":"no part in the play","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	end := m.ledger.asked(run, p.digest, worker)
	gone := !pass(r, delay(p.chance("model", p.digest), 800*time.Millisecond))
	if !gone && m.fails(w, p) {
		end(false, false)
		return
	}
	end(true, send(w, p.say()) != nil || gone)
}

// factOf is what the model learns from a run.
func factOf(run string) string { return "The user remembers the run " + run + "." }

// send writes what the model says.
func send(w http.ResponseWriter, say reply) error {
	message := map[string]any{"role": "assistant", "content": say.text}
	reason := "stop"
	if len(say.calls) > 0 {
		var calls []any
		for i, c := range say.calls {
			calls = append(calls, map[string]any{
				"id": fmt.Sprintf("call-%d", i+1), "type": "function",
				"function": map[string]string{"name": c.Name, "arguments": string(c.Arguments)},
			})
		}
		message["tool_calls"], reason = calls, "tool_calls"
	}
	return writeJSON(w, map[string]any{
		"id": "t", "object": "chat.completion", "created": 1, "model": "scripted",
		"choices": []any{map[string]any{"index": 0, "finish_reason": reason, "message": message}},
		"usage":   map[string]int{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
	})
}

// fails answers some turns of rough runs with an error status: mostly once, sometimes so often that the run has to wait.
func (m *scriptedModel) fails(w http.ResponseWriter, p prompt) bool {
	if p.shape != ShapeRough || m.well.Load() {
		return false
	}
	times := 0
	switch c := p.chance("fails", p.digest); {
	case c < 0.01:
		times = 6 // one more than the worker tries at once
	case c < 0.1:
		times = 1
	}
	m.mu.Lock()
	m.refused[p.digest]++
	failing := m.refused[p.digest] <= times
	m.mu.Unlock()
	if !failing {
		return false
	}
	status := http.StatusInternalServerError
	w.Header().Set("Content-Type", "application/json")
	if p.chance("status", p.digest) < 0.2 { // all workers hold back then, and not for long
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After-Ms", "300")
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"error":{"message":"not now","type":"server_error"}}`)) // who has gone asks again
	return true
}

// delay makes a latency of a chance: mostly a few dozen milliseconds, one in twenty up to the longest.
func delay(chance float64, longest time.Duration) time.Duration {
	const usual = 60 * time.Millisecond
	if chance < 0.95 {
		return time.Duration(chance * float64(usual))
	}
	return usual + time.Duration((chance-0.95)/0.05*float64(longest-usual))
}

// pass lets time pass and reports whether the client is still there.
func pass(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err = w.Write(body)
	return err
}
