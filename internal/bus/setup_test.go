package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func newJetStream(t *testing.T, server *bus.Embedded) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(bustest.Connect(t, server))
	must(t, err)
	return js
}

// settings are those of a stream that other programs rely on.
type settings struct {
	Subjects                 string
	Retention                jetstream.RetentionPolicy
	Discard                  jetstream.DiscardPolicy
	Window, MaxAge           time.Duration
	Schedules, Rollup, TTL   bool
	Direct                   bool
	PerSubject               int64
	MaxBytes                 int64
	Replicas, MaxMessageSize int
}

func TestSetupSettings(t *testing.T) {
	server := bustest.Server(t)
	bustest.Open(t, bustest.Connect(t, server), bus.Options{Lease: 7 * time.Second})
	js := newJetStream(t, server)
	ctx := bustest.Context(t)
	got := map[string]settings{}
	for _, name := range []string{"AGENT_TASKS", "AGENT_WAKE", "AGENT_EVENTS", "AGENT_DEAD", "KV_AGENT_RUNS"} {
		s, err := js.Stream(ctx, name)
		must(t, err)
		c := s.CachedInfo().Config
		got[name] = settings{
			strings.Join(c.Subjects, " "), c.Retention, c.Discard, c.Duplicates, c.MaxAge, c.AllowMsgSchedules, c.AllowRollup,
			c.AllowMsgTTL, c.AllowDirect, c.MaxMsgsPerSubject, c.MaxBytes, c.Replicas, int(c.MaxMsgSize),
		}
	}
	limits, queue := jetstream.LimitsPolicy, jetstream.WorkQueuePolicy
	discardNew, discardOld := jetstream.DiscardNew, jetstream.DiscardOld
	min2 := 2 * time.Minute
	want := map[string]settings{
		"AGENT_TASKS": {
			"agent.task.* agent.reply.*.* agent.control.*.*", queue, discardNew, 100 * time.Millisecond, 0,
			false, false, false, false, -1, -1, 1, -1,
		},
		"AGENT_WAKE": {
			"agent.wake.*.*.* agent.schedule.*.*.*", queue, discardOld, min2, 0, true, true, false, true, -1, -1, 1, -1,
		},
		"AGENT_EVENTS": {
			"agent.event.*.*.step agent.event.*.*.user", limits, discardNew, min2, 0, false, false, false, true, -1, -1, 1, -1,
		},
		"AGENT_DEAD": {
			"agent.dead.*.*", limits, discardNew, 10 * time.Minute, 0, false, false, false, true, -1, -1, 1, -1,
		},
		"KV_AGENT_RUNS": {"$KV.AGENT_RUNS.>", limits, discardNew, min2, 0, false, true, false, true, 1, -1, 1, -1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
	for stream, durable := range map[string]string{"AGENT_TASKS": "inbox", "AGENT_WAKE": "wakes"} {
		consumer, err := js.Consumer(ctx, stream, durable)
		must(t, err)
		c := consumer.CachedInfo().Config
		if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != 7*time.Second || c.MaxDeliver != -1 ||
			c.MaxAckPending != -1 || c.MaxWaiting != 8192 {
			t.Errorf("consumer %s: %+v", durable, c)
		}
	}
}

func TestSetupTwiceAndTogether(t *testing.T) {
	server := bustest.Server(t)
	var all errgroup.Group
	for range 4 {
		nc := bustest.Connect(t, server)
		all.Go(func() error {
			b, err := bus.Open(context.Background(), nc, bus.Options{})
			if err != nil {
				return err
			}
			defer b.Close()
			return b.Setup(context.Background())
		})
	}
	must(t, all.Wait())
}

func TestSetupUpdatesAndKeepsWhatIsTheOperators(t *testing.T) {
	server := bustest.Server(t)
	js := newJetStream(t, server)
	ctx := bustest.Context(t)
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "AGENT_TASKS", Subjects: []string{"agent.task.*"}, Retention: jetstream.WorkQueuePolicy,
		Duplicates: time.Minute, AllowRollup: true, MaxBytes: 1 << 20, Metadata: map[string]string{"team": "ops"},
	})
	must(t, err)
	_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "AGENT_RUNS", History: 5, TTL: time.Hour})
	must(t, err)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	check := func() {
		t.Helper()
		s, err := js.Stream(ctx, "AGENT_TASKS")
		must(t, err)
		c := s.CachedInfo().Config
		if len(c.Subjects) != 3 || c.Duplicates != 100*time.Millisecond || c.AllowRollup || c.Discard != jetstream.DiscardNew ||
			c.MaxBytes != 1<<20 || c.Metadata["team"] != "ops" {
			t.Errorf("stream is %+v", c)
		}
		s, err = js.Stream(ctx, "KV_AGENT_RUNS")
		must(t, err)
		if c := s.CachedInfo().Config; c.MaxMsgsPerSubject != 1 || c.MaxAge != 0 {
			t.Errorf("bucket is %+v", c)
		}
	}
	check()
	must(t, b.Setup(ctx))
	check()
	must(t, js.DeleteStream(ctx, "AGENT_EVENTS"))
	if err := b.Ready(ctx); err == nil || !strings.Contains(err.Error(), "AGENT_EVENTS") {
		t.Errorf("ready without a journal: %v", err)
	}
	must(t, b.Setup(ctx))
	must(t, b.Ready(ctx))
	mustAppend(t, b, 0, event(run1, 1, loop.Note{}))
}

func TestSetupConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		existing jetstream.StreamConfig
		consumer *jetstream.ConsumerConfig
		want     bus.ConflictError
	}{
		"retention": {
			existing: jetstream.StreamConfig{Name: "AGENT_TASKS", Subjects: []string{"agent.task.*"}},
			want:     bus.ConflictError{What: "stream AGENT_TASKS", Field: "retention", Have: "Limits", Want: "WorkQueue"},
		},
		"schedules": {
			existing: jetstream.StreamConfig{
				Name: "AGENT_TASKS", Subjects: []string{"agent.task.*"}, Retention: jetstream.WorkQueuePolicy,
				AllowMsgSchedules: true,
			},
			want: bus.ConflictError{What: "stream AGENT_TASKS", Field: "allow_msg_schedules", Have: "true", Want: "false"},
		},
		"storage": {
			existing: jetstream.StreamConfig{
				Name: "AGENT_EVENTS", Subjects: []string{"agent.event.>"}, Storage: jetstream.MemoryStorage,
			},
			want: bus.ConflictError{What: "stream AGENT_EVENTS", Field: "storage", Have: "Memory", Want: "File"},
		},
		"subjects of another stream": {
			existing: jetstream.StreamConfig{Name: "MINE", Subjects: []string{"agent.event.>"}},
			want:     bus.ConflictError{What: "stream AGENT_EVENTS"},
		},
		"consumer": {
			existing: jetstream.StreamConfig{
				Name: "AGENT_WAKE", Subjects: []string{"agent.wake.>"}, Retention: jetstream.WorkQueuePolicy,
			},
			consumer: &jetstream.ConsumerConfig{Durable: "wakes", AckPolicy: jetstream.AckExplicitPolicy, MaxWaiting: 5},
			want:     bus.ConflictError{What: "consumer wakes of stream AGENT_WAKE"},
		},
		"another consumer": {
			existing: jetstream.StreamConfig{
				Name: "AGENT_TASKS", Subjects: []string{"agent.task.*"}, Retention: jetstream.WorkQueuePolicy,
			},
			consumer: &jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckExplicitPolicy},
			want:     bus.ConflictError{What: "consumer inbox of stream AGENT_TASKS"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := bustest.Server(t)
			js := newJetStream(t, server)
			ctx := bustest.Context(t)
			s, err := js.CreateStream(ctx, c.existing)
			must(t, err)
			if c.consumer != nil {
				_, err := s.CreateConsumer(ctx, *c.consumer)
				must(t, err)
			}
			_, err = bus.Open(ctx, bustest.Connect(t, server), bus.Options{})
			var got *bus.ConflictError
			if !errors.As(err, &got) {
				t.Fatalf("error is %v, want a conflict", err)
			}
			t.Log(err)
			if (got.Err == nil) != (c.want.Field != "") {
				t.Errorf("the server's word is %v", got.Err)
			}
			got.Err = nil
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.14.0": true, "2.15.3": true, "3.0.0": true, "2.14.0-RC.1": true, "2.13.9": false, "1.99.0": false, "x": false,
	} {
		err := bus.CheckVersion(version)
		if ok != (err == nil) || err != nil && !errors.Is(err, bus.ErrServerTooOld) {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

func TestOpenRefusesOptions(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	for _, o := range []bus.Options{
		{Prefix: "Agent"}, {Prefix: "a.b"}, {Prefix: "1"}, {Replicas: 7}, {Lease: time.Millisecond},
	} {
		if _, err := bus.Open(bustest.Context(t), nc, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestPrefixesDoNotMeet(t *testing.T) {
	server := bustest.Server(t)
	one := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	two := bustest.Open(t, bustest.Connect(t, server), bus.Options{Prefix: "agent-two"})
	ctx := bustest.Context(t)
	mustAppend(t, one, 0, event(run1, 1, loop.Note{}))
	mustAppend(t, two, 0, event(run1, 1, loop.Note{}), event(run1, 2, loop.Note{}))
	_, err := one.PublishTask(ctx, "acme", []byte("{}"), "", "")
	must(t, err)
	must(t, one.Wake(ctx, run1, "k", loop.Wake{}))
	nothing(t, two.Inbox(), 100*time.Millisecond)
	nothing(t, two.Wakes(), 100*time.Millisecond)
	page, err := one.Read(ctx, run1, 0)
	if err != nil || len(page.Events) != 1 {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
	if d := fetchOne(t, one.Inbox()); d.Kind != loop.DeliverTask || d.Tenant != "acme" {
		t.Errorf("got %+v", d)
	}
}

// Three replicas on one server are refused with the reason and the ways out, whether there is something already or not; what
// there is stays as it was.
func TestThreeReplicasOnOneServer(t *testing.T) {
	server := bustest.Server(t)
	nc := bustest.Connect(t, server)
	ctx := bustest.Context(t)
	refused := func() {
		t.Helper()
		_, err := bus.Open(ctx, nc, bus.Options{Replicas: 3})
		want := "too few servers for so many replicas: stream AGENT_TASKS with 3 needs that many in one cluster, all with JetStream, and " +
			"this server stands alone (replicas > 1 not supported in non-clustered mode); use --replicas 1, or start a cluster first"
		if !errors.Is(err, bus.ErrTooFewServers) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	refused()
	b := bustest.Open(t, nc, bus.Options{})
	mustAppend(t, b, 0, event(run1, 1, loop.Note{}))
	refused()
	page, err := b.Read(ctx, run1, 0)
	if err != nil || len(page.Events) != 1 {
		t.Errorf("%d events are left of one, error %v", len(page.Events), err)
	}
	must(t, b.Ready(ctx))
}
