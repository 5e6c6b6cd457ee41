// Package embedded keeps facts in a JetStream key-value bucket and finds them by words (BM25): what is used where no
// Weaviate is configured. Nothing but NATS is needed.
//
// The bucket is the truth: one key for each fact, <tenant>.<digest of tenant and user>.<id>. To search, a worker reads a
// user's facts from it once and keeps a full-text index of them in memory; a watch on the bucket keeps such indexes
// current on every worker. An index holds the facts of one user alone, so that no query can reach, nor be ranked by,
// another's. Indexes that were not used for longest are dropped when there are too many; the next recall makes them
// again. What an index finds is read from the bucket before it is returned: a fact that was forgotten a moment ago is
// never shown.
package embedded

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"ratchet/internal/kvwatch"
	"ratchet/internal/memory"
)

// Config of a store.
type Config struct {
	Bucket   string // must be set: AGENT_FACTS
	Replicas int    // of the bucket; 0 means 1 for a new one and leaves an existing one as it is
	Users    int    // users whose facts are kept in memory for searching; 500
	Facts    int    // facts that are kept in memory for searching, of all users; 200,000
	Now      func() time.Time
	Log      *slog.Logger // nil: no log
}

// Store keeps facts in a bucket. It must be closed.
type Store struct {
	kv      jetstream.KeyValue
	now     func() time.Time
	log     *slog.Logger
	indexes *indexes

	watch *kvwatch.Watch
	stop  context.CancelFunc
}

var _ memory.Store = (*Store)(nil)

