// Package bustest gives tests a real bus: a nats-server of their own in a temporary directory, set up and connected.
package bustest

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
)

// Lease is the lease of the buses that Start returns: short, so that a test can wait for a redelivery.
const Lease = 2 * time.Second

// Start returns a bus over a server of its own. Everything is taken down at the end of the test.
func Start(t testing.TB) *bus.Bus {
	t.Helper()
	return Open(t, Connect(t, Server(t)), bus.Options{})
}

// Server starts a server on a free port of loopback, with its data in a directory of its own. It is shut down at the end of
// the test, or soon after, see [Main].
func Server(t testing.TB) *bus.Embedded {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats-")
	if err != nil {
		t.Fatal(err)
	}
	server := start(t, dir)
	t.Cleanup(func() { stop(server, dir) })
	return server
}

// ServerIn starts a server over the data in a directory. The test may shut it down itself.
func ServerIn(t testing.TB, dir string) *bus.Embedded {
	t.Helper()
	server := start(t, dir)
	t.Cleanup(server.Shutdown)
	return server
}

func start(t testing.TB, dir string) *bus.Embedded {
	t.Helper()
	server, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: dir, Port: -1, Sync: "2m"})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// Connect connects to a server inside the process.
func Connect(t testing.TB, server *bus.Embedded) *nats.Conn {
	t.Helper()
	nc, err := bus.Connect(Context(t), bus.ConnectOptions{Server: server, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Open sets up a bus over a connection. A lease of 0 is [Lease]; without a log it logs to the test.
func Open(t testing.TB, nc *nats.Conn, opts bus.Options) *bus.Bus {
	t.Helper()
	if opts.Lease == 0 {
		opts.Lease = Lease
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	b, err := bus.Open(Context(t), nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Context returns a context that ends with the test, or after two minutes where something hangs.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
