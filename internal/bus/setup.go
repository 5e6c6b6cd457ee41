package bus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The oldest server that can repeat a message schedule.
const (
	oldestMajor = 2
	oldestMinor = 14
)

// ErrServerTooOld says that the server lacks message schedules with repetition.
var ErrServerTooOld = errors.New("nats-server is too old")

// ErrTooFewServers says that there are fewer servers than replicas were asked for.
var ErrTooFewServers = errors.New("too few servers for so many replicas")

// ConflictError says that a stream or consumer of our name exists and is set up in a way that can't be changed.
type ConflictError struct {
	What  string // stream AGENT_TASKS, or consumer inbox of stream AGENT_TASKS
	Field string // empty where only the server knows; Err then says what it said
	Have  string
	Want  string
	Err   error // the server's word, or nil
}

// Error names what conflicts, both values, and the ways out.
func (e *ConflictError) Error() string {
	advice := "use another --prefix, or move what it holds elsewhere and remove it"
	if e.Field == "" {
		return fmt.Sprintf("%s conflicts with what already exists: %v; %s", e.What, e.Err, advice)
	}
	return fmt.Sprintf("%s exists with %s %s where %s is needed, and the server can't change that; %s",
		e.What, e.Field, e.Have, e.Want, advice)
}

// Unwrap returns the server's word.
func (e *ConflictError) Unwrap() error { return e.Err }

// Setup creates what is missing of the streams, buckets and consumers and updates what differs, except for the number of
// replicas, which [Open] alone changes: a worker that has run for long may not know the latest. It may be called again
// at any time and by many workers at once. It fails with [*ConflictError], [ErrServerTooOld] and [ErrTooFewServers].
func (b *Bus) Setup(ctx context.Context) error { return b.setup(ctx, 0) }

// filesGone is how long after a deletion nats-server may still be busy with the files of a stream. One that is made in their
// place meanwhile can lose its own, and takes nothing any more: seen with 2.15.3.
const filesGone = 250 * time.Millisecond

// SetupAgain is Setup for what was deleted just now.
func (b *Bus) SetupAgain(ctx context.Context) error {
	pause(ctx, filesGone)
	return b.Setup(ctx)
}

// setup is Setup with a number of replicas for what exists; 0 leaves them as they are.
func (b *Bus) setup(ctx context.Context, replicas int) error {
	if err := checkVersion(b.nc.ConnectedServerVersion()); err != nil {
		return err
	}
	for _, s := range b.streams() {
		if err := b.ensureStream(ctx, s, replicas); err != nil {
			return err
		}
	}
	if err := b.ensureConsumers(ctx, b.names.tasks, b.names.inboxLanes()); err != nil {
		return err
	}
	if err := b.ensureConsumers(ctx, b.names.wake, b.names.wakeLanes()); err != nil {
		return err
	}
	return b.moveOldTasks(ctx)
}

func checkVersion(version string) error {
	if version == "" {
		return errors.New("check the server's version: not connected to NATS")
	}
	part := strings.SplitN(version, ".", 3)
	if len(part) == 3 {
		major, err1 := strconv.Atoi(part[0])
		minor, err2 := strconv.Atoi(part[1])
		if err1 == nil && err2 == nil && (major > oldestMajor || major == oldestMajor && minor >= oldestMinor) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is %s, and message schedules need %d.%d or newer; upgrade it, or use --embedded",
		ErrServerTooOld, version, oldestMajor, oldestMinor)
}

// layout is a stream as it has to be. Limits on bytes, messages and message size are the operator's unless the field
// unlimited is set, as are placement, compression and metadata.
type layout struct {
	jetstream.StreamConfig
	unlimited bool
	keepAge   bool                        // the operator may limit the age of its messages; else MaxAge does
	create    func(context.Context) error // nil: as a plain stream
}

