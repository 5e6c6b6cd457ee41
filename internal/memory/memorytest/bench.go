package memorytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ratchet/internal/memory"
)

// Many makes n facts of twelve words from a vocabulary of 4,000 in which few words are common, the same in every run.
func Many(n int) []memory.NewFact {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]memory.NewFact, n)
	for i := range out {
		out[i] = memory.NewFact{Text: fmt.Sprintf("Fact %d: the user likes %s.", i, sentence(r, 8)), Kind: "preference"}
	}
	return out
}

func sentence(r *rand.Rand, words int) (text string) {
	for range words {
		text += fmt.Sprintf(" w%dx", min(int(r.ExpFloat64()*600), 3999))
	}
	return text
}

// Queries makes n queries of eight words of the same vocabulary.
func Queries(n int) []string {
	r := rand.New(rand.NewPCG(3, 4))
	out := make([]string, n)
	for i := range out {
		out[i] = "what does the user like about" + sentence(r, 8)
	}
	return out
}

// Measure runs the benchmark's iterations and reports the median and the 99th percentile as p50-µs and p99-µs with the
// prefix.
func Measure(b *testing.B, prefix string, do func(ctx context.Context, i int) error) (p50 time.Duration) {
	b.Helper()
	ctx := b.Context()
	took := make([]time.Duration, 0, b.N)
	for i := range b.N {
		began := time.Now()
		if err := do(ctx, i); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	p50 = took[len(took)/2]
	b.ReportMetric(float64(p50.Microseconds()), prefix+"p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), prefix+"p99-µs")
	return p50
}
