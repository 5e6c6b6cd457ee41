package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestTracesAreExported runs the program with the environment of a collector.
func TestTracesAreExported(t *testing.T) {
	came := make(chan string, 8)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { came <- q.Method + " " + q.URL.Path }))
	t.Cleanup(collector.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL) // the exporter reads it too
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	url := startWorkerWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL},
		"--embedded", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--model", "demo", "--http", "", "--sync", "2m")
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := nc.Publish("agent.task.default", []byte(`{"id": "a", "goal": "What is 17 plus 25?"}`)); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-came:
		if got != "POST /v1/traces" {
			t.Errorf("the collector was asked for %s", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing has come in 30 s")
	}
}

func TestAnotherProtocolIsRefused(t *testing.T) {
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"--embedded", "--model", "demo"}, func(key string) string { return env[key] }, &stderr, &stderr)
	if code != exitUsage || !strings.Contains(stderr.String(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: traces go out as http/protobuf") {
		t.Errorf("status %d: %s", code, stderr.String())
	}
}
