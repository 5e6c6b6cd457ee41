package memorytest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"ratchet/internal/memory"
)

// Context returns a context that ends with the test, or after a minute where something hangs.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until problem returns nil or an error without a text, and fails with the last one after ten seconds.
func Eventually(t testing.TB, problem func() error) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if err = problem(); err == nil || err.Error() == "" {
			return
		}
	}
	t.Fatalf("not within ten seconds: %v", err)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func facts(texts ...string) (out []memory.NewFact) {
	for _, text := range texts {
		out = append(out, memory.NewFact{Text: text})
	}
	return out
}

// numbered makes n facts whose texts are in order.
func numbered(n int) (out []memory.NewFact) {
	for i := range n {
		out = append(out, memory.NewFact{Text: fmt.Sprintf("The box number %03d is red.", i)})
	}
	return out
}

func texts(facts []memory.Fact) []string {
	out := []string{}
	for _, f := range facts {
		out = append(out, f.Text)
	}
	return out
}

func remember(t testing.TB, s memory.Store, tenant, user string, facts ...memory.NewFact) {
	t.Helper()
	check(t, s.Remember(Context(t), tenant, user, facts))
}

func recall(t testing.TB, s memory.Store, tenant, user, query string, k int) []memory.Fact {
	t.Helper()
	got, err := s.Recall(Context(t), tenant, user, query, k)
	check(t, err)
	return got
}

func list(t testing.TB, s memory.Store, tenant, user string, limit int) []memory.Fact {
	t.Helper()
	got, _, err := s.List(Context(t), tenant, user, "", limit)
	check(t, err)
	return got
}
