package bustest

import (
	"os"
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/freeport"
)

// Forgetful is a server that loses what it stored since a certain moment, as one does whose machine loses its power before
// all was synced, and as one whose streams are restored from a backup.
type Forgetful struct {
	t         testing.TB
	dir, kept string
	port      int
	server    *bus.Embedded
}

// StartForgetful starts a server at an address that it keeps, which is stopped at the end of the test.
func StartForgetful(t testing.TB) *Forgetful {
	t.Helper()
	f := &Forgetful{t: t, dir: t.TempDir(), port: freeport.One(t)}
	f.start()
	t.Cleanup(func() { f.server.Shutdown() })
	return f
}

func (f *Forgetful) start() {
	f.t.Helper()
	var err error
	if f.server, err = bus.StartEmbedded(bus.EmbeddedOptions{Dir: f.dir, Port: f.port, Sync: "1m"}); err != nil {
		f.t.Fatal(err)
	}
}

// URL is where clients connect, to whichever life of the server.
func (f *Forgetful) URL() string { return f.server.URL() }

// Keep restarts the server, and has it keep what is stored by now.
func (f *Forgetful) Keep() {
	f.t.Helper()
	f.server.Shutdown()
	f.kept = f.t.TempDir()
	if err := os.CopyFS(f.kept, os.DirFS(f.dir)); err != nil {
		f.t.Fatal(err)
	}
	f.start()
}

// Forget restarts the server with what it kept, and nothing else.
func (f *Forgetful) Forget() {
	f.t.Helper()
	f.server.Shutdown()
	f.dir = f.kept
	f.start()
}
