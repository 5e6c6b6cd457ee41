package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/memory"
)

// fakeStore answers as it is told and notes what it was asked.
type fakeStore struct {
	memory.Store // nil: what a test does not expect panics

	mu       sync.Mutex
	recall   func(context.Context) ([]memory.Fact, error)
	asked    int
	queries  []string
	stored   []memory.NewFact
	touched  []string
	outcomes []string
}

func (f *fakeStore) Recall(ctx context.Context, _, _, query string, _ int) ([]memory.Fact, error) {
	f.mu.Lock()
	f.asked++
	f.queries = append(f.queries, query)
	recall := f.recall
	f.mu.Unlock()
	if recall == nil {
		return nil, nil
	}
	return recall(ctx)
}

func (f *fakeStore) Remember(_ context.Context, _, _ string, facts []memory.NewFact) error {
	f.stored = append(f.stored, facts...)
	return nil
}

func (f *fakeStore) Touch(_ context.Context, _, _ string, ids []string, _ time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.touched = append(f.touched, ids...)
	return nil
}

func (f *fakeStore) observe(o memory.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.Op != "touch" {
		f.outcomes = append(f.outcomes, fmt.Sprintf("%s %s %d", o.Op, o.Result, o.Facts))
	}
}

func guarded(t *testing.T, f *fakeStore, opts memory.Options) *memory.Guarded {
	opts.Observe = f.observe
	g := memory.Guard(f, opts)
	t.Cleanup(g.Close)
	return g
}

func TestGuardedFloorAndTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := time.Now().Add(-time.Hour)
		f := &fakeStore{recall: func(context.Context) ([]memory.Fact, error) {
			return []memory.Fact{{ID: "a", Score: 1}, {ID: "b", Score: 0.5, LastUsed: used}, {ID: "c", Score: 0.25}, {ID: "d", Score: 0.2}}, nil
		}}
		g := memory.Guard(f, memory.Options{Observe: f.observe})
		defer g.Close()
		got, err := g.Recall(t.Context(), "acme", "ann", "a query of words", 9)
		if err != nil || len(got) != 3 {
			t.Errorf("recalled %v, %v, want what is above the floor", got, err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "c"}, f.touched); diff != "" {
			t.Errorf("touched (-want +got):\n%s", diff)
		}
		for _, query := range []string{"", "thanks!"} {
			if got, err := g.Recall(t.Context(), "acme", "ann", query, 3); got != nil || err != nil {
				t.Errorf("%q recalls %v, %v", query, got, err)
			}
		}
		if diff := cmp.Diff([]string{"recall ok 3", "recall skipped 0", "recall skipped 0"}, f.outcomes); diff != "" || f.asked != 1 {
			t.Errorf("asked %d times, outcomes (-want +got):\n%s", f.asked, diff)
		}
	})
}

// A store that hangs costs each run two seconds, three times; then nothing, until it is tried again.
func TestGuardedSlowThenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{recall: func(ctx context.Context) ([]memory.Fact, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("post: %w", ctx.Err())
		}}
		g := memory.Guard(f, memory.Options{Observe: f.observe})
		defer g.Close()
		reason := func() (memory.Reason, time.Duration) {
			began := time.Now()
			_, err := g.Recall(t.Context(), "acme", "ann", "query words", 3)
			var degraded *memory.DegradedError
			if !errors.As(err, &degraded) {
				t.Fatalf("error is %v, want a degraded one", err)
			}
			return degraded.Reason, time.Since(began)
		}
		circuit := func(want memory.Circuit) {
			t.Helper()
			if got := g.Circuit(); got != want {
				t.Errorf("the circuit is %s, want %s", got, want)
			}
		}
		for range 3 {
			circuit(memory.CircuitClosed)
			if r, took := reason(); r != memory.ReasonSlow || took != 2*time.Second {
				t.Errorf("%s after %s, want slow after 2s", r, took)
			}
		}
		circuit(memory.CircuitOpen)
		for range 50 {
			if r, took := reason(); r != memory.ReasonPaused || took != 0 {
				t.Errorf("%s after %s, want paused at once", r, took)
			}
		}
		time.Sleep(10*time.Second + time.Millisecond)
		circuit(memory.CircuitTrial)
		f.recall = func(context.Context) ([]memory.Fact, error) { return []memory.Fact{{ID: "a", Score: 1}}, nil }
		for range 5 {
			if got, err := g.Recall(t.Context(), "acme", "ann", "query words", 3); err != nil || len(got) != 1 {
				t.Errorf("back, it recalls %v, %v", got, err)
			}
		}
		if f.asked != 8 {
			t.Errorf("asked %d times, want 3 and 5", f.asked)
		}
		circuit(memory.CircuitClosed)
	})
}

