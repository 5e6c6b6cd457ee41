package bus_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestTheServerCountsGroupsAsWeDo(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	inbox := b.Inbox()
	groups := map[int]bool{}
	for i := range 50 {
		tenant := fmt.Sprint("tenant-", i)
		_, err := b.PublishTask(ctx, tenant, []byte("{}"), "", "")
		must(t, err)
		d := fetchOne(t, inbox)
		if d.Tenant != tenant || d.Subject != "agent.task."+tenant || d.Group != bus.GroupOf(tenant) {
			t.Errorf("task of %s: tenant %q, subject %s, group %d, want %d", tenant, d.Tenant, d.Subject, d.Group, bus.GroupOf(tenant))
		}
		groups[d.Group] = true
		must(t, d.Settler.Ack(ctx))
	}
	if len(groups) != 8 {
		t.Errorf("50 tenants are in %d groups", len(groups))
	}
}

// untilKnown waits until the consumers of a queue know of so many messages: one that was just stored may not be seen by them
// yet.
func untilKnown(t *testing.T, b *bus.Bus, stream string, want uint64) {
	t.Helper()
	for ctx := bustest.Context(t); ; {
		known, err := b.Known(ctx, stream)
		must(t, err)
		if known >= want {
			return
		}
	}
}

func TestGroupsTakeTurns(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	one, other := "acme", bustest.Stranger("acme")
	for i := range 40 {
		must(t, b.Wake(ctx, loop.RunID{Tenant: one, Run: fmt.Sprint("r", i)}, "", loop.Wake{Rank: loop.RankNormal}))
		_, err := b.PublishTask(ctx, one, []byte("{}"), "", "")
		must(t, err)
	}
	must(t, b.Wake(ctx, loop.RunID{Tenant: other, Run: "r"}, "", loop.Wake{Rank: loop.RankNormal}))
	_, err := b.PublishTask(ctx, other, []byte("{}"), "", "")
	must(t, err)
	untilKnown(t, b, "AGENT_TASKS", 41)
	untilKnown(t, b, "AGENT_WAKE", 41)
	for name, source := range map[string]*bus.Source{"wake-ups": b.Wakes(), "inbox": b.Inbox()} {
		var order []string
		for len(order) < 10 {
			must(t, source.Fetch(ctx, 2, func(d loop.Delivery) { order = append(order, d.Tenant) }))
		}
		if n := strings.Count(strings.Join(order[:4], " "), other); n != 1 {
			t.Errorf("%s: the first tenants are %v, want %s among the first", name, order, other)
		}
	}
}

// Runs that have begun go first; then the priorities have their turns, and none starves.
func TestRanks(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	for _, rank := range []loop.Rank{loop.RankLow, loop.RankNormal, loop.RankHigh, loop.RankBegun} {
		for _, tenant := range bustest.Neighbours("acme", 10) {
			wakeNew(t, b, tenant, rank, 3)
		}
	}
	untilKnown(t, b, "AGENT_WAKE", 120)
	source := b.Wakes()
	var got []loop.Rank
	for len(got) < 60 {
		must(t, source.Fetch(ctx, 1, func(d loop.Delivery) { got = append(got, d.Rank) }))
	}
	count := map[loop.Rank]int{}
	for i, rank := range got {
		if i < 30 && rank != loop.RankBegun {
			t.Fatalf("number %d is of rank %q", i, rank)
		}
		count[rank]++
	}
	want := map[loop.Rank]int{loop.RankBegun: 30, loop.RankHigh: 18, loop.RankNormal: 9, loop.RankLow: 3}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("of 60 (-want +got):\n%s", diff)
	}
}

