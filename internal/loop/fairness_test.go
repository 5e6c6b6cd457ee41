package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// tracked is a model that takes its time, answers after a few turns, and notes whom it was asked for.
type tracked struct {
	instantModel
	takes time.Duration

	mu    sync.Mutex
	calls int
	asked []loop.RunID // each run once, in the order of first calls
	at    []int        // how many calls there had been before each of those
	now   map[string]int
	most  map[string]int // by tenant, calls under way at once
	first chan loop.RunID
}

func newTracked(steps int, takes time.Duration) *tracked {
	return &tracked{
		instantModel: instantModel{steps: steps}, takes: takes, now: map[string]int{}, most: map[string]int{},
		first: make(chan loop.RunID, 1<<15),
	}
}

func (m *tracked) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	m.mu.Lock()
	if !slices.Contains(m.asked, r.Run) {
		m.asked, m.at = append(m.asked, r.Run), append(m.at, m.calls)
		m.first <- r.Run
	}
	m.calls++
	m.now[r.Run.Tenant]++
	m.most[r.Run.Tenant] = max(m.most[r.Run.Tenant], m.now[r.Run.Tenant])
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.now[r.Run.Tenant]--
	}()
	select {
	case <-time.After(m.takes):
	case <-ctx.Done():
		return loop.ModelReply{}, context.Cause(ctx)
	}
	return m.instantModel.Complete(ctx, r)
}

func (m *tracked) order() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, id := range m.asked {
		out = append(out, id.Run)
	}
	return out
}

// count is how many calls there have been.
func (m *tracked) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// countBefore is how many calls there had been before the first for a run.
func (m *tracked) countBefore(run string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[slices.IndexFunc(m.asked, func(id loop.RunID) bool { return id.Run == run })]
}

// await waits until the model has been asked for a run of the tenant.
func (m *tracked) await(t *testing.T, tenant string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case id := <-m.first:
			if id.Tenant == tenant {
				return
			}
		case <-timeout:
			t.Fatalf("the model was not asked for tenant %s", tenant)
		}
	}
}

func rigWith(t *testing.T, model loop.Model) *rig {
	nc := bustest.Connect(t, bustest.Server(t))
	return &rig{t: t, nc: nc, bus: bustest.Open(t, nc, bus.Options{}), model: model}
}

// flooded has two workers with so many slots each, and tasks of the tenant flood.
func flooded(t *testing.T, model loop.Model, tasks, slots int) *rig {
	t.Helper()
	r := rigWith(t, model)
	for range 2 {
		c := r.config()
		c.Concurrency = slots
		r.start(c)
	}
	for i := range tasks {
		r.submitAs("flood", fmt.Sprint("f", i), "")
	}
	return r
}

