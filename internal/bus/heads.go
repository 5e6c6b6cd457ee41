package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

func headKey(id loop.RunID) string { return id.Tenant + "." + id.Run }

// Load implements [loop.Heads].
func (b *Bus) Load(ctx context.Context, id loop.RunID) (loop.Head, uint64, error) {
	if err := checkRun(id); err != nil {
		return loop.Head{}, 0, fmt.Errorf("load state: %w", err)
	}
	entry, err := b.heads.Get(ctx, headKey(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return loop.Head{}, 0, fmt.Errorf("state of %s: %w", id, loop.ErrNotFound)
	} else if err != nil {
		return loop.Head{}, 0, fmt.Errorf("load state of %s: %w", id, b.explain(err))
	}
	head := readHead(id, entry.Value())
	if head.V > loop.HeadVersion {
		return loop.Head{}, entry.Revision(), fmt.Errorf("state of %s has version %d: %w", id, head.V, loop.ErrNewer)
	}
	return head, entry.Revision(), nil
}

// readHead decodes a state. What is not one, or that of another run, is unreadable.
func readHead(id loop.RunID, value []byte) loop.Head {
	var version struct {
		V int `json:"v"`
	}
	var head loop.Head
	if json.Unmarshal(value, &version) == nil && version.V > loop.HeadVersion {
		_ = json.Unmarshal(value, &head) // whatever of it is understood
		head.V, head.Tenant, head.Run = version.V, id.Tenant, id.Run
		return head
	}
	if err := json.Unmarshal(value, &head); err != nil || head.V < 1 || head.Tenant != id.Tenant || head.Run != id.Run {
		return loop.Head{Tenant: id.Tenant, Run: id.Run, Unreadable: true}
	}
	return head
}

// Save implements [loop.Heads].
func (b *Bus) Save(ctx context.Context, h loop.Head, revision uint64) (uint64, error) {
	id := loop.RunID{Tenant: h.Tenant, Run: h.Run}
	if err := checkRun(id); err != nil {
		return 0, fmt.Errorf("save state: %w", err)
	}
	value, err := json.Marshal(h)
	if err != nil {
		return 0, fmt.Errorf("save state of %s: %w", id, err)
	}
	next, err := b.setHead(ctx, id, value, revision)
	if err != nil {
		return 0, fmt.Errorf("save state of %s over revision %d: %w", id, revision, b.explain(err))
	}
	return next, nil
}

// setHead is compareAndSet for states, which are written with every run, without the library's detours.
func (b *Bus) setHead(ctx context.Context, id loop.RunID, value []byte, revision uint64) (uint64, error) {
	ack, err := b.js.PublishMsg(ctx, &nats.Msg{
		Subject: kvSubject(b.names.heads, headKey(id)), Data: value, Header: nats.Header{headerExpectedSeq: {formatSeq(revision)}},
	})
	switch {
	case err == nil:
		return ack.Sequence, nil
	case !isConflict(err):
		return 0, err
	case revision > 0:
		return 0, loop.ErrConflict
	}
	return compareAndSet(ctx, b.heads, headKey(id), value, 0) // the key may have been deleted
}

// compareAndSet writes a key if its revision is still the given one (0: there is none, or it was deleted).
func compareAndSet(
	ctx context.Context, kv jetstream.KeyValue, key string, value []byte, revision uint64,
) (next uint64, err error) {
	if revision == 0 {
		next, err = kv.Create(ctx, key, value)
	} else {
		next, err = kv.Update(ctx, key, value, revision)
	}
	if isConflict(err) || errors.Is(err, jetstream.ErrKeyExists) {
		return 0, loop.ErrConflict
	}
	return next, err
}

// Delete implements [loop.Heads]. It leaves no marker behind: the marker that the compare-and-set needs is purged, up to
// itself, so that a state created in between stays.
func (b *Bus) Delete(ctx context.Context, id loop.RunID, revision uint64) error {
	if err := checkRun(id); err != nil {
		return fmt.Errorf("delete state: %w", err)
	}
	if err := b.removeKey(ctx, b.headLog, kvSubject(b.names.heads, headKey(id)), revision); err != nil {
		return fmt.Errorf("delete state of %s at revision %d: %w", id, revision, err)
	}
	return nil
}

// removeKey removes a key of a bucket if its revision is still the given one, without a trace. log is the stream under the bucket.
func (b *Bus) removeKey(ctx context.Context, log jetstream.Stream, subject string, revision uint64) error {
	ack, err := b.js.PublishMsg(ctx, &nats.Msg{
		Subject: subject,
		Header:  nats.Header{headerKVOperation: {"DEL"}, headerExpectedSeq: {formatSeq(revision)}},
	})
	if isConflict(err) {
		return loop.ErrConflict
	} else if err != nil {
		return b.explain(err)
	}
	err = log.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(ack.Sequence+1))
	if err != nil {
		return fmt.Errorf("remove the marker: %w", b.explain(err))
	}
	return nil
}

// List implements [loop.Heads]. States of a newer version are listed as far as they are understood, with their version;
// unreadable ones with their ids.
func (b *Bus) List(ctx context.Context, tenant string, after uint64, limit int) ([]loop.Head, uint64, error) {
	if !loop.ValidID(tenant) {
		return nil, 0, fmt.Errorf("list states: %q is no valid tenant", tenant)
	}
	if limit <= 0 {
		return nil, 0, nil
	}
	var heads []loop.Head
	var last, next uint64
	prefix := kvSubject(b.names.heads, tenant+".")
	err := b.scan(ctx, kvStream(b.names.heads), prefix+">", after, func(msg stored) bool {
		if len(msg.Header[headerKVOperation]) > 0 {
			return true
		}
		if len(heads) == limit {
			next = last
			return false
		}
		last = msg.Seq
		id := loop.RunID{Tenant: tenant, Run: strings.TrimPrefix(msg.Subject, prefix)}
		heads = append(heads, readHead(id, msg.Data))
		return true
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list states of tenant %s: %w", tenant, err)
	}
	return heads, next, nil
}
