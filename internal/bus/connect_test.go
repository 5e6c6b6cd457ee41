package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/freeport"
	"ratchet/internal/loop"
)

// lines is a log that can be waited for.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
	c  chan struct{}
}

func newLines() *lines { return &lines{c: make(chan struct{}, 100)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.c <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.c:
		case <-timeout:
			t.Fatalf("%q was not logged:\n%s", text, l)
		}
	}
}

func TestConnectByURLAndContext(t *testing.T) {
	server := bustest.Server(t)
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL(), InboxPrefix: "_INBOX_acme"})
	must(t, err)
	defer nc.Close()
	if inbox := nc.NewInbox(); !strings.HasPrefix(inbox, "_INBOX_acme.") {
		t.Errorf("inbox is %s", inbox)
	}
	bustest.Open(t, nc, bus.Options{})

	file := filepath.Join(t.TempDir(), "my.json")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"url": %q}`, server.URL()), 0o600))
	byContext, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{Context: file})
	must(t, err)
	byContext.Close()
	_, err = bus.Connect(bustest.Context(t), bus.ConnectOptions{Context: file + "x"})
	if err == nil {
		t.Error("a context that does not exist was used")
	}
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{"url": %q, "jetstream_domain": "hub"}`, server.URL()), 0o600))
	if _, err = bus.Connect(bustest.Context(t), bus.ConnectOptions{Context: file}); err == nil {
		t.Error("a JetStream domain was ignored")
	}
}

func TestConnectWaitsForTheServer(t *testing.T) {
	port := freeport.One(t)
	log := newLines()
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{
			URL: fmt.Sprintf("nats://u:secret@127.0.0.1:%d", port), Log: log.logger(),
		})
		done <- result{nc, err}
	}()
	log.wait(t, "can't be reached yet")
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log tells a password:\n%s", log)
	}
	s, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: t.TempDir(), Port: port, Sync: "1m"})
	must(t, err)
	defer s.Shutdown()
	r := <-done
	must(t, r.err)
	r.nc.Close()
}

func TestConnectGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(bustest.Context(t), 300*time.Millisecond)
	defer cancel()
	_, err := bus.Connect(ctx, bus.ConnectOptions{URL: fmt.Sprintf("127.0.0.1:%d", freeport.One(t))})
	wantErr(t, err, nats.ErrNoServers)
	wantErr(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "--embedded") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

// guarded starts a server with users: worker may do everything, narrow next to nothing.
func guarded(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Users: []*server.User{
			{Username: "worker", Password: "pw"},
			{Username: "narrow", Password: "pw", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"agent.api.*.acme"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_acme.>", "agent.event.acme.>"}},
			}},
		},
	})
	must(t, err)
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server is not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return strings.TrimPrefix(s.ClientURL(), "nats://")
}

func TestConnectDenied(t *testing.T) {
	_, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: "nats://worker:wrong@" + guarded(t)})
	wantErr(t, err, bus.ErrDenied)
}

// A tenant's user needs nothing but its API subjects and its own events, and what it may not do is said.
func TestTenantPermissions(t *testing.T) {
	url := guarded(t)
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: "nats://worker:pw@" + url})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{})
	serve(t, b, withNothingElse(b.Queries()))
	mustAppend(t, b, 0, event(run1, 1, loop.Note{}), event(run1, 2, loop.Answer{Answer: "yes"}))

	log := newLines()
	narrow, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{
		URL: "nats://narrow:pw@" + url, InboxPrefix: "_INBOX_acme", Log: log.logger(),
	})
	must(t, err)
	t.Cleanup(narrow.Close)
	client, err := bus.NewClient(narrow, "", "acme")
	must(t, err)
	var events int
	must(t, client.Follow(bustest.Context(t), "r1", 1, func(loop.Event) error { events++; return nil }))
	if events != 2 {
		t.Errorf("followed %d events", events)
	}

	ctx, cancel := context.WithTimeout(bustest.Context(t), time.Second)
	defer cancel()
	_, err = bus.Open(ctx, narrow, bus.Options{})
	wantErr(t, err, nats.ErrPermissionViolation)
	log.wait(t, "NATS permission denied")
}

// startAgain returns what starts a server at the same address over the same store each time.
func startAgain(t *testing.T) func() *bus.Embedded {
	dir, port := t.TempDir(), freeport.One(t)
	return func() *bus.Embedded {
		t.Helper()
		s, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: dir, Port: port, Sync: "1m"})
		must(t, err)
		t.Cleanup(s.Shutdown)
		return s
	}
}

func TestReconnect(t *testing.T) {
	start := startAgain(t)
	first := start()
	log := newLines()
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: first.URL(), Log: log.logger()})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{})
	seq := mustAppend(t, b, 0, event(run1, 1, loop.Note{}))
	first.Shutdown()
	first.Shutdown()
	log.wait(t, "connection to NATS lost")
	start()
	log.wait(t, "connected to NATS again")
	must(t, b.Ready(bustest.Context(t)))
	mustAppend(t, b, seq, event(run1, 2, loop.Note{}))
	page, err := b.Read(bustest.Context(t), run1, 0)
	if err != nil || len(page.Events) != 2 {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
}

func TestStartEmbeddedRefuses(t *testing.T) {
	dir := t.TempDir()
	s := bustest.ServerIn(t, dir)
	port := freeport.One(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	must(t, err)
	defer l.Close()
	for _, c := range []struct {
		opts bus.EmbeddedOptions
		want string
	}{
		{bus.EmbeddedOptions{Port: -1}, "--data"},
		{bus.EmbeddedOptions{Dir: t.TempDir(), Port: -1, Sync: "sometimes"}, "sync"},
		{bus.EmbeddedOptions{Dir: t.TempDir(), Port: port}, "address already in use"},
		{bus.EmbeddedOptions{Dir: dir, Port: -1}, "another process"},
	} {
		if _, err := bus.StartEmbedded(c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opts, err, c.want)
		}
	}
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") {
		t.Errorf("it listens on %s", s.URL())
	}
}

func TestEmbeddedSyncAlwaysAndLog(t *testing.T) {
	log := newLines()
	s, err := bus.StartEmbedded(bus.EmbeddedOptions{
		Dir: t.TempDir(), Port: -1,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	must(t, err)
	t.Cleanup(s.Shutdown)
	b := bustest.Open(t, bustest.Connect(t, s), bus.Options{})
	mustAppend(t, b, 0, event(run1, 1, loop.Note{}))
	log.wait(t, "Server is ready")
}
