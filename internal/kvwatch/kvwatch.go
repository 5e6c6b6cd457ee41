// Package kvwatch follows a key-value bucket beyond the life of its server. A watch of the client library goes on after a
// restart where it was, by revisions; and where the server has lost its newest entries, to a power failure or to a restored
// backup, revisions are given a second time, and a watch passes over all entries that come before it is reached again.
package kvwatch

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// retry is how long to wait where a watch can't begin: JetStream is ready a moment after the server.
const retry = 250 * time.Millisecond

// Watch is a watch on all keys of a bucket. It must be stopped.
type Watch struct {
	nc    *nats.Conn
	kv    jetstream.KeyValue
	again func()
	opts  []jetstream.WatchOpt

	connected chan nats.Status
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// Start calls each with every entry, and with nil after those that were there before, as the client library's watch with these
// options does. Where the server has restarted the watch begins anew and calls again, if that is not nil; what each was told
// before may not be there any more, and comes once more where it is. All calls are made one after the other. Values of
// ctx are used, its end is not.
func Start(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, each func(jetstream.KeyValueEntry), again func(), opts ...jetstream.WatchOpt) (*Watch, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{nc: nc, kv: kv, again: again, opts: opts, connected: nc.StatusChanged(nats.CONNECTED), stop: stop}
	server := nc.ConnectedServerId()
	watcher, err := kv.WatchAll(ctx, opts...)
	if err != nil {
		nc.RemoveStatusListener(w.connected)
		stop()
		return nil, err
	}
	w.done.Go(func() { w.follow(ctx, server, watcher, each) })
	return w, nil
}

// Stop ends the watch. No call is made after it has returned.
func (w *Watch) Stop() {
	w.stop()
	w.done.Wait()
}

func (w *Watch) follow(ctx context.Context, server string, watcher jetstream.KeyWatcher, each func(jetstream.KeyValueEntry)) {
	defer func() { _ = watcher.Stop() }() // where the server is not told, it will see
	defer w.nc.RemoveStatusListener(w.connected)
	var later <-chan time.Time
	updates := watcher.Updates()
	for {
		select {
		case <-ctx.Done():
			return
		case entry, open := <-updates:
			if !open { // the connection is closed, or the server has ended the watch: connecting begins it again
				updates = nil
				continue
			}
			each(entry)
			continue
		case <-w.connected:
		case <-later:
		}
		now := w.nc.ConnectedServerId()
		if now == server || now == "" {
			continue
		}
		next, err := w.kv.WatchAll(ctx, w.opts...)
		if err != nil {
			later = time.After(retry)
			continue
		}
		_ = watcher.Stop() // its consumer went with the server
		server, watcher, updates = now, next, next.Updates()
		if w.again != nil {
			w.again()
		}
	}
}
