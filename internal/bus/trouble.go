package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

const (
	// troubleMemory is how long a failure keeps the bus from being ready where the same thing is not tried again: as long
	// as the longest pause between two attempts of the engine.
	troubleMemory = 30 * time.Second
	// mendEvery is the least time between two attempts to make what was deleted.
	mendEvery = 2 * time.Second
)

// trouble remembers what could not be stored, fetched or acknowledged lately, by what was attempted. The server answers
// questions about a stream that takes nothing (full, on a full disk, forbidden to us) as if all were well, so only the
// attempts tell. What succeeds again is forgotten.
type trouble struct {
	mu     sync.Mutex
	faults map[string]fault
}

type fault struct {
	err error
	at  time.Time
}

// keep remembers the outcome of an attempt.
func (t *trouble) keep(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.faults, what)
		return
	}
	if t.faults == nil {
		t.faults = map[string]fault{}
	}
	t.faults[what] = fault{err, time.Now()}
}

// any reports whether something is remembered.
func (t *trouble) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.faults) > 0
}

// recent returns an error that tells of what still fails, or nil.
func (t *trouble) recent() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []error
	for what, f := range t.faults {
		age := time.Since(f.at)
		if age > troubleMemory {
			delete(t.faults, what)
			continue
		}
		all = append(all, fmt.Errorf("%s failed %d s ago: %w", what, int(age.Seconds()), f.err))
	}
	slices.SortFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(all...)
}

// noteStored is note for a publish to a stream. Where nothing fails, as nearly always, there is nothing to forget.
func (b *Bus) noteStored(subject string, err error) {
	if err != nil || b.trouble.any() {
		b.note("storing on "+area(subject), subject, true, err)
	}
}

// note judges the outcome of an attempt on a subject: whether it is the store that fails, and whether a stream has to
// be made again. Attempts that are not repeated when they fail count only where the server said that they are forbidden.
func (b *Bus) note(what, subject string, repeated bool, err error) {
	if err == nil {
		b.trouble.keep(what, nil)
		return
	}
	if blameless(err) || !b.nc.IsConnected() {
		return
	}
	word := b.forbidden(subject)
	if word != nil && (isTimeout(err) || errors.Is(err, errSilent)) {
		b.trouble.keep(what, word)
	} else if repeated {
		b.trouble.keep(what, b.explain(err))
	}
	if isGone(err) {
		b.mender.start(b)
	}
}

// blameless reports whether an error says nothing of the store: a race was lost, there is no such thing, the message
// itself is at fault, the caller went away, or the connection did.
func blameless(err error) bool {
	return isConflict(err) || errors.Is(forGood(err), loop.ErrRefused) ||
		errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrObjectNotFound) ||
		errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed)
}

// isGone reports whether no stream answers on a subject.
func isGone(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, nats.ErrNoResponders)
}

// forbidden returns the server's word that we may not use subjects like this one, if that was the last it said.
func (b *Bus) forbidden(subject string) error {
	last := b.nc.LastError()
	if errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), `"`+area(subject)) {
		return last
	}
	return nil
}

// area is the part of a subject that says what it is for: agent.event of agent.event.acme.r1.step.
func area(subject string) string {
	token := strings.SplitN(subject, ".", 3)
	return strings.Join(token[:min(len(token), 2)], ".")
}

// watchedStreams is JetStream with the outcome of every publish noted.
type watchedStreams struct {
	jetstream.JetStream
	bus *Bus
}

// PublishMsg is that of JetStream. It waits no longer than any request does.
func (w watchedStreams) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	ack, err := w.publish(ctx, msg, opts)
	if keeper := w.bus.names.keeper(msg.Subject); ack != nil && keeper != "" && ack.Stream != keeper {
		w.bus.log.Warn("the answer to another message came in place of an acknowledgement", "subject", msg.Subject, "stream", ack.Stream)
		return nil, errForeignAck // it says nothing of the store
	}
	w.bus.noteStored(msg.Subject, err)
	return ack, err
}

// errForeignAck says that the first answer to a publish was one to another message. Whoever publishes may have the server
// send the acknowledgement to any subject of the account, also to the reply subject of somebody else's publish, which
// subscribers see: such an answer must not pass for the one that was waited for.
var errForeignAck = errors.New("the answer came from another stream, so that nobody knows whether the message was stored")

