package weaviate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ratchet/internal/memory"
	"ratchet/internal/memory/memorytest"
	"ratchet/internal/memory/weaviate/weaviatetest"
)

// Weaviate is killed in the middle of 20 runs: none waits for it or fails. When it is back, the next run recalls.
func TestKilledAndRestarted(t *testing.T) {
	server := weaviatetest.Start(t)
	s := open(t, config(t, server))
	g := memory.Guard(s, memory.Options{Pause: 50 * time.Millisecond})
	t.Cleanup(g.Close)
	ctx := memorytest.Context(t)
	if err := g.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "The user rows on Sundays."}}); err != nil {
		t.Fatal(err)
	}
	runs := memory.Runs{Store: g}

	recall := func(run int) error {
		began := time.Now()
		facts, err := runs.Recall(ctx, "acme", "ann", nil, "When does the user row? Sundays?", 3)
		var degraded *memory.DegradedError
		switch {
		case err != nil && !errors.As(err, &degraded):
			t.Errorf("run %d: %v, want an answer or a degraded one", run, err)
		case err == nil && len(facts) != 1:
			t.Errorf("run %d recalled %v after %s", run, facts, time.Since(began))
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("run %d waited %s", run, took)
		}
		return err
	}
	var wg sync.WaitGroup
	var running sync.WaitGroup
	running.Add(20)
	killed := make(chan struct{})
	for run := range 20 {
		wg.Go(func() {
			if err := recall(run); err != nil {
				t.Errorf("run %d: degraded before the kill: %v", run, err)
			}
			running.Done()
			for {
				_ = recall(run) // checked there
				select {
				case <-killed:
					if err := recall(run); err == nil {
						t.Errorf("run %d: a dead server answered", run)
					}
					return
				default:
				}
			}
		})
	}
	running.Wait()
	server.Kill()
	close(killed)
	wg.Wait()
	for range 4 {
		if _, err := runs.Recall(ctx, "acme", "ann", nil, "rows on Sundays", 3); err == nil || !strings.HasPrefix(err.Error(), "memory is ") {
			t.Fatalf("dead, it answers %v", err)
		}
	}
	if err := g.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "y z"}}); !errors.Is(err, memory.ErrUnreachable) {
		t.Errorf("remembering on a dead server: %v", err)
	}

	server.Restart(t)
	memorytest.Eventually(t, func() error {
		facts, err := runs.Recall(ctx, "acme", "ann", nil, "rows on Sundays", 3)
		if err == nil && len(facts) != 1 {
			err = fmt.Errorf("recalled %v", facts)
		}
		return err
	})
}

// A worker that starts while Weaviate is away says so, and uses it once it is there.
func TestAwayAtStart(t *testing.T) {
	server := weaviatetest.Start(t)
	cfg := config(t, server)
	server.Kill()
	s := open(t, cfg)
	if err := s.Setup(memorytest.Context(t)); !errors.Is(err, memory.ErrUnreachable) {
		t.Errorf("setup: %v", err)
	}
	server.Restart(t)
	if err := s.Remember(memorytest.Context(t), "acme", "ann", []memory.NewFact{{Text: "The user is patient."}}); err != nil {
		t.Error(err)
	}
}

func TestObjectsOfABatchAreRefused(t *testing.T) {
	cfg, ctx := config(t, weaviatetest.Shared(t)), memorytest.Context(t)
	size := 8
	cfg.Embedder = embedder(func(texts []string) ([][]float32, error) {
		out := make([][]float32, len(texts))
		for i := range out {
			out[i] = make([]float32, size)
			out[i][0] = 1
		}
		return out, nil
	})
	s := open(t, cfg)
	if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "one"}}); err != nil {
		t.Fatal(err)
	}
	size = 9 // another embedding model
	err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "two"}, {Text: "three"}})
	if err == nil || !strings.Contains(err.Error(), "refused 2 of 2") {
		t.Errorf("error is %v, want it to say that both were refused", err)
	}
}

// Without vectors for a query words must do; facts without vectors are not stored.
func TestEmbeddingsAway(t *testing.T) {
	cfg, ctx := config(t, weaviatetest.Shared(t)), memorytest.Context(t)
	broken := errors.New("no embeddings today")
	var fail error
	cfg.Embedder = embedder(func(texts []string) ([][]float32, error) {
		out := make([][]float32, len(texts))
		for i, text := range texts {
			out[i] = memorytest.Vector(text)
		}
		return out, fail
	})
	s := open(t, cfg)
	if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "The user whistles."}}); err != nil {
		t.Fatal(err)
	}
	fail = broken
	if got, err := s.Recall(ctx, "acme", "ann", "who whistles?", 1); err != nil || len(got) != 1 {
		t.Errorf("recalled %v, %v", got, err)
	}
	if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "another"}}); !errors.Is(err, broken) {
		t.Errorf("remember: %v", err)
	}
}

type embedder func(texts []string) ([][]float32, error)

func (e embedder) Embed(_ context.Context, texts []string) ([][]float32, error) { return e(texts) }
