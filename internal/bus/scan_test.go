package bus_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// More states than a subscription of the connection queues come in pages of any size, in order, and each once.
func TestChangedInPages(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	js, err := jetstream.New(nc)
	must(t, err)
	var want []string
	for i := range 6000 {
		run := fmt.Sprintf("r%04d", i)
		want = append(want, run)
		_, err := js.PublishAsync("$KV.AGENT_RUNS.acme."+run, fmt.Appendf(nil, `{"v":1,"tenant":"acme","run":%q}`, run))
		must(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-bustest.Context(t).Done():
		t.Fatal("the states were not stored in time")
	}
	for _, page := range []int{100, 2000, 5999, 6000, 6001, 10_000} {
		var got []string
		for after, full := (loop.Cursor{}), true; full; {
			heads, last, err := b.Changed(bustest.Context(t), after, page)
			must(t, err)
			if len(heads) > page {
				t.Fatalf("a page of %d has %d states", page, len(heads))
			}
			for _, h := range heads {
				got = append(got, h.Run)
			}
			after, full = last, len(heads) == page
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", page, diff)
		}
	}
}
