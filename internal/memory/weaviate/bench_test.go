package weaviate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weaviate/weaviate-go-client/v4/weaviate/filters"
	"github.com/weaviate/weaviate-go-client/v4/weaviate/graphql"

	"ratchet/internal/memory"
	"ratchet/internal/memory/memorytest"
	"ratchet/internal/memory/weaviate"
	"ratchet/internal/memory/weaviate/weaviatetest"
)

// perUser is how many facts each user of a benchmark has.
const perUser = 1000

// fill stores n facts, [perUser] for each user.
func fill(b *testing.B, s memory.Store, n int) {
	b.Helper()
	all := memorytest.Many(n)
	for i := 0; i < n; i += perUser {
		if err := s.Remember(b.Context(), "acme", user(i/perUser), all[i:i+perUser]); err != nil {
			b.Fatal(err)
		}
	}
}

func user(i int) string { return fmt.Sprintf("user-%d", i) }

// BenchmarkRecall measures guarded recalls, by words and hybrid, beside bare client queries that ask for the same, in turn.
// Vectors are made in this process, for both.
func BenchmarkRecall(b *testing.B) {
	for _, mode := range []string{"words", "hybrid"} {
		for _, n := range []int{1000, 10_000, 100_000} {
			benchRecall(b, mode, n)
		}
	}
}

// recallBench is a filled store and what asks it, with us and without.
type recallBench struct {
	ask    [2]func(ctx context.Context, user, query string) error // ours, bare
	filled time.Duration
}

// newRecallBench fills a store; when it returns the server is warm, and facts are marked as used today.
func newRecallBench(b *testing.B, mode string, n int) (r recallBench) {
	b.Helper()
	cfg := config(b, weaviatetest.Shared(b))
	if mode == "hybrid" {
		cfg.Embedder = embedder(func(texts []string) ([][]float32, error) {
			out := make([][]float32, len(texts))
			for i, text := range texts {
				out[i] = memorytest.Vector(text)
			}
			return out, nil
		})
	}
	s := open(b, cfg)
	began := time.Now()
	fill(b, s, n)
	r.filled = time.Since(began)
	g := memory.Guard(s, memory.Options{Deadline: time.Minute}) // a slow answer is to be measured
	b.Cleanup(g.Close)
	r.ask[0] = func(ctx context.Context, u, query string) error {
		_, err := g.Recall(ctx, "acme", u, query, 3)
		return err
	}
	r.ask[1] = bareRecall(b, cfg)
	for i, query := range memorytest.Queries(50) {
		for _, ask := range r.ask {
			if err := ask(context.Background(), user(i%(n/perUser)), query); err != nil {
				b.Fatal(err)
			}
		}
	}
	return r
}

func benchRecall(b *testing.B, mode string, n int) {
	queries := memorytest.Queries(1000)
	var r *recallBench
	b.Run(fmt.Sprintf("%s/facts=%d", mode, n), func(inner *testing.B) {
		if r == nil {
			made := newRecallBench(b, mode, n)
			r = &made
		}
		var took [2][]time.Duration
		for i := range inner.N {
			u, query := user(i%(n/perUser)), queries[i%len(queries)]
			for turn := range 2 {
				who := (turn + i) % 2 // who comes second finds the server's caches warm
				began := time.Now()
				if err := r.ask[who](inner.Context(), u, query); err != nil {
					inner.Fatal(err)
				}
				took[who] = append(took[who], time.Since(began))
			}
		}
		report := func(name string, took []time.Duration) time.Duration {
			slices.Sort(took)
			inner.ReportMetric(float64(took[len(took)/2].Microseconds()), name+"-p50-µs")
			inner.ReportMetric(float64(took[len(took)*99/100].Microseconds()), name+"-p99-µs")
			return took[len(took)/2]
		}
		inner.ReportMetric(float64(report("ours", took[0]))/float64(report("bare", took[1])), "ours/bare")
		inner.ReportMetric(r.filled.Seconds(), "fill-s")
		inner.ReportMetric(0, "ns/op")
	})
}

// bareRecall asks for what Recall asks for, with nothing but the client.
func bareRecall(b *testing.B, cfg weaviate.Config) func(ctx context.Context, user, query string) error {
	c := bare(b, cfg)
	return func(ctx context.Context, user, query string) error {
		where := filters.Where().WithOperator(filters.And).WithOperands([]*filters.WhereBuilder{
			filters.Where().WithPath([]string{"current"}).WithOperator(filters.Equal).WithValueBoolean(true),
			filters.Where().WithPath([]string{"user"}).WithOperator(filters.Equal).WithValueText("u." + user),
		})
		q := c.GraphQL().Get().WithClassName(cfg.Collection).WithTenant("acme").WithWhere(where).WithLimit(3)
		if cfg.Embedder == nil {
			q = q.WithBM25(c.GraphQL().Bm25ArgBuilder().WithQuery(query).WithProperties("text"))
		} else {
			q = q.WithHybrid(c.GraphQL().HybridArgumentBuilder().WithQuery(query).WithProperties([]string{"text"}).WithAlpha(0.5).
				WithMaxVectorDistance(0.75).WithFusionType(graphql.RelativeScore).WithVector(memorytest.Vector(query)))
		}
		response, err := q.WithFields(
			graphql.Field{Name: "text"}, graphql.Field{Name: "kind"}, graphql.Field{Name: "source_run"}, graphql.Field{Name: "created"},
			graphql.Field{Name: "last_used"}, graphql.Field{Name: "replaced"}, graphql.Field{Name: "current"},
			graphql.Field{Name: "_additional", Fields: []graphql.Field{{Name: "id"}, {Name: "score"}}}).Do(ctx)
		if err == nil && len(response.Errors) > 0 {
			err = errors.New(response.Errors[0].Message)
		}
		return err
	}
}

// BenchmarkRemember1000 stores 1,000 facts of a new user in one call.
func BenchmarkRemember1000(b *testing.B) {
	server := weaviatetest.Shared(b)
	for _, mode := range []string{"words", "hybrid"} {
		cfg := config(b, server)
		if mode == "hybrid" {
			cfg.Embedder = memorytest.Embedder(b)
		}
		s := open(b, cfg)
		many := memorytest.Many(1000)
		b.Run(mode, func(b *testing.B) {
			for i := range b.N {
				if err := s.Remember(b.Context(), "acme", user(i), many); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
