package loop

import (
	"fmt"
	"testing"
)

// However many different things strangers get logged, the memory of them stays small.
func TestWarningsAreRememberedWithinBounds(t *testing.T) {
	var w warned
	if !w.first("a") || w.first("a") {
		t.Error("a key is not new exactly once")
	}
	for i := range 3 * maxWarned {
		if !w.first(fmt.Sprint("field", i)) {
			t.Fatalf("key %d is known", i)
		}
		if len(w.keys) > maxWarned {
			t.Fatalf("%d keys are remembered", len(w.keys))
		}
	}
}
