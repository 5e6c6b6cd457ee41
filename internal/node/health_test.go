package node

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
)

// probe asks as a cluster's probe does.
func probe(t *testing.T, n *Node, path string) (status int, body string) {
	t.Helper()
	answer := httptest.NewRecorder()
	n.health().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer.Code, strings.TrimSpace(answer.Body.String())
}

// TestHealthInTheLifeOfAWorker follows both probes from the start to the end of a worker whose model fails, whose journal is
// deleted, and that is told to stop while it has a run in hand.
func TestHealthInTheLifeOfAWorker(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 8)
	fake := llmtest.Server(t, func(q llmtest.Request) llmtest.Reply {
		if strings.HasSuffix(q.Header.Get("X-Ratchet-Run"), "/refused") {
			return llmtest.Raw(401, `{"error": {"message": "no"}}`)
		}
		asked <- struct{}{}
		return llmtest.Reply{Text: "late", Wait: release}
	})
	n, err := Start(t.Context(), Options{
		Name: "test", Embedded: &bus.EmbeddedOptions{Dir: filepath.Join(t.TempDir(), "nats"), Port: -1, Sync: "2m"},
		Model: llm.Config{BaseURL: fake.URL}, HTTP: "127.0.0.1:0", Grace: 30 * time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	expect := func(when, path string, status int, says string) {
		t.Helper()
		if got, body := probe(t, n, path); got != status || !strings.Contains(body, says) {
			t.Errorf("%s: %s says %d %q, want %d %q", when, path, got, body, status, says)
		}
	}
	until := func(what string, check func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !check(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within a minute", what)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	expect("before it takes work", "/readyz", 503, "not ready: the worker is starting")
	expect("before it takes work", "/healthz", 200, "ok")

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	ready := func() bool { status, _ := probe(t, n, "/readyz"); return status == 200 }
	until("readiness", ready)
	expect("at work", "/readyz", 200, "ready")
	expect("at work", "/metrics", 200, "ratchet_runs_in_hand 0")

	submit := func(task string) {
		t.Helper()
		if _, err := n.bus.PublishTask(bustest.Context(t), "default", []byte(task), "", ""); err != nil {
			t.Fatal(err)
		}
	}
	submit(`{"id": "refused", "goal": "g"}`)
	until("the model's refusal", func() bool { return n.endpoint.fault.Load() != nil })
	expect("with a model that refuses", "/readyz", 200, "ready\nthe last request to the model failed (auth)")

	submit(`{"id": "a", "goal": "g"}`)
	<-asked
	until("one run in hand", func() bool { // the one that was refused may not be closed yet
		_, page := probe(t, n, "/metrics")
		return strings.Contains(page, "ratchet_runs_in_hand 1\n")
	})
	stop() // as SIGTERM does
	until("the news of it", func() bool { return !ready() })
	expect("while it stops", "/readyz", 503, "not ready: the worker is stopping")
	expect("while it stops", "/healthz", 200, "ok")
	select {
	case err := <-done:
		t.Fatalf("it has stopped before the step in hand was done: %v", err)
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	expect("at its end", "/readyz", 503, "stopping")
}

// TestReadinessSaysWhatIsMissing takes the store away, piece by piece.
func TestReadinessSaysWhatIsMissing(t *testing.T) {
	n, err := Start(t.Context(), Options{
		Name: "test", Embedded: &bus.EmbeddedOptions{Dir: filepath.Join(t.TempDir(), "nats"), Port: -1, Sync: "2m"},
		Demo: true, Files: t.TempDir(), HTTP: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	n.stage.set(working) // without a worker that would make again what is missing
	if status, body := probe(t, n, "/readyz"); status != 200 || body != "ready" {
		t.Errorf("%d %s", status, body)
	}
	if _, err := n.conn.Request("$JS.API.STREAM.DELETE.AGENT_EVENTS", nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if status, body := probe(t, n, "/readyz"); status != 503 || !strings.Contains(body, "stream AGENT_EVENTS can't be reached") {
		t.Errorf("without the journal: %d %s", status, body)
	}
	n.embedded.Shutdown()
	lost := func() bool { return !n.conn.IsConnected() }
	for deadline := time.Now().Add(time.Minute); !lost() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if status, body := probe(t, n, "/readyz"); status != 503 || !strings.Contains(body, "not connected to NATS") {
		t.Errorf("without a server: %d %s", status, body)
	}
	if status, body := probe(t, n, "/healthz"); status != 200 {
		t.Errorf("a worker without a server is not alive: %d %s", status, body)
	}
	if _, page := probe(t, n, "/metrics"); !strings.Contains(page, "ratchet_run_slots") || strings.Contains(page, "ratchet_dead_letters_stored") {
		t.Errorf("without a server the metrics are\n%s", page)
	}
}
