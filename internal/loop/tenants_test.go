package loop_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
)

// tenantEach runs a task for each of many tenants, name-0 and so on, none of which was heard of before, and returns what
func tenantEach(t testing.TB, nc *nats.Conn, name string, tenants int) (took time.Duration, consumers int) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1024))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, tenants)
	sub, err := nc.Subscribe("agent.event.*.*.user", func(m *nats.Msg) {
		if m.Header.Get("Ratchet-Type") == "answer" {
			ended <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range tenants {
		body := fmt.Sprintf(`{"id": "r%d", "goal": "Add a few numbers.", "limits": {"max_steps": 500}}`, i)
		if _, err := js.PublishAsync(fmt.Sprint("agent.task.", name, "-", i), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	timeout := time.After(10 * time.Minute)
	for n := range tenants {
		select {
		case <-ended:
		case <-timeout:
			t.Fatalf("%d of %d runs ended", n, tenants)
		}
	}
	took = time.Since(began)
	for _, stream := range []string{"AGENT_TASKS", "AGENT_WAKE", "AGENT_EVENTS"} {
		s, err := js.Stream(context.WithoutCancel(t.Context()), stream)
		if err != nil {
			t.Fatal(err)
		}
		consumers += s.CachedInfo().State.Consumers
	}
	return took, consumers
}

// Nothing is made for a tenant: thousands of them have the consumers that one has.
func TestManyTenantsNeedNothingOfTheirOwn(t *testing.T) {
	r := rigWith(t, instantModel{steps: 6})
	c := r.config()
	c.MaxRunning, c.MaxWaiting = 2, 10
	r.start(c)
	_, few := tenantEach(t, r.nc, "few", 3)
	_, many := tenantEach(t, r.nc, "many", 1000)
	if few != many || few > 80 {
		t.Errorf("3 tenants have %d consumers, 1000 have %d", few, many)
	}
}

// BenchmarkTenants has b.N tenants with a task each. runs/s should not depend on b.N; heap-B/tenant is what server and
// worker in one process hold at the end.
func BenchmarkTenants(b *testing.B) {
	nc := bustest.Connect(b, benchServer(b, "2m"))
	bu := bustest.Open(b, nc, bus.Options{Lease: 10 * time.Second})
	stop := startBench(b, bu, instantModel{steps: 6})
	defer stop()
	before := heap()
	took, _ := tenantEach(b, nc, "t", b.N)
	b.ReportMetric(float64(b.N)/took.Seconds(), "runs/s")
	b.ReportMetric(float64(int64(heap())-int64(before))/float64(b.N), "heap-B/tenant")
	b.ReportMetric(0, "ns/op")
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
