package torture

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ratchet/internal/loop"
)

// scriptedModel speaks the OpenAI chat API. It keeps nothing but how often a turn was refused: what it says follows from
// the prompt alone, so a call that is repeated gives the same reply.
type scriptedModel struct {
	ledger *Ledger

	mu      sync.Mutex
	refused map[string]int // by prompt
}

// ServeHTTP answers a request of the worker that the path names: /w/<worker>/v1/chat/completions.
func (m *scriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) < 2 {
		http.Error(w, `{"error":{"message":"no chat request","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	run := strings.TrimPrefix(r.Header.Get("X-Ratchet-Run"), tenant+"/")
	h := sha256.New()
	turn, accepted, rejected := 0, 0, false
	for i, msg := range request.Messages {
		h.Write([]byte(msg.Role + "\x00" + msg.Content + "\x00"))
		switch {
		case msg.Role == "assistant":
			turn, accepted, rejected = turn+1, accepted+1, false
		case i > 1 && strings.HasPrefix(msg.Content, "This message was not accepted"):
			accepted, rejected = accepted-1, true
		}
	}
	prompt := hex.EncodeToString(h.Sum(nil)[:12])
	if r.Header.Get("X-Ratchet-Purpose") == string(loop.PurposeLearn) {
		end := m.ledger.asked(run, prompt, r.PathValue("worker"))
		end(true, reply(w, fmt.Sprintf(`{"add": [{"text": %q, "kind": "other"}], "replace": {}}`, factOf(run))) != nil)
		return
	}
	ro, ok := readRole(request.Messages[1].Content)
	if !ok {
		http.Error(w, `{"error":{"message":"no part in the play","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	end := m.ledger.asked(run, prompt, r.PathValue("worker"))
	gone := !pass(r, delay(ro.chance("model", turn), 800*time.Millisecond))
	if !gone && m.fails(w, ro, turn, prompt) {
		end(false, false)
		return
	}
	text := ro.lie(turn, rejected)
	if text == "" {
		text = ro.say(accepted)
	}
	end(true, reply(w, text) != nil || gone)
}

// factOf is what the model learns from a run.
func factOf(run string) string { return "The user remembers the run " + run + "." }

// reply sends what the model says.
func reply(w http.ResponseWriter, text string) error {
	return writeJSON(w, map[string]any{
		"id": "t", "object": "chat.completion", "created": 1, "model": "scripted",
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
		"usage":   map[string]int{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
	})
}

// fails answers some turns of rough runs with an error status: mostly once, sometimes so often that the run has to wait.
func (m *scriptedModel) fails(w http.ResponseWriter, r role, turn int, prompt string) bool {
	if r.shape != ShapeRough {
		return false
	}
	times := 0
	switch c := r.chance("fails", turn); {
	case c < 0.01:
		times = 6 // one more than the worker tries at once
	case c < 0.1:
		times = 1
	}
	m.mu.Lock()
	m.refused[prompt]++
	failing := m.refused[prompt] <= times
	m.mu.Unlock()
	if !failing {
		return false
	}
	status := http.StatusInternalServerError
	if r.chance("status", turn) < 0.2 {
		status = http.StatusTooManyRequests
	}
	w.Header().Set("Content-Type", "application/json")
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
