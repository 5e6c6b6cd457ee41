package bus_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/freeport"
	"ratchet/internal/loop"
)

// A machine that loses its power loses what its server had not synced, and a backup is older than what it replaces: sequences
// and revisions are then given a second time. Who reads what is new notices, though the second life is as long as the first.
func TestReadersNoticeThatTheServerHasForgotten(t *testing.T) {
	dir, kept, port := t.TempDir(), t.TempDir(), freeport.One(t)
	start := func(dir string) *bus.Embedded {
		t.Helper()
		s, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: dir, Port: port, Sync: "1m"})
		must(t, err)
		t.Cleanup(s.Shutdown)
		return s
	}
	server := start(dir)
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: server.URL()})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{})
	again := func(dir string) {
		t.Helper()
		server.Shutdown()
		server = start(dir)
		for b.Ready(bustest.Context(t)) != nil {
			must(t, bustest.Context(t).Err())
		}
	}
	runs := []loop.RunID{{Tenant: "acme", Run: "a"}, {Tenant: "acme", Run: "b"}, {Tenant: "acme", Run: "c"}, {Tenant: "acme", Run: "d"}}
	begin := func(id loop.RunID) {
		t.Helper()
		mustAppend(t, b, 0, event(id, 1, loop.Note{Text: id.Run}))
		_, err := b.Save(bustest.Context(t), loop.Head{V: loop.HeadVersion, Tenant: id.Tenant, Run: id.Run}, 0)
		must(t, err)
	}
	changed := func(after loop.Cursor) (ids []string, last loop.Cursor) {
		t.Helper()
		heads, last, err := b.Changed(bustest.Context(t), after, 10)
		must(t, err)
		for _, h := range heads {
			ids = append(ids, h.Run)
		}
		return ids, last
	}
	begin(runs[0])
	server.Shutdown()
	must(t, os.CopyFS(kept, os.DirFS(dir)))
	again(dir)
	seen := tailing(t, b, 0)
	begin(runs[1])
	begin(runs[2])
	wantSeqs(t, seen, 1, 2, 3)
	ids, read := changed(loop.Cursor{})
	if diff := cmp.Diff([]string{"a", "b", "c"}, ids); diff != "" {
		t.Fatalf("states (-want +got):\n%s", diff)
	}
	if more, still := changed(read); len(more) > 0 || !still.Continues(read) || still != read {
		t.Errorf("nothing has changed, and after %v there are %v up to %v", read, more, still)
	}
	again(kept)
	begin(runs[3])
	begin(runs[1])
	begin(runs[2])
	ids, last := changed(read)
	if diff := cmp.Diff([]string{"a", "d", "b", "c"}, ids); diff != "" || last.Continues(read) {
		t.Errorf("after %v there are states up to %v (-want +got):\n%s", read, last, diff)
	}
	wantSeqs(t, seen, 2, 3, 4)
}
