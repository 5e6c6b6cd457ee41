package loop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus/bustest"
)

// throughTheDoor waits until no task lies in the inbox.
func (r *rig) throughTheDoor() {
	r.t.Helper()
	r.eventually("all tasks are through the door", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Inbox == 0
	})
}

// As in another group, so in the flood's own: with all slots of two workers in use by runs of a dozen calls, the next task of
// another tenant begins before each slot has begun two more calls. Counted, and not timed, for a machine that is
// busy slows both down.
func TestAFloodDelaysATaskOfItsOwnGroupByAboutOneModelCall(t *testing.T) {
	const flood, slots = 2000, 8
	model := newTracked(24, time.Second)
	r := flooded(t, model, flood, slots)
	r.throughTheDoor()
	for i, tenant := range bustest.Neighbours("flood", 3) {
		before := model.count()
		r.submitAs(tenant, fmt.Sprint("single", i), "")
		model.await(t, tenant)
		calls := model.countBefore(fmt.Sprint("single", i)) - before
		t.Logf("task %d began after %d calls of %d slots", i, calls, 2*slots)
		if calls > 2*2*slots {
			t.Errorf("a single task began after %d calls of others, where there are %d slots", calls, 2*slots)
		}
	}
}

// A task behind a thousand of another tenant of its group is one of the next to begin, though slots become free all the
// time. The thousand have their turns meanwhile and begin in their order, as far as a worker with a few slots keeps one.
func TestAFloodKeepsItsOrderAndIsDoneBesideTasksOfItsGroup(t *testing.T) {
	const flood, singles, slots = 1000, 40, 4
	model := newTracked(6, time.Millisecond)
	r := rigWith(t, model)
	doorOnly := r.config()
	doorOnly.WakeQueue, doorOnly.Doors = noWork{}, 1 // several let tasks in as they come
	door := r.start(doorOnly)
	for i := range flood {
		r.submitAs("flood", fmt.Sprintf("f%04d", i), "")
	}
	r.throughTheDoor()
	for _, tenant := range bustest.Neighbours("flood", singles) {
		r.submitAs(tenant, "single-"+tenant, "")
	}
	r.throughTheDoor()
	door.stop()
	c := r.config()
	c.Concurrency = slots
	r.start(c)
	r.eventually("all is done", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Wakes == 0
	})
	order := model.order()
	if len(order) != flood+singles {
		t.Fatalf("%d runs began, want %d", len(order), flood+singles)
	}
	const few = 8 // of the flood that stand before the others, as docs/fairness.md has it
	var floods []string
	seen := 0
	for i, id := range order {
		if strings.HasPrefix(id, "f") {
			floods = append(floods, id)
		} else if seen++; seen == singles && i > few+singles+singles/4+slots {
			t.Errorf("the last of %d single tasks was number %d to begin", singles, i)
		}
	}
	sorted := slices.Sorted(slices.Values(floods))
	const apart = few + 2*slots
	for i, id := range floods {
		if at, _ := slices.BinarySearch(sorted, id); at < i-apart || at > i+apart {
			t.Errorf("run %s of the flood was number %d of it to begin", id, i)
		}
	}
}