func (r *rig) submitAs(tenant, id, fields string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"id": %q, "goal": "g", "limits": {"max_steps": 500}%s}`, id, fields)
	if _, err := r.bus.PublishTask(r.ctx(), tenant, []byte(body), "", ""); err != nil {
		r.t.Fatal(err)
	}
}

// A tenant dumps thousands of tasks whose runs take a dozen model calls each, in step. Another's single task begins after
// about one call, however long those runs take, on two workers whose slots are all in use.
func TestAFloodOfOneTenantDelaysAnothersTaskByAboutOneModelCall(t *testing.T) {
	const call, flood, slots = 2 * time.Second, 2000, 8
	model := newTracked(24, call)
	r := flooded(t, model, flood, slots)
	for range 2 * slots {
		model.await(t, "flood")
	}
	other := bustest.Stranger("flood")
	for i := range 3 {
		began := time.Now()
		r.submitAs(other, fmt.Sprint("single", i), "")
		model.await(t, other)
		took := time.Since(began)
		t.Logf("task %d began after %s", i, took)
		if took > call+call/2 {
			t.Errorf("a single task began after %s, where a model call takes %s", took, call)
		}
	}
}

// With one slot, a run that a reply goes on with is next, and of those that have not begun the one with the higher priority.
func TestRunsInProgressGoBeforeNewOnes(t *testing.T) {
	model := newTracked(6, 200*time.Millisecond)
	r := rigWith(t, model)
	doorOnly := r.config()
	doorOnly.WakeQueue = noWork{}
	door := r.start(doorOnly)
	for _, priority := range []string{"low", "normal", "high"} {
		for i := range 3 {
			r.submitAs("default", fmt.Sprint(priority, i), `, "priority": "`+priority+`"`)
		}
	}
	r.eventually("all tasks are through the door", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Inbox == 0 && b.Wakes == 9
	})
	if err := r.bus.Wake(r.ctx(), run("low2"), "begun", loop.Wake{}); err != nil { // as its reply would
		t.Fatal(err)
	}
	door.stop()
	c := r.config()
	c.Concurrency = 1
	r.start(c)
	r.eventually("all runs have begun", func() bool { return len(model.order()) == 9 })
	order := model.order()
	place := func(id string) int { return slices.Index(order, id) }
	last := 0
	for _, id := range []string{"high0", "high1", "high2"} {
		last = max(last, place(id))
	}
	if order[0] != "low2" || last > 5 || min(place("low0"), place("low1")) < 7 {
		t.Errorf("the order was %v", order)
	}
}

// A tenant's runs in hand stay within its cap, also where slots are free; the tenant's runs in progress and high
// priorities do not wait behind its backlog for one of its slots.
func TestMaxRunning(t *testing.T) {
	model := newTracked(6, 50*time.Millisecond)
	r := rigWith(t, model)
	c := r.config()
	c.Concurrency, c.MaxRunning = 16, 2
	r.start(c)
	for i := range 20 {
		r.submitAs("default", fmt.Sprint("low", i), `, "priority": "low"`)
	}
	model.await(t, "default")
	r.submitAs("default", "urgent", `, "priority": "high"`)
	other := bustest.Stranger("default")
	r.submitAs(other, "o", "")
	model.await(t, other)
	for _, id := range []string{"urgent", "low0", "low19"} {
		r.untilClosed(id)
	}
	r.eventually("all runs have begun", func() bool { return len(model.order()) == 22 })
	model.mu.Lock()
	most := model.most["default"]
	model.mu.Unlock()
	if most != 2 {
		t.Errorf("%d runs of the tenant were driven at once, want 2", most)
	}
	if at := slices.Index(model.order(), "urgent"); at > 10 {
		t.Errorf("the run with high priority was number %d: %v", at, model.order())
	}
}

// What a tenant publishes beyond its limit is put aside, and its id stays free; what the API is asked is refused. Other
// tenants do not notice.
func TestMaxWaiting(t *testing.T) {
	model := newTracked(6, 0)
	r := rigWith(t, model)
	c := r.config()
	c.WakeQueue, c.MaxWaiting = noWork{}, 20
	w := r.start(c)
	for i := range 60 {
		r.submitAs("default", fmt.Sprint("r", i), "")
	}
	other := bustest.Stranger("default")
	r.submitAs(other, "o", "")
	var dead []bus.DeadLetter
	r.eventually("all tasks are through the door", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		if err != nil || b.Inbox > 0 {
			return false
		}
		dead, _, err = r.bus.DeadList(r.ctx(), "", 0, 100)
		return err == nil && b.Wakes+uint64(len(dead)) == 61
	})
	if len(dead) < 20 || len(dead) > 40 || dead[0].Reason != "too_many_waiting" || dead[0].Tenant != "default" {
		t.Fatalf("%d tasks were put aside: %+v", len(dead), dead)
	}
	_, err := w.Vet(r.ctx(), "default", []byte(`{"id": "more", "goal": "g"}`), "x")
	var full *loop.FullError
	if !errors.As(err, &full) {
		t.Errorf("the API was told %v", err)
	}
	if v, err := w.Vet(r.ctx(), "default", []byte(`{"id": "r0", "goal": "g"}`), "x"); err != nil || !v.Known {
		t.Errorf("a task that was let in is %+v, %v", v, err)
	}
	w.stop()
	working := r.config()
	working.MaxWaiting = 20
	r.start(working)
	r.eventually("what was let in is done", func() bool {
		b, err := r.bus.Backlog(r.ctx())
		return err == nil && b.Wakes == 0
	})
	if _, err := r.bus.DeadRedrive(r.ctx(), dead[0].Seq); err != nil {
		t.Fatal(err)
	}
	r.untilClosed(dead[0].Run + "-r1")
}
