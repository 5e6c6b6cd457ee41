package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/kvwatch"
	"ratchet/internal/loop"
)

const (
	// paceTTL is how long a hold is kept, and the longest there can be.
	paceTTL = 24 * time.Hour
	// paceTimeout bounds the telling of a hold to the others.
	paceTimeout = time.Second
	paceTries   = 4
	// paceKeys bounds what is kept in memory. Keys name endpoints and models, of which tasks can name any.
	paceKeys = 4096
)

// Pace is what all workers know together of when something takes requests again, such as the endpoint of a model. A hold
// of one worker is known to the others within moments, by way of a bucket that each of them watches. All of it is best
// effort. It is safe for concurrent use.
type Pace struct {
	bus    *Bus
	bucket jetstream.KeyValue
	watch  *kvwatch.Watch

	mu    sync.Mutex
	holds map[string]hold // by the bucket's key
}

type hold struct {
	until    time.Time
	revision uint64 // of the bucket's entry; 0 where none is known
}

// Pace returns the shared pace, with all holds there are. Close it before the bus.
func (b *Bus) Pace(ctx context.Context) (*Pace, error) {
	bucket, err := b.js.KeyValue(ctx, b.names.pace)
	if err != nil {
		return nil, fmt.Errorf("look up bucket %s: %w", b.names.pace, b.explain(err))
	}
	p := &Pace{bus: b, bucket: bucket, holds: map[string]hold{}}
	known := make(chan struct{})
	all := sync.OnceFunc(func() { close(known) })
	p.watch, err = kvwatch.Start(ctx, b.nc, bucket, func(entry jetstream.KeyValueEntry) {
		if entry == nil {
			all()
			return
		}
		p.learn(entry.Key(), entry)
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("watch bucket %s: %w", b.names.pace, b.explain(err))
	}
	select {
	case <-known:
		return p, nil
	case <-ctx.Done():
		p.Close()
		return nil, fmt.Errorf("read bucket %s: %w", b.names.pace, context.Cause(ctx))
	}
}

// Close ends the watch. What is known stays known.
func (p *Pace) Close() {
	p.watch.Stop()
}

// learn takes in a stored entry. One that is no time, or that was deleted, says nothing.
func (p *Pace) learn(key string, entry jetstream.KeyValueEntry) {
	until, err := time.Parse(time.RFC3339Nano, string(entry.Value()))
	if err != nil {
		until = time.Time{}
	}
	p.keep(key, until, entry.Revision())
}

// keep enters a hold that does not end earlier than the one known, and returns the one that is then in force.
func (p *Pace) keep(key string, until time.Time, revision uint64) hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, known := p.holds[key]
	if !known && len(p.holds) >= paceKeys {
		p.forgetPast()
	}
	if longest := time.Now().Add(paceTTL); until.After(longest) {
		until = longest
	}
	if until.After(h.until) {
		h.until = until
	}
	h.revision = max(h.revision, revision)
	p.holds[key] = h
	return h
}

// forgetPast makes room: holds that are over go, and all where none is.
func (p *Pace) forgetPast() {
	for key, h := range p.holds {
		if time.Now().After(h.until) {
			delete(p.holds, key)
		}
	}
	if len(p.holds) >= paceKeys {
		clear(p.holds) // learnt again at the cost of one refusal each
	}
}

// NotBefore returns the latest time of all holds on a key, past ones too where they are known; the zero time where there
// was none. It answers from memory.
func (p *Pace) NotBefore(_ context.Context, key string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds[paceKey(key)].until
}

// Hold asks everybody to send nothing for the key before until, at most a day from now. An earlier hold that ends later
// stays in force. It returns when the others have been told, or after a second without.
func (p *Pace) Hold(ctx context.Context, key string, until time.Time) {
	ctx, cancel := context.WithTimeout(ctx, paceTimeout)
	defer cancel()
	if err := p.store(ctx, paceKey(key), until); err != nil {
		p.bus.log.Debug("a hold on an endpoint is known to this worker alone", "until", until, "error", err)
	}
}

// store writes the hold over the revision that is known, and reads where somebody else wrote first.
func (p *Pace) store(ctx context.Context, key string, until time.Time) error {
	h := p.keep(key, until, 0)
	for range paceTries {
		value := h.until.UTC().Format(time.RFC3339Nano)
		revision, err := compareAndSet(ctx, p.bucket, key, []byte(value), h.revision)
		if err == nil {
			p.keep(key, h.until, revision)
			return nil
		}
		if !errors.Is(err, loop.ErrConflict) {
			return err
		}
		switch entry, err := p.bucket.Get(ctx, key); {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			h.revision = 0 // it is older than the bucket keeps
		case err != nil:
			return err
		default:
			p.learn(key, entry)
			stored, err := time.Parse(time.RFC3339Nano, string(entry.Value()))
			if err == nil && !stored.Before(h.until) {
				return nil
			}
			h.revision = entry.Revision()
		}
	}
	return errors.New("others write all the time")
}

// paceKey makes a key of the bucket of any text, such as a URL.
func paceKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}