// Open opens the bucket, makes it where it is missing, and follows it. A bucket that exists is left as it is set up, except for
// its replicas.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	kv, err := js.KeyValue(ctx, cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: cfg.Bucket, Description: "facts", History: 1, Replicas: cmp.Or(cfg.Replicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another worker was quicker
			kv, err = js.KeyValue(ctx, cfg.Bucket)
		}
	}
	if err == nil {
		err = replicate(ctx, js, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", cfg.Bucket, err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{kv: kv, now: cfg.Now, log: cfg.Log, stop: stop}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.indexes = newIndexes(life, cmp.Or(cfg.Users, 500), cmp.Or(cfg.Facts, 200_000), s.readAll)
	s.watch, err = kvwatch.Start(ctx, js.Conn(), kv, s.learn, s.indexes.dropAll, jetstream.UpdatesOnly())
	if err != nil {
		stop()
		return nil, fmt.Errorf("follow bucket %s: %w", cfg.Bucket, err)
	}
	return s, nil
}

// replicate gives the bucket the replicas that were asked for.
func replicate(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	if cfg.Replicas == 0 {
		return nil
	}
	stream, err := js.Stream(ctx, "KV_"+cfg.Bucket)
	if err != nil {
		return err
	}
	c := stream.CachedInfo().Config
	if c.Replicas == cfg.Replicas {
		return nil
	}
	c.Replicas = cfg.Replicas
	_, err = js.UpdateStream(ctx, c)
	return err
}

// Close stops following the bucket and drops what is in memory. The connection stays open.
func (s *Store) Close() {
	s.stop()
	s.watch.Stop()
	s.indexes.close()
}

// learn keeps the index of an entry's user current.
func (s *Store) learn(entry jetstream.KeyValueEntry) {
	if entry != nil {
		s.indexes.apply(userKey(scopeOf(entry.Key())), []change{s.changeOf(entry)})
	}
}

// scope is tenant and user as they stand in a key.
type scope string

func scopeFor(tenant, user string) scope {
	digest := uuid.NewSHA1(scopeSpace, []byte(tenant+"\x00"+user))
	return scope(tenant + "." + strings.ReplaceAll(digest.String(), "-", ""))
}

// scopeSpace is the namespace of the digests in keys, for ever.
var scopeSpace = uuid.MustParse("c2b3c9e4-5a5e-5d07-8c0f-6d2a1f0b7e35")

func scopeOf(key string) scope { return scope(key[:max(strings.LastIndexByte(key, '.'), 0)]) }

func (s scope) key(id string) string { return string(s) + "." + id }

// record is a fact as it is stored. Stored JSON only grows.
type record struct {
	V        int       `json:"v"`
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`
	Text     string    `json:"text"`
	Kind     string    `json:"kind"`
	Run      string    `json:"run,omitempty"`
	Created  time.Time `json:"created"`
	LastUsed time.Time `json:"last_used,omitzero"`
	Replaced time.Time `json:"replaced,omitzero"`
}

func (r record) fact() memory.Fact {
	return memory.Fact{ID: r.ID, Text: r.Text, Kind: r.Kind, SourceRun: r.Run, Created: r.Created, LastUsed: r.LastUsed, Replaced: r.Replaced}
}

func decode(entry jetstream.KeyValueEntry) (r record, err error) {
	if err := json.Unmarshal(entry.Value(), &r); err != nil {
		return r, fmt.Errorf("read fact %s: %w", entry.Key(), err)
	}
	if want := scopeFor(r.Tenant, r.User).key(r.ID); entry.Key() != want {
		return r, fmt.Errorf("fact %s holds the fact of another key, %s", entry.Key(), want)
	}
	return r, nil
}

// changeOf is what an entry means to an index. What can't be read is not found.
func (s *Store) changeOf(entry jetstream.KeyValueEntry) change {
	c := change{key: entry.Key(), revision: entry.Revision()}
	if entry.Operation() != jetstream.KeyValuePut {
		return c
	}
	r, err := decode(entry)
	if err != nil {
		s.log.Warn("a fact is left out", "error", err)
		return c
	}
	if r.Replaced.IsZero() {
		c.text = r.Text
	}
	return c
}

// load returns a fact and its revision.
func (s *Store) load(ctx context.Context, sc scope, id string) (record, uint64, error) {
	entry, err := s.kv.Get(ctx, sc.key(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return record{}, 0, fmt.Errorf("%s: %w", id, memory.ErrNotFound)
	}
	if err != nil {
		return record{}, 0, explain("read a fact", err)
	}
	r, err := decode(entry)
	return r, entry.Revision(), err
}

// entries reads all facts of a user, in the order of their last change.
func (s *Store) entries(ctx context.Context, sc scope) (entries []jetstream.KeyValueEntry, err error) {
	w, err := s.kv.Watch(ctx, sc.key("*"), jetstream.IgnoreDeletes())
	if err != nil {
		return nil, explain("read a user's facts", err)
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("read a user's facts: %w", context.Cause(ctx))
		case entry, open := <-w.Updates():
			if !open {
				return nil, fmt.Errorf("read a user's facts: %w: the connection was closed", memory.ErrUnreachable)
			}
			if entry == nil {
				return entries, nil
			}
			entries = append(entries, entry)
		}
	}
}

func (s *Store) readAll(ctx context.Context, u userKey) ([]change, error) {
	entries, err := s.entries(ctx, scope(u))
	if err != nil {
		return nil, err
	}
	changes := make([]change, len(entries))
	for i, entry := range entries {
		changes[i] = s.changeOf(entry)
	}
	return changes, nil
}

// Recall implements [memory.Store]. The score is the one of BM25 as a part of the best one's.
func (s *Store) Recall(ctx context.Context, tenant, user, query string, k int) ([]memory.Fact, error) {
	if err := memory.CheckScope(tenant, user); err != nil {
		return nil, err
	}
	sc := scopeFor(tenant, user)
	hits, err := s.indexes.search(ctx, userKey(sc), query, k)
	if err != nil {
		return nil, fmt.Errorf("search facts: %w", err)
	}
	facts := make([]memory.Fact, len(hits))
	var group errgroup.Group
	group.SetLimit(8)
	for i, hit := range hits {
		group.Go(func() error {
			r, _, err := s.load(ctx, sc, hit.id)
			if errors.Is(err, memory.ErrNotFound) || err == nil && !r.Replaced.IsZero() {
				return nil // since it was found
			}
			facts[i] = r.fact()
			facts[i].Score = hit.score
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	held := facts[:0]
	for _, f := range facts {
		if f.ID != "" && len(held) < k {
			held = append(held, f)
		}
	}
	return held, nil
}

// explain translates an error of NATS.
func explain(doing string, err error) error {
	for _, away := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, nats.ErrConnectionClosed, nats.ErrDisconnected, nats.ErrNoServers,
		jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrJetStreamNotEnabled,
	} {
		if errors.Is(err, away) {
			return fmt.Errorf("%s: %w: %w", doing, memory.ErrUnreachable, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
