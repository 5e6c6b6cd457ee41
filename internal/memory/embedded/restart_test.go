package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/memory"
	"ratchet/internal/memory/embedded"
	"ratchet/internal/memory/memorytest"
)

// Facts outlive the server's restart; a store that follows the bucket meanwhile goes on.
func TestServerRestarts(t *testing.T) {
	dir := t.TempDir()
	server := bustest.ServerIn(t, dir)
	js, err := jetstream.New(bustest.Connect(t, server))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, js, embedded.Config{})
	ctx := memorytest.Context(t)
	if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "The user plays chess."}}); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()

	again := bustest.ServerIn(t, dir)
	js, err = jetstream.New(bustest.Connect(t, again))
	if err != nil {
		t.Fatal(err)
	}
	got, err := open(t, js, embedded.Config{}).Recall(ctx, "acme", "ann", "chess?", 3)
	if err != nil || len(got) != 1 {
		t.Errorf("recalled %v, %v", got, err)
	}
}

// The server goes down before it has synced, and comes back without the newest facts. Stores that outlived it do not go by what
// they knew: they recall what is stored by then, also where it bears the revisions of what was lost.
func TestServerForgets(t *testing.T) {
	server := bustest.StartForgetful(t)
	stores := make([]*embedded.Store, 2)
	for i := range stores {
		nc, err := bus.Connect(memorytest.Context(t), bus.ConnectOptions{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = open(t, js, embedded.Config{})
	}
	remember := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			memorytest.Eventually(t, func() error { // the server may be about to come back
				return stores[0].Remember(memorytest.Context(t), "acme", "ann", []memory.NewFact{{Text: text}})
			})
		}
	}
	recalls := func(want ...string) {
		t.Helper()
		for _, s := range stores {
			memorytest.Eventually(t, func() error {
				facts, err := s.Recall(memorytest.Context(t), "acme", "ann", "what does the user play and sing?", 9)
				var got []string
				for _, f := range facts {
					got = append(got, f.Text)
				}
				slices.Sort(got)
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("recalled %q, want %q", got, want)
				}
				return err
			})
		}
	}
	remember("The user plays chess.")
	server.Keep()
	remember("The user plays golf.", "The user plays polo.", "The user plays tennis.")
	recalls("The user plays chess.", "The user plays golf.", "The user plays polo.", "The user plays tennis.")
	server.Forget()
	remember("The user sings alto.")
	recalls("The user plays chess.", "The user sings alto.")
	remember("The user sings bass.")
	recalls("The user plays chess.", "The user sings alto.", "The user sings bass.")
}

// What is in the bucket and can't be read, or lies under another's key, is left out; the rest is found.
func TestForeignEntries(t *testing.T) {
	js, err := jetstream.New(bustest.Connect(t, bustest.Server(t)))
	if err != nil {
		t.Fatal(err)
	}
	ctx := memorytest.Context(t)
	s := open(t, js, embedded.Config{})
	if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "The user paints boats."}}); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, "AGENT_FACTS")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys %v, %v", keys, err)
	}
	good, err := kv.Get(ctx, keys[0])
	if err != nil {
		t.Fatal(err)
	}
	prefix := keys[0][:len(keys[0])-36]
	for key, value := range map[string][]byte{
		prefix + memory.ID("x", "y", "1"): []byte("{"),
		prefix + memory.ID("x", "y", "2"): good.Value(),
		prefix + "no-id":                  good.Value(),
		"stray":                           []byte("x"),
	} {
		if _, err := kv.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // by the store that saw them come, and by one that finds them
		got, err := s.Recall(ctx, "acme", "ann", "who paints boats?", 9)
		if err != nil || len(got) != 1 {
			t.Errorf("recalled %v, %v, want the one good fact", got, err)
		}
		facts, _, err := s.List(ctx, "acme", "ann", "", 9)
		if err != nil || len(facts) != 1 {
			t.Errorf("listed %v, %v, want the one good fact", facts, err)
		}
		s = open(t, js, embedded.Config{})
	}
	// A fact that can't be read can still be forgotten.
	if err := s.Forget(ctx, "acme", "ann", memory.ID("x", "y", "1")); err != nil {
		t.Error(err)
	}
}

// A recall that has no time to make a large index leaves it to the next.
func TestIndexIsMadeAfterTheDeadline(t *testing.T) {
	open := workers(t, embedded.Config{})
	if err := open(t).Remember(memorytest.Context(t), "acme", "ann", memorytest.Many(3000)); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Recall(short, "acme", "ann", "what does the user like", 3); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want canceled", err)
	}
	got, err := s.Recall(memorytest.Context(t), "acme", "ann", "fact 2999", 3)
	if err != nil || len(got) == 0 {
		t.Errorf("recalled %v, %v", got, err)
	}
}

// Many single changes wear an index out; it is made again, and nothing is lost.
func TestWornIndex(t *testing.T) {
	s := workers(t, embedded.Config{})(t)
	ctx := memorytest.Context(t)
	for i := range 60 {
		if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: fmt.Sprintf("The user owns kite%d.", i)}}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Recall(ctx, "acme", "ann", fmt.Sprintf("kite%d", i), 3)
		if err != nil || len(got) != 1 {
			t.Fatalf("after %d facts: recalled %v, %v", i+1, got, err)
		}
	}
	if got, err := s.Recall(ctx, "acme", "ann", "kite0 kite30", 3); err != nil || len(got) != 2 {
		t.Errorf("recalled %v, %v", got, err)
	}
}
