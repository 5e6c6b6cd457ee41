package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestReadyCommand(t *testing.T) {
	answer := func(status int, text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				status = http.StatusNotFound
			}
			http.Error(w, text, status)
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	for _, test := range []struct {
		name, address, stdout, stderr string
		status                        int
	}{
		{"ready", answer(200, "ready"), "ready\n", "", exitOK},
		{"not ready", answer(503, "not ready: NATS is away"), "", "not ready: NATS is away", exitError},
		{"no worker", "127.0.0.1:1", "", "is a worker running with --http", exitError},
		{"no address", "%", "", "is no address", exitUsage},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			status := run(t.Context(), []string{"ready", "--http", test.address}, func(string) string { return "" }, &stdout, &stderr)
			if status != test.status || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("status %d, said %q and %q", status, stdout.String(), stderr.String())
			}
		})
	}
}
