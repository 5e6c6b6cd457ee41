package bus_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
)

// pacer is what package llm wants of it.
type pacer interface {
	NotBefore(ctx context.Context, key string) time.Time
	Hold(ctx context.Context, key string, until time.Time)
}

var _ pacer = (*bus.Pace)(nil)

// startPace opens a bus with a connection of its own, and its pace.
func startPace(t *testing.T, server *bus.Embedded) *bus.Pace {
	t.Helper()
	p, err := bustest.Open(t, bustest.Connect(t, server), bus.Options{}).Pace(bustest.Context(t))
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// waitUntil waits until a pace has a hold that ends at that time.
func waitUntil(t *testing.T, p *bus.Pace, key string, want time.Time) {
	t.Helper()
	ctx := bustest.Context(t)
	for tick := time.NewTicker(time.Millisecond); !p.NotBefore(ctx, key).Equal(want); <-tick.C {
		if ctx.Err() != nil {
			t.Fatalf("the hold on %s ends at %s, want %s", key, p.NotBefore(ctx, key), want)
		}
	}
}

func TestPaceIsShared(t *testing.T) {
	server := bustest.Server(t)
	one, two := startPace(t, server), startPace(t, server)
	ctx := bustest.Context(t)
	const key = "https://model.example/v1 gpt-4o *.>" // no key that a bucket would take
	if got := one.NotBefore(ctx, key); !got.IsZero() {
		t.Errorf("a hold that nobody asked for ends at %s", got)
	}
	soon := time.Now().Add(time.Minute)
	one.Hold(ctx, key, soon)
	if got := one.NotBefore(ctx, key); !got.Equal(soon) {
		t.Errorf("the hold ends at %s, want %s", got, soon)
	}
	waitUntil(t, two, key, soon)
	if got := two.NotBefore(ctx, "another"); !got.IsZero() {
		t.Errorf("the hold is on another key too, until %s", got)
	}

	later := soon.Add(time.Minute)
	two.Hold(ctx, key, later)
	one.Hold(ctx, key, soon.Add(time.Second)) // earlier than what is in force, known here or not
	waitUntil(t, one, key, later)
	if got := two.NotBefore(ctx, key); !got.Equal(later) {
		t.Errorf("the later hold was lost: it ends at %s", got)
	}
	waitUntil(t, startPace(t, server), key, later) // who comes later knows it as well

	one.Hold(ctx, key, time.Now().Add(1000*time.Hour))
	if got := one.NotBefore(ctx, key); time.Until(got) > 24*time.Hour {
		t.Errorf("a hold of %s was taken", time.Until(got))
	}
}

// Of holds that several workers ask for at the same time, the latest remains.
func TestPaceKeepsTheLatest(t *testing.T) {
	server := bustest.Server(t)
	paces := []*bus.Pace{startPace(t, server), startPace(t, server)}
	began := time.Now()
	var all errgroup.Group
	for i := range 20 {
		all.Go(func() error {
			paces[i%2].Hold(bustest.Context(t), "k", began.Add(time.Duration(i+1)*time.Second))
			return nil
		})
	}
	must(t, all.Wait())
	for _, p := range append(paces, startPace(t, server)) {
		waitUntil(t, p, "k", began.Add(20*time.Second))
	}
}

// What is stored and no time, or that was deleted, does not hinder anybody.
func TestPaceAmongStrangers(t *testing.T) {
	server := bustest.Server(t)
	p := startPace(t, server)
	ctx := bustest.Context(t)
	soon := time.Now().Add(time.Minute)
	p.Hold(ctx, "k", soon)
	kv, err := newJetStream(t, server).KeyValue(ctx, "AGENT_PACE")
	must(t, err)
	keys, err := kv.Keys(ctx)
	must(t, err)
	if len(keys) != 1 {
		t.Fatalf("keys are %q", keys)
	}
	_, err = kv.PutString(ctx, keys[0], "no time")
	must(t, err)
	p.Hold(ctx, "k", soon.Add(time.Second))
	waitUntil(t, startPace(t, server), "k", soon.Add(time.Second))
	must(t, kv.Purge(ctx, keys[0]))
	p.Hold(ctx, "k", soon.Add(2*time.Second))
	waitUntil(t, startPace(t, server), "k", soon.Add(2*time.Second))
	status, err := kv.Status(ctx)
	must(t, err)
	if status.TTL() != 24*time.Hour {
		t.Errorf("holds are kept for %s", status.TTL())
	}
}

func TestPaceWithoutServer(t *testing.T) {
	server := bustest.Server(t)
	p := startPace(t, server)
	server.Shutdown()
	began := time.Now()
	p.Hold(bustest.Context(t), "k", began.Add(time.Minute))
	if took := time.Since(began); took > 30*time.Second { // a hang: the deadline of ctx is minutes away
		t.Errorf("telling nobody took %s", took)
	}
	if got := p.NotBefore(bustest.Context(t), "k"); !got.Equal(began.Add(time.Minute)) {
		t.Errorf("the worker's own hold ends at %s", got)
	}
}

func TestPaceWithoutBucket(t *testing.T) {
	server := bustest.Server(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	must(t, newJetStream(t, server).DeleteKeyValue(bustest.Context(t), "AGENT_PACE"))
	if _, err := b.Pace(bustest.Context(t)); err == nil {
		t.Error("there is a pace without a bucket")
	}
}
