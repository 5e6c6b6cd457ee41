package bus_test

import (
	"fmt"
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// A door that takes one task after another from floods takes those of another tenant of their group before most of them, in
// their order and each once.
func TestTheDoorLooksPastAFlood(t *testing.T) {
	t.Run("of one tenant", func(t *testing.T) { looksPast(t, []string{"acme"}) })
	t.Run("of three tenants", func(t *testing.T) { looksPast(t, append(bustest.Neighbours("acme", 3)[1:], "acme")) })
}

func looksPast(t *testing.T, floods []string) {
	const flood, singles = 400, 3
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	near := bustest.Neighbours("acme", 1)[0]
	ids := map[string]bool{}
	publish := func(tenant string, n int) {
		for range n {
			at, err := b.PublishTask(ctx, tenant, []byte("{}"), "", "")
			must(t, err)
			ids[fmt.Sprint(at.Seq)] = true
		}
	}
	for i := range flood {
		publish(floods[i%len(floods)], 1)
	}
	publish(near, singles)
	untilKnown(t, b, "AGENT_TASKS", flood+singles)
	inbox := b.Inbox()
	last, found := uint64(0), 0
	for n := 0; n < flood+singles; {
		must(t, inbox.Fetch(ctx, 1, func(d loop.Delivery) {
			n++
			if !ids[fmt.Sprint(d.Seq)] {
				t.Errorf("task %d was handed out twice", d.Seq)
			}
			delete(ids, fmt.Sprint(d.Seq))
			if d.Tenant == near {
				found++
				if d.Seq < last || n > flood/2 {
					t.Errorf("task %d came as number %d after task %d", d.Seq, n, last)
				}
				last = d.Seq
				if want := bus.DefaultID(d.Stream, d.Seq, d.Time); d.DefaultID != want || d.Subject != "agent.task."+near ||
					d.Kind != loop.DeliverTask || d.Group != bus.GroupOf(near) || d.Attempt != 1 {
					t.Errorf("it is %+v", d)
				}
			}
			must(t, d.Settler.Ack(ctx))
		}))
	}
	if found != singles {
		t.Errorf("%d tasks of the other tenant were handed out", found)
	}
	for backlog := (bus.Backlog{Inbox: 1}); backlog.Inbox > 0; {
		var err error
		backlog, err = b.Backlog(ctx)
		must(t, err)
	}
}

// Where the lane delivers what the door has from behind a flood, too, both are the same task, and settling one settles both.
func TestATaskFromBehindAFloodIsTheOneThatItsLaneDelivers(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	near := bustest.Neighbours("acme", 1)[0]
	for range 100 {
		_, err := b.PublishTask(ctx, "acme", []byte("{}"), "", "")
		must(t, err)
	}
	_, err := b.PublishTask(ctx, near, []byte("{}"), "", "")
	must(t, err)
	untilKnown(t, b, "AGENT_TASKS", 101)
	taken := func(source *bus.Source) (of loop.Delivery) {
		for of.Tenant != near {
			must(t, source.Fetch(ctx, 1, func(d loop.Delivery) {
				if of = d; d.Tenant != near {
					must(t, d.Settler.Ack(ctx))
				}
			}))
		}
		return of
	}
	early := taken(b.Inbox())
	var late loop.Delivery
	other := b.Inbox()
	for late.Tenant != near {
		must(t, other.Fetch(ctx, 16, func(d loop.Delivery) {
			if late = d; d.Tenant != near {
				must(t, d.Settler.Ack(ctx))
			}
		}))
	}
	if early.Seq != late.Seq || !early.Time.Equal(late.Time) || early.DefaultID != late.DefaultID || early.Subject != late.Subject {
		t.Errorf("the two are %+v and %+v", early, late)
	}
	must(t, late.Settler.Ack(ctx))
	gone := func() bool {
		backlog, err := b.Backlog(ctx)
		must(t, err)
		return backlog.Inbox == 0
	}
	for !gone() {
	}
	must(t, early.Settler.Ack(ctx))
}
