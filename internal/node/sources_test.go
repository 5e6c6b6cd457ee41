package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"ratchet/internal/bus"
	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
	"ratchet/internal/tools/npmtest"
)

// TestOnePlanOverAllSources runs one plan whose four calls go to a built-in, a service on NATS, an MCP server that
// others wrote, and an HTTP endpoint.
func TestOnePlanOverAllSources(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"path": %q}`, r.URL.Path)
	}))
	defer web.Close()
	command, err := json.Marshal(npmtest.Everything(t, "stdio"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tools.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
tools:
  - builtin: calculate
  - nats: "tools.>"
  - mcp: {command: %s}
    prefix: every_
  - http:
      name: get_order
      description: Looks an order up.
      url: "%s/orders/{order_id}"
      schema: {type: object, properties: {order_id: {type: integer}}, required: [order_id], additionalProperties: false}
overrides:
  - match: "every_*"
    effect: read
`, command, web.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	const open = `"plan": [{"step": "Ask all", "status": "in_progress", "result": null}, {"step": "Answer", "status": "pending", "result": null}]`
	script := llmtest.Replies(
		llmtest.Text(`{"type": "create_plan", "thought": "t", "plan": [{"step": "Ask all", "status": "pending"}, {"step": "Answer", "status": "pending"}]}`),
		llmtest.Text(`{"type": "tool_call", "thought": "t", `+open+`, "calls": [
			{"name": "calculate", "arguments": {"expression": "6*7"}}, {"name": "get_price", "arguments": {"symbol": "MSFT"}},
			{"name": "every_get-sum", "arguments": {"a": 1, "b": 2}}, {"name": "get_order", "arguments": {"order_id": "4417"}}]}`),
		llmtest.Text(`{"type": "final_answer", "thought": "t", "answer": "All four answered.", "plan": [
			{"step": "Ask all", "status": "done", "result": "they answered"}, {"step": "Answer", "status": "done", "result": "said"}]}`),
	)
	fake := llmtest.Server(t, script)
	n := start(t, func(o *node.Options) {
		o.Demo, o.Tools = false, file
		o.Model = llm.Config{BaseURL: fake.URL, Model: "test-model"}
	})
	servePrice(t, n.Conn())
	client, err := bus.NewClient(n.Conn(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The service is found a moment after it has appeared; a task that names it waits for that.
	if _, err := submitWhenOffered(ctx, client, `{"id": "run", "goal": "Ask all four.", "tools": ["calculate", "get_price", "every_get-sum", "get_order"]}`); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = client.Follow(ctx, "run", 1, func(e loop.Event) error {
		if c, ok := e.Data.(loop.Call); ok {
			for _, call := range c.Calls {
				if coerced := call.Tool == "get_order"; coerced != (len(call.Written) > 0) {
					t.Errorf("call of %s has arguments %s, written as %s", call.Tool, call.Arguments, call.Written)
				}
			}
		}
		if o, ok := e.Data.(loop.Observation); ok {
			got[o.Tool] = string(o.Status) + " " + string(o.Result)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]string{
		"calculate": "ok 42", "get_price": `ok {"symbol":"MSFT","price":56.3}`, "every_get-sum": `ok "The sum of 1 and 2 is 3."`,
		"get_order": `ok {"path": "/orders/4417"}`,
	} {
		if !strings.EqualFold(strings.ReplaceAll(got[tool], " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%s gave %s, want %s", tool, got[tool], want)
		}
	}
}

func submitWhenOffered(ctx context.Context, client *bus.Client, task string) (bus.SubmitAnswer, error) {
	for {
		answer, err := client.Submit(ctx, []byte(task))
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no worker offers") {
			return answer, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func servePrice(t *testing.T, nc *nats.Conn) {
	t.Helper()
	service, err := micro.AddService(nc, micro.Config{Name: "prices", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Stop() })
	err = service.AddEndpoint("price", micro.HandlerFunc(func(r micro.Request) {
		_ = r.Respond([]byte(`{"symbol":"MSFT","price":56.3}`))
	}), micro.WithEndpointSubject("tools.price"), micro.WithEndpointMetadata(map[string]string{
		"ratchet.tool": "get_price", "ratchet.description": "Tells the price of a share.", "ratchet.effect": "read",
		"ratchet.schema": `{"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
}