// publish asks the server directly, which costs half of what the library's way does. What is out of the ordinary is left
// to the library: nobody at the subject is tried again there.
func (w watchedStreams) publish(ctx context.Context, msg *nats.Msg, opts []jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if len(opts) > 0 {
		return w.library(ctx, msg, opts...)
	}
	reply, err := w.bus.acks.request(ctx, w.bus.nc, msg)
	if errors.Is(err, nats.ErrNoResponders) {
		return w.library(ctx, msg)
	}
	if err != nil {
		return nil, err
	}
	return readAck(reply.Data)
}

func (w watchedStreams) library(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.JetStream.PublishMsg(ctx, msg, opts...)
}

// readAck reads the server's answer to a publish: {"stream":"S","seq":7} in the ordinary case.
func readAck(answer []byte) (*jetstream.PubAck, error) {
	rest, ordinary := bytes.CutPrefix(answer, []byte(`{"stream":"`))
	stream, number, cut := bytes.Cut(rest, []byte(`","seq":`))
	if digits, plain := bytes.CutSuffix(number, []byte("}")); ordinary && cut && plain {
		if seq, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 10, 64); err == nil && seq > 0 {
			return &jetstream.PubAck{Stream: string(stream), Sequence: seq}, nil
		}
	}
	var full struct {
		Error *jetstream.APIError `json:"error"`
		jetstream.PubAck
	}
	if err := json.Unmarshal(answer, &full); err != nil {
		return nil, fmt.Errorf("the answer to a publish can't be read: %w", err)
	}
	switch {
	case full.Error != nil && full.Stream == "":
		return nil, full.Error
	case full.Error != nil:
		return &full.PubAck, full.Error // a refusal too may be meant for somebody else
	case full.Sequence == 0:
		return nil, jetstream.ErrInvalidJSAck
	}
	return &full.PubAck, nil
}

// watchedBucket is a bucket with the outcome of reads and writes noted.
type watchedBucket struct {
	jetstream.KeyValue
	bus *Bus
}

func (w watchedBucket) note(what string, err error) {
	name := w.Bucket()
	w.bus.note(what+" bucket "+name, kvSubject(name, ""), true, err)
}

// Get is that of the bucket.
func (w watchedBucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	entry, err := w.KeyValue.Get(ctx, key)
	w.note("reading", err)
	return entry, err
}

// Create is that of the bucket.
func (w watchedBucket) Create(
	ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt,
) (uint64, error) {
	revision, err := w.KeyValue.Create(ctx, key, value, opts...)
	w.note("storing in", err)
	return revision, err
}

// Update is that of the bucket.
func (w watchedBucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	next, err := w.KeyValue.Update(ctx, key, value, revision)
	w.note("storing in", err)
	return next, err
}

// mender makes again what was deleted behind our back, one attempt at a time.
type mender struct {
	mu     sync.Mutex
	closed bool
	busy   bool
	last   time.Time
	wg     sync.WaitGroup
}

// start begins an attempt, unless one is under way or was just now: who needs the stream tries again and comes by here.
func (m *mender) start(b *Bus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.busy || time.Since(m.last) < mendEvery {
		return
	}
	m.busy = true
	m.wg.Go(func() {
		b.mend()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.busy, m.last = false, time.Now()
	})
}

func (m *mender) stop() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.wg.Wait()
}

// mend makes the streams and buckets that are missing, except the journal: with an empty one, runs in hand would look as
// if nothing had ever happened to them. That is for a person to decide.
func (b *Bus) mend() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	pause(ctx, filesGone)
	for _, s := range b.streams() {
		if _, err := b.js.Stream(ctx, s.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if s.Name == b.names.events {
			b.log.Error("the journal of all runs was deleted; restore it from a backup, or restart a worker to begin with an "+
				"empty one", "stream", s.Name)
			continue
		}
		if err := b.ensureStream(ctx, s, 0); err != nil {
			b.log.Error("a stream was deleted behind our back and can't be made again", "stream", s.Name, "error", b.explain(err))
			continue
		}
		b.log.Warn("a stream was deleted behind our back and has been made again; what lay in it is lost", "stream", s.Name)
	}
}
