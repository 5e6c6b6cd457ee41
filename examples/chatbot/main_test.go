package main

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/node"
)

// TestChat talks to a worker with the demo model: a task, a question, an approval, an answer; then one that is refused.
func TestChat(t *testing.T) {
	n, err := node.Start(t.Context(), node.Options{
		Embedded: &bus.EmbeddedOptions{Dir: t.TempDir(), Port: -1, Sync: "2m"}, Demo: true, Files: t.TempDir(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	working := make(chan error, 1)
	go func() { working <- n.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-working; err != nil {
			t.Error(err)
		}
		n.Close()
	})

	in, typed := io.Pipe()
	printed, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := chat(n.Conn(), "buy_shares", in, out)
		_ = out.Close()
		ended <- err
	}()
	watchdog := time.AfterFunc(time.Minute, func() { _ = out.CloseWithError(os.ErrDeadlineExceeded) })
	defer watchdog.Stop()
	screen := bufio.NewReader(printed)
	say := func(line, want string) {
		t.Helper()
		if _, err := io.WriteString(typed, line+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := screen.ReadString('\n')
		if err != nil || !strings.Contains(got, want) {
			t.Fatalf("after %q: got %q %v, want %q", line, got, err, want)
		}
	}
	say("Buy a few Microsoft shares.", "How many shares of Microsoft")
	say("200", "At what price")
	say("410", "buy_shares {")
	say("yes", "200")
	say("Buy 3 Microsoft shares.", "At what price")
	say("411.50", "buy_shares {")
	say("no, too dear", "")
	_ = typed.Close()
	if rest, err := io.ReadAll(screen); err != nil {
		t.Errorf("%s %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