func (b *Bus) streams() []layout {
	n := b.names
	return []layout{
		{
			// What strangers publish: no schedules, no rollup, no per-message TTL, so that their headers have no power. The
			// window in which equal message ids are one message is as short as the server allows, for it spans all tenants.
			StreamConfig: jetstream.StreamConfig{
				Name: n.tasks, Description: "tasks, replies and controls", Subjects: n.tasksSubjects(),
				Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, Duplicates: 100 * time.Millisecond,
				SubjectTransform: n.spread(),
			},
		},
		{
			// A stream with schedules can't discard new messages, and discarding old ones would lose wake-ups: hence no limits.
			StreamConfig: jetstream.StreamConfig{
				Name: n.wake, Description: "wake-ups and schedules", Subjects: n.wakeSubjects(),
				Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld, Duplicates: 2 * time.Minute,
				AllowMsgSchedules: true, AllowRollup: true, AllowDirect: true,
			},
			unlimited: true,
		},
		{
			StreamConfig: jetstream.StreamConfig{
				Name: n.events, Description: "journal and event feed", Subjects: n.eventsSubjects(),
				Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, AllowDirect: true,
			},
		},
		{
			StreamConfig: jetstream.StreamConfig{
				Name: n.dead, Description: "dead letters", Subjects: n.deadSubjects(),
				Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Duplicates: 10 * time.Minute, AllowDirect: true,
			},
			keepAge: true,
		},
		b.bucket(n.heads, "states of runs", 0),
		b.bucket(n.sessions, "conversations", 0),
		b.bucket(n.catalogues, "what tools say of themselves", 0),
		b.bucket(n.pace, "when endpoints take requests again", paceTTL),
		{
			StreamConfig: jetstream.StreamConfig{
				Name:      objectStream(n.blobs),
				Subjects:  []string{objectChunks(n.blobs, ">"), objectMeta(n.blobs, ">")},
				Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, AllowDirect: true, AllowRollup: true,
			},
			create: func(ctx context.Context) error {
				_, err := b.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
					Bucket: n.blobs, Description: "large results", Replicas: b.opts.Replicas,
				})
				return err
			},
		},
	}
}

// bucket is the layout of a key-value bucket that keeps the last value of each key, for ever where ttl is 0.
func (b *Bus) bucket(name, description string, ttl time.Duration) layout {
	return layout{
		StreamConfig: jetstream.StreamConfig{
			Name: kvStream(name), Subjects: []string{kvSubject(name, ">")}, MaxMsgsPerSubject: 1, MaxAge: ttl,
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, AllowDirect: true, AllowRollup: true,
		},
		create: func(ctx context.Context) error {
			_, err := b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
				Bucket: name, Description: description, History: 1, TTL: ttl, Replicas: b.opts.Replicas,
			})
			return err
		},
	}
}

func (b *Bus) ensureStream(ctx context.Context, want layout, replicas int) error {
	s, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err = b.createStream(ctx, want); err == nil {
			return nil
		}
		// Another worker may have been quicker, or the subjects belong to somebody else.
		cause := err
		if err := b.tooFew(want.Name, cause); err != nil {
			return err
		}
		if s, err = b.js.Stream(ctx, want.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
			return &ConflictError{What: "stream " + want.Name, Err: cause}
		}
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", want.Name, b.explain(err))
	}
	have := s.CachedInfo().Config
	if conflict := want.conflict(have); conflict != nil {
		return conflict
	}
	next := want.over(have, replicas)
	if reflect.DeepEqual(next, have) {
		return nil
	}
	if _, err := b.js.UpdateStream(ctx, next); b.tooFew(want.Name, err) != nil {
		return b.tooFew(want.Name, err)
	} else if refused(err) {
		return &ConflictError{What: "stream " + want.Name, Err: err}
	} else if err != nil {
		return fmt.Errorf("update stream %s: %w", want.Name, b.explain(err))
	}
	b.log.Info("stream updated", "stream", want.Name)
	return nil
}

// Codes of JetStream errors that say that there are too few servers.
const (
	codeNotClustered = 10074
	codeNoPeers      = 10005
)

// tooFew returns an error that says so where the server refused a stream because it lacks others for the replicas.
func (b *Bus) tooFew(stream string, err error) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != codeNotClustered && api.ErrorCode != codeNoPeers {
		return nil
	}
	have := "not so many of this one answer"
	if api.ErrorCode == codeNotClustered {
		have = "this server stands alone"
	}
	return fmt.Errorf("%w: stream %s with %d needs that many in one cluster, all with JetStream, and %s (%s); use --replicas 1, or "+
		"start a cluster first", ErrTooFewServers, stream, b.opts.Replicas, have, api.Description)
}

func (b *Bus) createStream(ctx context.Context, want layout) error {
	if want.create != nil {
		return want.create(ctx)
	}
	_, err := b.js.CreateStream(ctx, want.over(want.StreamConfig, max(b.opts.Replicas, 1)))
	return err
}