func TestFetchFrom(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	one, other := "acme", bustest.Stranger("acme")
	for range 3 {
		must(t, b.Wake(ctx, loop.RunID{Tenant: one, Run: "r"}, "", loop.Wake{}))
	}
	must(t, b.Wake(ctx, loop.RunID{Tenant: other, Run: "r"}, "", loop.Wake{Rank: loop.RankLow}))
	untilKnown(t, b, "AGENT_WAKE", 4)
	source := b.Wakes()
	var got []string
	take := func(d loop.Delivery) bool {
		got = append(got, d.Tenant)
		return true
	}
	not := func(group int) loop.Look {
		if group == bus.GroupOf(one) {
			return loop.LookNowhere
		}
		return loop.LookFirst
	}
	must(t, source.FetchFrom(ctx, not, take))
	soon(t, "to find that there is no more", func() { must(t, source.FetchFrom(ctx, not, take)) })
	must(t, source.FetchFrom(ctx, func(int) loop.Look { return loop.LookFirst }, take))
	if diff := cmp.Diff([]string{other, one}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A deployment from before there were lanes is changed as a worker starts: what lies in its queues stays, and what a worker
// has in hand stays with it.
func TestLanesOverAnOldDeployment(t *testing.T) {
	server := bustest.Server(t)
	js := newJetStream(t, server)
	ctx := bustest.Context(t)
	for stream, c := range map[string]struct {
		consumer, filter string
		config           jetstream.StreamConfig
	}{
		"AGENT_TASKS": {"inbox", "", jetstream.StreamConfig{
			Subjects: []string{"agent.task.*", "agent.reply.*.*", "agent.control.*.*"}, Discard: jetstream.DiscardNew,
		}},
		"AGENT_WAKE": {"wakes", "agent.wake.>", jetstream.StreamConfig{
			Subjects: []string{"agent.wake.*.*.*", "agent.schedule.*.*.*"}, AllowMsgSchedules: true, AllowRollup: true,
		}},
	} {
		c.config.Name, c.config.Retention = stream, jetstream.WorkQueuePolicy
		s, err := js.CreateStream(ctx, c.config)
		must(t, err)
		_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: c.consumer, FilterSubject: c.filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: bustest.Lease,
			MaxDeliver: -1, MaxAckPending: -1, MaxWaiting: 8192,
		})
		must(t, err)
	}
	first, err := js.Publish(ctx, "agent.task.acme", []byte("{}"))
	must(t, err)
	stored, err := newStream(t, js, "AGENT_TASKS").GetMsg(ctx, first.Sequence)
	must(t, err)
	for _, subject := range []string{"agent.wake.0.acme.in-hand", "agent.wake.0.acme.waiting"} {
		_, err := js.Publish(ctx, subject, []byte("{}"))
		must(t, err)
	}
	old, err := js.Consumer(ctx, "AGENT_WAKE", "wakes")
	must(t, err)
	inHand, err := old.Next()
	must(t, err)

	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	must(t, b.Ready(ctx))
	if d := fetchOne(t, b.Inbox()); d.Tenant != "acme" || d.Subject != "agent.task.acme" || d.Kind != loop.DeliverTask {
		t.Errorf("the old task is %+v", d)
	} else if want := bus.DefaultID("AGENT_TASKS", stored.Sequence, stored.Time); d.DefaultID != want {
		t.Errorf("the old task's run has the id %s, want %s", d.DefaultID, want)
	}
	if backlog, err := b.Backlog(ctx); err != nil || backlog.Inbox != 1 {
		t.Errorf("the inbox holds %d messages, %v", backlog.Inbox, err)
	}
	wakes := b.Wakes()
	if d := fetchOne(t, wakes); d.Run != "waiting" || d.Rank != loop.RankBegun {
		t.Errorf("the wake-up is %s", d.RunID)
	}
	must(t, inHand.DoubleAck(ctx))
	meta, err := inHand.Metadata()
	must(t, err)
	gone(t, b, meta.Sequence.Stream)
	must(t, b.Wake(ctx, run1, "", loop.Wake{Rank: loop.RankHigh}))
	if d := fetchOne(t, wakes); d.RunID != run1 || d.Rank != loop.RankHigh {
		t.Errorf("the new wake-up is %s of rank %q", d.RunID, d.Rank)
	}
}

func newStream(t *testing.T, js jetstream.JetStream, name string) jetstream.Stream {
	t.Helper()
	s, err := js.Stream(bustest.Context(t), name)
	must(t, err)
	return s
}

// Each message that is acknowledged is gone, also where that happens at once and in many goroutines.
func TestAcknowledgedMessagesAreGone(t *testing.T) {
	b := bustest.Start(t)
	ctx, cancel := context.WithCancel(bustest.Context(t))
	var fetching sync.WaitGroup
	for _, source := range []*bus.Source{b.Inbox(), b.Wakes()} {
		fetching.Go(func() {
			for ctx.Err() == nil {
				if err := source.Fetch(ctx, 64, func(d loop.Delivery) { fetching.Go(func() { _ = d.Settler.Ack(ctx) }) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 300 {
		_, err := b.PublishTask(ctx, "acme", fmt.Append(nil, "{}", i), "", "")
		must(t, err)
		must(t, b.Wake(ctx, run1, "", loop.Wake{Rank: loop.RankHigh}))
	}
	for left := (bus.Backlog{Inbox: 1}); left != (bus.Backlog{}); {
		var err error
		left, err = b.Backlog(ctx)
		must(t, err)
	}
	cancel()
	fetching.Wait()
}
