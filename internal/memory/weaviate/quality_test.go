package weaviate_test

import (
	"fmt"
	"testing"

	"ratchet/internal/memory/memorytest"
	"ratchet/internal/memory/weaviate/weaviatetest"
)

func TestQuality(t *testing.T) {
	cfg := config(t, weaviatetest.Shared(t))
	words := memorytest.Quality(t, open(t, cfg))
	cfg.Collection, cfg.Embedder = collection(), memorytest.Embedder(t)
	hybrid := memorytest.Quality(t, open(t, cfg))
	fmt.Printf("recall@3, Weaviate by words (BM25): %.2f\nrecall@3, Weaviate hybrid with deterministic vectors: %.2f\n", words, hybrid)
	if words < 0.4 || hybrid < 0.75 || hybrid <= words {
		t.Errorf("recall@3 is %.2f by words and %.2f hybrid, want at least 0.40 and 0.75", words, hybrid)
	}
}