// conflict returns the first setting of an existing stream that is not as it has to be and can't be changed.
func (l layout) conflict(have jetstream.StreamConfig) error {
	fixed := []struct {
		field      string
		have, want any
		wrong      bool
	}{
		{"retention", have.Retention, l.Retention, have.Retention != l.Retention},
		{"storage", have.Storage, l.Storage, have.Storage != l.Storage},
		{"allow_msg_schedules", have.AllowMsgSchedules, l.AllowMsgSchedules, have.AllowMsgSchedules && !l.AllowMsgSchedules},
		{"allow_msg_ttl", have.AllowMsgTTL, false, have.AllowMsgTTL && l.ttlHarms()},
		{"deny_purge", have.DenyPurge, false, have.DenyPurge},
		{"sealed", have.Sealed, false, have.Sealed},
		{"mirror", have.Mirror != nil, false, have.Mirror != nil},
	}
	for _, f := range fixed {
		if f.wrong {
			return &ConflictError{
				What: "stream " + l.Name, Field: f.field, Have: fmt.Sprint(f.have), Want: fmt.Sprint(f.want),
			}
		}
	}
	return nil
}

// ttlHarms reports whether strangers publish to the stream: a TTL of theirs could remove a message unseen.
func (l layout) ttlHarms() bool {
	return l.Retention == jetstream.WorkQueuePolicy && !l.AllowMsgSchedules
}

// over returns an existing configuration with our settings laid over it.
func (l layout) over(have jetstream.StreamConfig, replicas int) jetstream.StreamConfig {
	c := have
	c.Subjects = l.Subjects
	c.Discard = l.Discard
	c.DiscardNewPerSubject = false
	c.AllowDirect = l.AllowDirect
	c.AllowRollup = l.AllowRollup
	c.AllowMsgSchedules = l.AllowMsgSchedules
	c.NoAck = false
	if l.SubjectTransform != nil {
		c.SubjectTransform = l.SubjectTransform
	}
	c.MaxMsgsPerSubject = -1
	if l.MaxMsgsPerSubject > 0 {
		c.MaxMsgsPerSubject = l.MaxMsgsPerSubject
	}
	if l.Duplicates > 0 {
		c.Duplicates = l.Duplicates
	}
	if !l.keepAge {
		c.MaxAge = l.MaxAge
	}
	if l.unlimited {
		c.MaxMsgs, c.MaxBytes, c.MaxMsgSize, c.MaxConsumers = -1, -1, -1, -1
	}
	if replicas > 0 {
		c.Replicas = replicas
	}
	return c
}

// ensureConsumers creates the consumers of lanes that are missing and updates those that differ. Consumers of a queue may
// not overlap, so the first of them, which a version without lanes made for the whole queue, is narrowed before the others.
func (b *Bus) ensureConsumers(ctx context.Context, stream string, lanes []*lane) error {
	found, err := b.consumers(ctx, stream)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		want := b.consumer(l)
		if have := found[l.consumer]; have != nil && sameConsumer(have.Config, want) {
			continue
		}
		_, err := b.js.CreateOrUpdateConsumer(ctx, stream, want)
		what := fmt.Sprintf("consumer %s of stream %s", l.consumer, stream)
		if refused(err) || errors.Is(err, jetstream.ErrNotPullConsumer) {
			return &ConflictError{What: what, Err: err}
		} else if err != nil {
			return fmt.Errorf("create or update %s: %w", what, b.explain(err))
		}
	}
	return nil
}

// consumer is the durable consumer of a lane. There is no limit on deliveries: beyond one, a message would stay in the
// stream in silence.
func (b *Bus) consumer(l *lane) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable:       l.consumer,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       b.opts.Lease,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    8192,
	}
	if len(l.filters) == 1 {
		c.FilterSubject = l.filters[0]
	} else {
		c.FilterSubjects = l.filters
	}
	return c
}

// sameConsumer reports whether all that we set of a consumer is as we want it.
func sameConsumer(have, want jetstream.ConsumerConfig) bool {
	return have.FilterSubject == want.FilterSubject && slices.Equal(have.FilterSubjects, want.FilterSubjects) &&
		have.AckPolicy == want.AckPolicy && have.AckWait == want.AckWait && have.MaxDeliver == want.MaxDeliver &&
		have.MaxAckPending == want.MaxAckPending && have.MaxWaiting == want.MaxWaiting
}
