// Package bus is the adapter to NATS. It owns every NATS name (names.go) and implements the engine's seams over
// JetStream: the journal is a stream, states and conversations are key-value buckets, large results an object store,
// and what the engine has to do lies in two work queues, one for what others publish and one for wake-ups. It also
// serves the request/reply API, is its client, and can run a whole nats-server inside the process.
//
// Four streams, four buckets and a fixed number of consumers (lanes.go) are all there is; [Bus.Setup] creates them.
// Nothing is created for a tenant or for a run.
package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

var (
	_ loop.Journal    = (*Bus)(nil)
	_ loop.Heads      = (*Bus)(nil)
	_ loop.Wakes      = (*Bus)(nil)
	_ loop.Sessions   = (*Bus)(nil)
	_ loop.Blobs      = (*Bus)(nil)
	_ loop.Catalogues = (*Bus)(nil)
	_ loop.Graveyard  = (*Bus)(nil)
	_ loop.Outcomes   = (*Bus)(nil)
	_ loop.Source     = (*Source)(nil)
	_ loop.Settler    = (*settler)(nil)
)

// requestTimeout bounds a request to the server where the caller's context has no deadline.
const requestTimeout = 5 * time.Second

// Options say how a deployment is laid out. All workers of a prefix should be given the same.
type Options struct {
	Prefix   string        // of subjects, and in upper case of streams and buckets; agent
	Replicas int           // of streams and buckets; 0 means 1 for new ones and leaves existing ones as they are
	Lease    time.Duration // how long a delivery may go without a sign of life before it is delivered again; 10s
	Log      *slog.Logger  // default: nowhere
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	if o.Replicas < 0 || o.Replicas > 5 {
		return fmt.Errorf("replicas %d is not valid: use 1, 3 or 5", o.Replicas)
	}
	if o.Lease < time.Second {
		return fmt.Errorf("lease %s is not valid: use at least 1s", o.Lease)
	}
	return nil
}

// Bus implements the engine's seams over one connection. It is safe for concurrent use.
type Bus struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	names names
	opts  Options
	log   *slog.Logger

	// Handles are looked up once. They hold names, no state: they stay good when Setup makes a stream anew.
	inbox      jetstream.Stream
	journal    jetstream.Stream
	wakes      jetstream.Stream
	heads      jetstream.KeyValue
	headLog    jetstream.Stream // the stream under heads
	sessions   jetstream.KeyValue
	catalogues jetstream.KeyValue
	blobs      jetstream.ObjectStore
	blobLog    jetstream.Stream // the stream under blobs
	replicated bool             // a follower may answer reads late

	acks     acks
	floods   floods
	link     link
	outcomes outcomes
	trouble  trouble
	mender   mender
	close    sync.Once
}

// Open sets the streams, buckets and consumers up and returns a Bus over them. The connection stays the caller's; close
// the Bus before it.
func Open(ctx context.Context, nc *nats.Conn, opts Options) (*Bus, error) {
	b, err := newBus(nc, opts)
	if err != nil {
		return nil, err
	}
	if err := b.setup(ctx, b.opts.Replicas); err != nil {
		return nil, err
	}
	return b, b.lookUp(ctx)
}

