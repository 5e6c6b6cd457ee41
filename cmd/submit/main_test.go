package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/node"
)

// asProgram makes the test binary be the program itself, for tests that need a process of its own on a terminal.
const asProgram = "SUBMIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	bustest.Main(m)
}

// patience bounds every wait: long, so that a slow machine fails no test.
const patience = 30 * time.Second

// outcome is what came of one run of the program.
type outcome struct {
	code           int
	stdout, stderr string
}

// submit runs the program with an environment that has nothing in it.
func submit(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, func(string) string { return "" }, strings.NewReader(stdin), &stdout, &stderr)
	if ctx.Err() != nil {
		t.Fatalf("submit %q did not end in %s\n%s%s", args, patience, &stdout, &stderr)
	}
	return outcome{code, stdout.String(), stderr.String()}
}

// server starts a server with a worker that has the demo model, and returns its URL.
func server(t *testing.T) string {
	t.Helper()
	server := bustest.Server(t)
	work(t, server)
	return server.URL()
}

// work runs a worker until the end of the test.
func work(t *testing.T, server *bus.Embedded) *node.Node {
	t.Helper()
	n, err := node.Start(bustest.Context(t), node.Options{
		Connect: bus.ConnectOptions{Server: server}, Demo: true, Files: t.TempDir(), Grace: time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		n.Close()
	})
	return n
}

// want compares the exit code and shows everything where it is another.
func (o outcome) want(t *testing.T, code int) {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", o.code, code, o.stdout, o.stderr)
	}
}

// contains demands that a text holds parts, in any order.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// failingWriter is a standard output that has been closed.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
