package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// The counting tools.
const (
	toolLookup  = "lookup"       // read
	toolStore   = "store"        // idempotent
	toolPay     = "pay"          // once, with a reconcile check
	toolOrder   = "order"        // once, without one
	toolPayment = "find_payment" // the check
)

// effects of the counting tools.
var effects = map[string]loop.Effect{
	toolLookup: loop.EffectRead, toolStore: loop.EffectIdempotent, toolPay: loop.EffectOnce, toolOrder: loop.EffectOnce,
}

// runOfKey is the run in an idempotency key, tenant/run/call.
func runOfKey(key string) string {
	part := strings.Split(key, "/")
	if len(part) != 3 {
		return key
	}
	return part[1]
}

// toolRequest is what the worker's side of a tool sends to the torturer's. The key is in the body: a header of that name
// would make the HTTP client repeat the request by itself.
type toolRequest struct {
	Key  string `json:"key"`
	Item string `json:"item"`
}

// countingTools are the tools as a worker offers them. Each call is one HTTP request to the torturer.
func countingTools(url string) []tools.Tool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // a fresh connection is never retried
	type arguments struct {
		Item string `json:"item" jsonschema:"what it is about"`
	}
	var set []tools.Tool
	for name, effect := range effects {
		t := tools.Tool{Spec: loop.ToolSpec{
			Name: name, Description: "Counts that it was called.", Effect: effect, Timeout: toolTimeout, Source: "torture",
		}}
		if name == toolPay {
			t.Reconcile = toolPayment
		}
		set = append(set, tools.Typed(t, func(ctx context.Context, c loop.Invocation, a arguments) (any, error) {
			return post(ctx, client, url+"/tool/"+name, toolRequest{Key: c.Key(), Item: a.Item})
		}))
	}
	return append(set, tools.Typed(tools.Tool{
		Spec: loop.ToolSpec{
			Name: toolPayment, Description: "Says whether a payment was made.", Effect: loop.EffectRead, Timeout: toolTimeout,
			Source: "torture",
		},
		Internal: true,
	}, func(ctx context.Context, _ loop.Invocation, a tools.ReconcileRequest) (any, error) {
		return post(ctx, client, url+"/reconcile", toolRequest{Key: a.IdempotencyKey})
	}))
}

// post sends a request once. What fails after it was sent is a fault of which nobody knows what came of it.
func post(ctx context.Context, client *http.Client, url string, request toolRequest) (any, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.GetBody = nil
	resp, err := client.Do(r)
	if err != nil {
		return nil, &tools.Fault{Err: err, Sent: true}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, &tools.Fault{Err: err, Sent: true}
	case resp.StatusCode == http.StatusUnprocessableEntity:
		return nil, errors.New(string(answer))
	case resp.StatusCode != http.StatusOK:
		return nil, &tools.Fault{Err: fmt.Errorf("status %d: %s", resp.StatusCode, answer), Sent: true}
	}
	return json.RawMessage(answer), nil
}

// counter is the torturer's side of the tools: it writes every call down before it answers.
type counter struct {
	ledger *Ledger
	seed   uint64
}

// call answers /w/{worker}/tool/{tool}.
func (c *counter) call(w http.ResponseWriter, r *http.Request) {
	var request toolRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Key == "" {
		http.Error(w, "no tool request", http.StatusBadRequest)
		return
	}
	tool := r.PathValue("tool")
	earlier, take, end := c.ledger.executing(Execution{Key: request.Key, Tool: tool, Worker: r.PathValue("worker")})
	number := fmt.Sprint(len(earlier))
	drawn := chance(c.seed, request.Key, tool, number)
	gone := !pass(r, delay(drawn, toolTimeout/2)/2)
	failed := effects[tool] != loop.EffectOnce && chance(c.seed, request.Key, "fails") < 0.03
	result, err := json.Marshal(map[string]any{"tool": tool, "key": request.Key, "execution": len(earlier) + 1})
	if effects[tool] == loop.EffectIdempotent && len(earlier) > 0 && earlier[0].Result != nil {
		result = earlier[0].Result
	}
	if failed {
		result = json.RawMessage(`"the tool says no to ` + request.Key + `"`)
	}
	take(result, failed)
	gone = !pass(r, delay(drawn, toolTimeout/2)/2) || gone
	if failed {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	if err == nil {
		_, err = w.Write(result)
	}
	end(gone || err != nil)
}

// reconcile answers /w/{worker}/reconcile: it knows.
func (c *counter) reconcile(w http.ResponseWriter, r *http.Request) {
	var request toolRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, "no reconcile request", http.StatusBadRequest)
		return
	}
	verdict := tools.ReconcileVerdict{Outcome: tools.ReconciledNotDone}
	if x, known := c.ledger.executed(request.Key); known {
		verdict = tools.ReconcileVerdict{Outcome: tools.ReconciledDone, Result: x.Result}
		if x.Result == nil {
			verdict.Outcome = tools.ReconciledUnknown // it is under way
		}
	}
	_ = writeJSON(w, verdict) // a worker that has gone asks again, or another one does
}

// routes serves the model and the tools. Each worker has addresses of its own, so that it is known who asks.
func routes(ledger *Ledger, seed uint64) http.Handler {
	model := &scriptedModel{ledger: ledger, refused: map[string]int{}}
	c := &counter{ledger: ledger, seed: seed}
	mux := http.NewServeMux()
	mux.Handle("POST /w/{worker}/v1/chat/completions", model)
	mux.HandleFunc("POST /w/{worker}/tool/{tool}", c.call)
	mux.HandleFunc("POST /w/{worker}/reconcile", c.reconcile)
	return mux
}