// Attach returns a Bus over what workers have set up under a prefix, for an operator's tools. It creates and changes
// none of it, and fails where there is none. The connection stays the caller's; close the Bus before it.
func Attach(ctx context.Context, nc *nats.Conn, opts Options) (*Bus, error) {
	b, err := newBus(nc, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mender.stop() // whoever only looks makes nothing
	return b, b.lookUp(ctx)
}

func newBus(nc *nats.Conn, opts Options) (*Bus, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	n, err := newNames(opts.Prefix)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	b := &Bus{nc: nc, names: n, opts: opts, log: opts.Log}
	b.js = watchedStreams{js, b}
	return b, nil
}

// Close ends the Bus's own subscriptions and goroutines. It does not close the connection.
func (b *Bus) Close() {
	b.close.Do(func() {
		b.outcomes.stop()
		b.mender.stop()
		b.acks.stop()
		b.link.stop(b.nc)
	})
}

// Prefix returns the prefix of all subjects.
func (b *Bus) Prefix() string { return b.names.prefix }

func (b *Bus) lookUp(ctx context.Context) (err error) {
	streams := []struct {
		name   string
		handle *jetstream.Stream
	}{
		{b.names.tasks, &b.inbox},
		{b.names.events, &b.journal},
		{b.names.wake, &b.wakes},
		{kvStream(b.names.heads), &b.headLog},
		{objectStream(b.names.blobs), &b.blobLog},
	}
	for _, s := range streams {
		if *s.handle, err = b.js.Stream(ctx, s.name); err != nil {
			return fmt.Errorf("look up stream %s: %w", s.name, b.explain(err))
		}
	}
	for name, handle := range map[string]*jetstream.KeyValue{
		b.names.heads: &b.heads, b.names.sessions: &b.sessions, b.names.catalogues: &b.catalogues,
	} {
		bucket, err := b.js.KeyValue(ctx, name)
		if err != nil {
			return fmt.Errorf("look up bucket %s: %w", name, b.explain(err))
		}
		*handle = watchedBucket{bucket, b}
	}
	if b.blobs, err = b.js.ObjectStore(ctx, b.names.blobs); err != nil {
		return fmt.Errorf("look up object store %s: %w", b.names.blobs, err)
	}
	// In a cluster another worker may raise the replicas at any moment.
	b.replicated = b.journal.CachedInfo().Config.Replicas > 1 || b.nc.ConnectedClusterName() != ""
	return nil
}

// Codes of the API errors that mean: somebody else wrote first.
const (
	codeWrongLastSequence         = 10071 // on one replica
	codeWrongLastSequenceConstant = 10164 // on several, where the leader knows of a write still being replicated
	codeExpectedNotReady          = 10163 // another append to the subject is in flight
	codeDuplicateInProcess        = 10158 // the same, named by message id
)

// isConflict reports whether err is the server's word for a lost compare-and-set, in any of its forms.
func isConflict(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case codeWrongLastSequence, codeWrongLastSequenceConstant, codeExpectedNotReady, codeDuplicateInProcess:
		return true
	default:
		return false
	}
}

// isUndecided reports whether a lost compare-and-set was lost to a write that is still on its way to the other replicas.
func isUndecided(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && isConflict(err) && api.ErrorCode != codeWrongLastSequence
}

// refused reports whether the server answered that it did not store the message, so that the outcome is known.
func refused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api)
}

// Codes of JetStream errors that blame the message alone.
const (
	codeMessageTooLarge = 10054
	codeHeaderTooLarge  = 10097
)

// forGood marks an error that says that the message can never be stored.
func forGood(err error) error {
	var api *jetstream.APIError
	tooLarge := errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
	if tooLarge || errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: %w", loop.ErrRefused, err)
	}
	return err
}

// bounded gives a context that has no deadline one.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// Ready reports whether work can go on: the connection is up, all streams and consumers that runs need answer, and nothing
// that was to be stored, fetched or acknowledged in the last 30 s failed without having succeeded since. It is an error
// that says what does not.
func (b *Bus) Ready(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if !b.nc.IsConnected() {
		return errNotConnected
	}
	streams := []string{
		b.names.tasks, b.names.wake, b.names.events, b.names.dead,
		kvStream(b.names.heads), kvStream(b.names.sessions), objectStream(b.names.blobs),
	}
	for _, name := range streams {
		if _, err := b.js.Stream(ctx, name); err != nil {
			return fmt.Errorf("stream %s can't be reached: %w", name, b.explain(err))
		}
	}
	for stream, lanes := range map[string][]*lane{b.names.tasks: b.names.inboxLanes(), b.names.wake: b.names.wakeLanes()} {
		found, err := b.consumerNames(ctx, stream)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			if !slices.Contains(found, l.consumer) {
				return fmt.Errorf("consumer %s of stream %s is missing", l.consumer, stream)
			}
		}
	}
	return b.trouble.recent()
}

// errNotConnected says what the client library calls an exceeded buffer: nothing is buffered while it reconnects.
var errNotConnected = errors.New("not connected to NATS; reconnecting")

func (b *Bus) explain(err error) error { return explain(b.nc, err) }

// explain makes errors of the connection speak. It adds what the server said of its own accord, such as a permission
// violation, for the request that broke a permission only sees a timeout.
func explain(nc *nats.Conn, err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return errNotConnected
	}
	if !isTimeout(err) && !errors.Is(err, errSilent) {
		return err
	}
	if last := nc.LastError(); last != nil {
		return fmt.Errorf("%w (last word of the server: %w)", err, last)
	}
	if nc.IsConnected() {
		return fmt.Errorf("%w (the server did not answer; its log may say why, such as a full disk or a leader that is missing)", err)
	}
	return err
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}
