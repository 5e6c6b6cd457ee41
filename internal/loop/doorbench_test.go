package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// BenchmarkDoor dumps 10,000 tasks of one tenant at once and then a single one of a tenant in another group and of one in the
// same. all-s is how long the door takes for all of them, other-ms and near-ms after what time the single tasks have their
// first event, with everything before them in the inbox.
func BenchmarkDoor(b *testing.B) {
	for _, sync := range []string{"2m", "always"} {
		b.Run("sync="+sync, func(b *testing.B) {
			nc := bustest.Connect(b, benchServer(b, sync))
			bu := bustest.Open(b, nc, bus.Options{Lease: 10 * time.Second})
			accepted := make(chan string, 1<<15)
			sub, err := nc.Subscribe("agent.event.*.*.step", func(m *nats.Msg) {
				if m.Header.Get("Ratchet-Type") == "accepted" {
					accepted <- m.Subject
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = sub.Unsubscribe() }()
			js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<15))
			if err != nil {
				b.Fatal(err)
			}
			const flood = 10_000
			for i := range flood {
				body := fmt.Sprintf(`{"id": "f%d", "goal": "Add a few numbers."}`, i)
				if _, err := js.PublishAsync("agent.task.flood", []byte(body)); err != nil {
					b.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
			singles := map[string]string{}
			for name, tenant := range map[string]string{"other": bustest.Stranger("flood"), "near": bustest.Neighbours("flood", 1)[0]} {
				if _, err := js.Publish(b.Context(), "agent.task."+tenant, []byte(`{"id": "s", "goal": "g"}`)); err != nil {
					b.Fatal(err)
				}
				singles["agent.event."+tenant+".s.step"] = name
			}
			began := time.Now()
			stop := startBench(b, bu, stuckModel{})
			defer stop()
			for range flood + len(singles) {
				if name := singles[<-accepted]; name != "" {
					b.ReportMetric(float64(time.Since(began).Microseconds())/1000, name+"-ms")
				}
			}
			b.ReportMetric(time.Since(began).Seconds(), "all-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// stuckModel never answers.
type stuckModel struct{}

func (stuckModel) Complete(ctx context.Context, _ loop.ModelRequest) (loop.ModelReply, error) {
	<-ctx.Done()
	return loop.ModelReply{}, context.Cause(ctx)
}