func TestGuardedReasons(t *testing.T) {
	for want, failure := range map[memory.Reason]error{
		memory.ReasonDown:   fmt.Errorf("dial: %w", memory.ErrUnreachable),
		memory.ReasonBroken: errors.New("answered 500"),
		memory.ReasonSlow:   context.DeadlineExceeded,
	} {
		f := &fakeStore{recall: func(context.Context) ([]memory.Fact, error) { return nil, failure }}
		_, err := guarded(t, f, memory.Options{}).Recall(t.Context(), "acme", "ann", "query words", 3)
		var degraded *memory.DegradedError
		if !errors.As(err, &degraded) || degraded.Reason != want || !strings.HasPrefix(err.Error(), "memory is "+string(want)) {
			t.Errorf("%v becomes %v, want %s", failure, err, want)
		}
	}
}

// What the caller did says nothing about the store: the circuit stays closed.
func TestGuardedCallersErrors(t *testing.T) {
	f := &fakeStore{recall: func(ctx context.Context) ([]memory.Fact, error) { return nil, ctx.Err() }}
	g := guarded(t, f, memory.Options{})
	gone, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the run was cancelled")
	cancel(cause)
	for range 10 {
		if _, err := g.Recall(gone, "acme", "ann", "query words", 3); !errors.Is(err, cause) {
			t.Errorf("error is %v, want the cause", err)
		}
		if _, err := g.Recall(t.Context(), "a.b", "ann", "query words", 3); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("error is %v, want invalid", err)
		}
	}
	if _, err := g.Recall(t.Context(), "acme", "ann", "query words", 3); err != nil {
		t.Errorf("the circuit opened: %v", err)
	}
}

func TestGuardedRefusesCredentials(t *testing.T) {
	f := &fakeStore{}
	g := guarded(t, f, memory.Options{Secret: func(text string) bool { return strings.Contains(text, "swordfish") }})
	var refused *memory.RefusedError
	err := g.Remember(t.Context(), "acme", "ann", []memory.NewFact{{Text: "The PIN is 4711"}, {Text: "The user likes tea."}, {Text: "say swordfish"}})
	if !errors.As(err, &refused) || !errors.Is(err, memory.ErrInvalid) || strings.Contains(err.Error(), "4711") {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff([]memory.NewFact{{Text: "The user likes tea."}}, f.stored); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	if err := g.Replace(t.Context(), "acme", "ann", "id", memory.NewFact{Text: "password: x1"}); !errors.As(err, &refused) {
		t.Errorf("replace: %v", err)
	}
}

func TestTools(t *testing.T) {
	f := &fakeStore{recall: func(context.Context) ([]memory.Fact, error) {
		return []memory.Fact{{ID: "a", Text: "The user likes tea.", Kind: "preference", Score: 1}}, nil
	}}
	g := guarded(t, f, memory.Options{})
	got, err := memory.RecallTool(t.Context(), g, "acme", "ann", memory.RecallArgs{Query: "tea"})
	if diff := cmp.Diff(memory.RecallResult{Facts: []memory.FactResult{{Text: "The user likes tea.", Kind: "preference"}}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := memory.RecallTool(t.Context(), g, "acme", "ann", memory.RecallArgs{Query: "tea", Limit: 11}); !errors.Is(err, memory.ErrInvalid) {
		t.Errorf("limit 11: %v", err)
	}
	if _, err := memory.RememberTool(t.Context(), g, "acme", "ann", "run", memory.RememberArgs{Text: "token: abc"}); !errors.Is(err, memory.ErrInvalid) {
		t.Errorf("a token: %v", err)
	}
	if _, err := memory.RememberTool(t.Context(), g, "acme", "ann", "run", memory.RememberArgs{Text: " Likes\ntea "}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]memory.NewFact{{Text: "Likes tea", Kind: "other", SourceRun: "run"}}, f.stored); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}
