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

// BenchmarkRecall measures guarded recalls by words beside bare client queries that ask for the same, in turn.
func BenchmarkRecall(b *testing.B) {
	server := weaviatetest.Shared(b)
	for _, n := range []int{1000, 10_000, 100_000} {
		cfg := config(b, server)
		s := open(b, cfg)
		fill(b, s, n)
		g := memory.Guard(s, memory.Options{})
		b.Cleanup(g.Close)
		bareQuery := bareRecall(b, cfg)
		queries := memorytest.Queries(1000)
		for i := range 50 { // until the server is warm, and facts are marked as used today
			_, err := g.Recall(b.Context(), "acme", user(i%(n/perUser)), queries[i], 3)
			if err := errors.Join(err, bareQuery(b.Context(), user(i%(n/perUser)), queries[i])); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var ours, bare []time.Duration
			for i := range b.N {
				u, query := user(i%(n/perUser)), queries[i%len(queries)]
				askOurs := func() {
					began := time.Now()
					if _, err := g.Recall(b.Context(), "acme", u, query, 3); err != nil {
						b.Fatal(err)
					}
					ours = append(ours, time.Since(began))
				}
				if i%2 == 0 { // who comes second finds the server's caches warm
					askOurs()
				}
				began := time.Now()
				if err := bareQuery(b.Context(), u, query); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(began))
				if i%2 == 1 {
					askOurs()
				}
			}
			report := func(name string, took []time.Duration) time.Duration {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), name+"-p99-µs")
				return took[len(took)/2]
			}
			b.ReportMetric(float64(report("ours", ours))/float64(report("bare", bare)), "ours/bare")
		})
	}
}

// bareRecall asks for what Recall asks for, with nothing but the client.
func bareRecall(b *testing.B, cfg weaviate.Config) func(ctx context.Context, user, query string) error {
	c := bare(b, cfg)
	return func(ctx context.Context, user, query string) error {
		where := filters.Where().WithOperator(filters.And).WithOperands([]*filters.WhereBuilder{
			filters.Where().WithPath([]string{"current"}).WithOperator(filters.Equal).WithValueBoolean(true),
			filters.Where().WithPath([]string{"user"}).WithOperator(filters.Equal).WithValueText("u." + user),
		})
		response, err := c.GraphQL().Get().WithClassName(cfg.Collection).WithTenant("acme").WithWhere(where).WithLimit(3).
			WithBM25(c.GraphQL().Bm25ArgBuilder().WithQuery(query).WithProperties("text")).
			WithFields(graphql.Field{Name: "text"}, graphql.Field{Name: "kind"}, graphql.Field{Name: "source_run"}, graphql.Field{Name: "created"},
				graphql.Field{Name: "last_used"}, graphql.Field{Name: "replaced"}, graphql.Field{Name: "current"},
				graphql.Field{Name: "_additional", Fields: []graphql.Field{{Name: "id"}, {Name: "score"}}}).Do(ctx)
		if err == nil && len(response.Errors) > 0 {
			err = errors.New(response.Errors[0].Message)
		}
		return err
	}
}

// BenchmarkRecallHybrid measures recalls by meaning and words, vectors included.
func BenchmarkRecallHybrid(b *testing.B) {
	server := weaviatetest.Shared(b)
	for _, n := range []int{1000, 10_000} {
		cfg := config(b, server)
		cfg.Embedder = memorytest.Embedder(b)
		s := open(b, cfg)
		fill(b, s, n)
		queries := memorytest.Queries(1000)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			memorytest.Measure(b, "", func(ctx context.Context, i int) error {
				_, err := s.Recall(ctx, "acme", user(i%(n/perUser)), queries[i%len(queries)], 3)
				return err
			})
		})
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
