package embedded_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"ratchet/internal/memory"
	"ratchet/internal/memory/embedded"
	"ratchet/internal/memory/memorytest"
)

func user(i int) string { return fmt.Sprintf("user-%d", i) }

// fill stores n facts, perUser for each user.
func fill(b *testing.B, s memory.Store, n, perUser int) {
	b.Helper()
	all := memorytest.Many(n)
	for i := 0; i < n; i += perUser {
		if err := s.Remember(b.Context(), "acme", user(i/perUser), all[i:i+perUser]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecall measures recalls at a number of facts, 1,000 for each user, or all of them one user's. The first recall
// of each user, which makes the index, is measured apart. Memory is what the indexes of all users take.
func BenchmarkRecall(b *testing.B) {
	for _, c := range []struct{ facts, perUser int }{{1000, 1000}, {10_000, 1000}, {100_000, 1000}, {10_000, 10_000}, {100_000, 100_000}} {
		open := workers(b, embedded.Config{})
		fill(b, open(b), c.facts, c.perUser)
		s := open(b)
		queries := memorytest.Queries(1000)
		recall := func(ctx context.Context, i int) error {
			_, err := s.Recall(ctx, "acme", user(i%(c.facts/c.perUser)), queries[i%len(queries)], 3)
			return err
		}
		name := fmt.Sprintf("facts=%d/users=%d", c.facts, c.facts/c.perUser)
		before := heap()
		began := time.Now()
		for i := range c.facts / c.perUser {
			if err := recall(b.Context(), i); err != nil {
				b.Fatal(err)
			}
		}
		cold := time.Since(began) / time.Duration(c.facts/c.perUser)
		indexes := heap() - before
		b.Run(name, func(b *testing.B) {
			b.ReportMetric(float64(cold.Milliseconds()), "cold-ms")
			b.ReportMetric(indexes, "heap-MB")
			memorytest.Measure(b, "", recall)
		})
	}
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// BenchmarkRemember1000 stores 1,000 facts of a new user in one call.
func BenchmarkRemember1000(b *testing.B) {
	s := workers(b, embedded.Config{})(b)
	many := memorytest.Many(1000)
	for i := range b.N {
		if err := s.Remember(b.Context(), "acme", user(i), many); err != nil {
			b.Fatal(err)
		}
	}
}
