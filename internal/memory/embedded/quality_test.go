package embedded_test

import (
	"fmt"
	"testing"

	"ratchet/internal/memory/embedded"
	"ratchet/internal/memory/memorytest"
)

func TestQuality(t *testing.T) {
	got := memorytest.Quality(t, workers(t, embedded.Config{})(t))
	fmt.Printf("recall@3, embedded: %.2f\n", got)
	if got < 0.6 {
		t.Errorf("recall@3 is %.2f, want at least 0.60", got)
	}
}
