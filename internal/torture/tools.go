package torture

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// runOfKey is the run in an idempotency key, tenant/run/call.
func runOfKey(key string) string {
	part := strings.Split(key, "/")
	if len(part) != 3 {
		return key
	}
	return part[1]
}

// counter is the torturer's side of the tools: it writes every call down before it answers.
type counter struct {
	ledger *Ledger
	seed   uint64
}

// call answers /w/{worker}/tool/{tool}.
func (c *counter) call(w http.ResponseWriter, r *http.Request) {
	key, tool := r.Header.Get(headerKey), r.PathValue("tool")
	var request struct {
		Item string `json:"item"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || key == "" || effects[tool] == "" {
		http.Error(w, "no call of a tool", http.StatusBadRequest)
		return
	}
	earlier, take, end := c.ledger.executing(Execution{Key: key, Tool: tool, Worker: r.PathValue("worker")})
	number := fmt.Sprint(len(earlier))
	drawn := chance(c.seed, key, tool, number)
	gone := !pass(r, delay(drawn, toolTimeout/2)/2)
	failed := effects[tool] != loop.EffectOnce && chance(c.seed, key, "fails") < 0.03
	result, err := json.Marshal(map[string]any{"tool": tool, "key": key, "execution": len(earlier) + 1})
	if effects[tool] == loop.EffectIdempotent && len(earlier) > 0 && earlier[0].Result != nil {
		result = earlier[0].Result
	}
	if failed {
		result = json.RawMessage(`"the tool says no to ` + key + `"`)
	}
	take(result, failed)
	gone = !pass(r, delay(drawn, toolTimeout/2)/2) || gone
	w.Header().Set("Content-Type", "application/json")
	if failed {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	if err == nil {
		_, err = w.Write(result)
	}
	end(gone || err != nil)
}

// guard answers /w/{worker}/guard: it refuses one order in ten.
func (c *counter) guard(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimSuffix(r.Header.Get(headerKey), "-guard")
	verdict := tools.GuardVerdict{OK: chance(c.seed, key, "guard") >= 0.1}
	if !verdict.OK {
		verdict.Problems = []string{"the guard says no to " + key}
	}
	c.ledger.guarded(Guarded{Key: key, OK: verdict.OK, At: time.Now()})
	_ = writeJSON(w, verdict) // a worker that has gone asks again, or another one does
}

// reconcile answers /w/{worker}/reconcile: it knows.
func (c *counter) reconcile(w http.ResponseWriter, r *http.Request) {
	var request tools.ReconcileRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.IdempotencyKey == "" {
		http.Error(w, "no reconcile request", http.StatusBadRequest)
		return
	}
	verdict := tools.ReconcileVerdict{Outcome: tools.ReconciledNotDone}
	if x, known := c.ledger.executed(request.IdempotencyKey); known {
		verdict = tools.ReconcileVerdict{Outcome: tools.ReconciledDone, Result: x.Result}
		if x.Result == nil {
			verdict.Outcome = tools.ReconciledUnknown // it is under way
		}
	}
	_ = writeJSON(w, verdict) // as above
}

// routes serves the model and the tools. Each worker has addresses of its own, so that it is known who asks.
func routes(model *scriptedModel, c *counter) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /w/{worker}/v1/chat/completions", model)
	mux.HandleFunc("POST /w/{worker}/tool/{tool}", c.call)
	mux.HandleFunc("POST /w/{worker}/guard", c.guard)
	mux.HandleFunc("POST /w/{worker}/reconcile", c.reconcile)
	return mux
}
