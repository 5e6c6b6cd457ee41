package torture

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSupervisorStartsAgain has a worker that finds no server it can use: it ends with the status for that, another one is
// started in its place, and that is no death.
func TestSupervisorStartsAgain(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and is no server of ours
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	o := Options{Data: t.TempDir(), Lease: time.Second, Command: []string{"/bin/sh", "-c", "exit 75"}}
	if err := os.Mkdir(filepath.Join(o.Data, "logs"), 0o750); err != nil {
		t.Fatal(err)
	}
	w := &world{opts: o, ledger: newLedger(), over: make(chan struct{})}
	defer w.close()
	p, err := newProxy(silent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{world: w, index: 1, proxy: p}
	w.seats = []*seat{s}
	if err := s.spawn(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll(ctx, 10*time.Millisecond, "two more starts", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.starts >= 2
	}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	deaths := w.deaths
	w.mu.Unlock()
	if len(deaths) > 0 {
		t.Errorf("a start that fails counts as a death: %s", strings.Join(deaths, ", "))
	}
}
