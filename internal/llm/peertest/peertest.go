// Package peertest runs OpenAI-compatible servers from npm that others wrote, for tests of what talks to models. `make npm`
// installs them, at the versions that internal/llm/testdata/npm/package-lock.json names. Their configurations lie beside it.
package peertest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"ratchet/internal/freeport"
)

// MockLLM starts @dwmkerr/mock-llm with a configuration and returns its base URL, up to /v1.
func MockLLM(t testing.TB, config string) string {
	t.Helper()
	return start(t, "@dwmkerr/mock-llm/dist/main.js", "server running on", func(string) []string {
		return []string{"--config", config}
	})
}

// AIMock starts @copilotkit/aimock with a file of fixtures and more arguments, and returns its base URL, up to /v1.
func AIMock(t testing.TB, fixtures string, more ...string) string {
	t.Helper()
	return start(t, "@copilotkit/aimock/dist/cli.js", "server listening on", func(port string) []string {
		return append([]string{"--port", port, "--fixtures", fixtures, "--chunk-size", "3"}, more...)
	})
}

// start runs a server with node until the end of the test. listening is part of the line that it prints when it is ready.
// It learns its port from args or from the environment.
func start(t testing.TB, script, listening string, args func(port string) []string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is not installed")
	}
	_, here, _, _ := runtime.Caller(0)
	folder := filepath.Join(filepath.Dir(filepath.Dir(here)), "testdata", "npm")
	path := filepath.Join(folder, "node_modules", filepath.FromSlash(script))
	if _, err := os.Stat(path); err != nil {
		missing(t, script+" is not installed")
	}
	port := strconv.Itoa(freeport.One(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, node, append([]string{path}, args(port)...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "HOST=127.0.0.1", "PORT="+port)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var said strings.Builder
	ready := false
	for !ready && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		ready = strings.Contains(lines.Text(), listening)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() { // a full pipe would stop the server
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = cmd.Wait() // it was killed, and says so
	})
	if !ready {
		t.Fatalf("%s ended before it listened:\n%s", script, said.String())
	}
	return "http://127.0.0.1:" + port + "/v1"
}

// missing ends the test: as failed where everything must be there, else as skipped.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: run `make npm`", what)
	}
	t.Skipf("%s: run `make npm`", what)
}
