package bus

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// link knows when the connection goes down and comes back, so that whoever waits for messages does not have to find out by
// their silence, and asks again at once when it is back. Its zero value is ready for use.
type link struct {
	begin   sync.Once
	events  chan nats.Status
	watched chan struct{} // closed when watch has ended

	mu   sync.Mutex
	down chan struct{} // closed when the connection that is up now has gone down
	up   chan struct{} // closed when it has come back; nil while it is up
}

// follow begins to watch the connection, once.
func (l *link) follow(nc *nats.Conn) {
	l.begin.Do(func() {
		l.down, l.watched = make(chan struct{}), make(chan struct{})
		l.events = nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
		l.note(nc.IsConnected())
		go l.watch(nc)
	})
}

func (l *link) watch(nc *nats.Conn) {
	defer close(l.watched)
	for status := range l.events {
		if status != nats.CONNECTED {
			l.note(false) // also where it is up again already: what was asked for before is lost
		}
		l.note(nc.IsConnected())
	}
}

func (l *link) note(connected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case connected && l.up != nil:
		close(l.up)
		l.up, l.down = nil, make(chan struct{})
	case !connected && l.up == nil:
		close(l.down)
		l.up = make(chan struct{})
	}
}

// await waits until the connection is up, and returns a channel that is closed when it goes down. It gives up with
// errNotConnected after a while, and where ctx ends with that.
func (l *link) await(ctx context.Context, patience time.Duration) (down <-chan struct{}, err error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		down, up := l.down, l.up
		l.mu.Unlock()
		if up == nil {
			return down, nil
		}
		select {
		case <-up:
		case <-timeout.C:
			return nil, errNotConnected
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// stop ends the watch.
func (l *link) stop(nc *nats.Conn) {
	l.begin.Do(func() {}) // none begins from now on
	if l.events != nil {
		nc.RemoveStatusListener(l.events)
		<-l.watched
	}
}
