package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
	"ratchet/internal/memory"
)

// A run asks with the last three messages of its session and its goal; one whose goal asks for nothing does not ask, however
// much was said before.
func TestRunsRecall(t *testing.T) {
	f := &fakeStore{}
	runs := memory.Runs{Store: guarded(t, f, memory.Options{})}
	before := []loop.SessionMessage{
		{Role: "user", Text: "I collect stamps"}, {Role: "user", Text: "I need a hotel"}, {Role: "assistant", Text: "Where?"}, {Role: "user", Text: "Porto"},
	}
	for _, goal := range []string{"Thanks!", "ok", "With breakfast", "  "} {
		if _, err := runs.Recall(t.Context(), "acme", "ann", before, goal, 3); err != nil {
			t.Errorf("%q: %v", goal, err)
		}
	}
	if diff := cmp.Diff([]string{"I need a hotel\nWhere?\nPorto\nWith breakfast"}, f.queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"recall skipped 0", "recall skipped 0", "recall empty 0", "recall skipped 0"}, f.outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// Learning while the store is away costs no model call, and says that it is to be done later.
func TestRunsLearnLater(t *testing.T) {
	f := &fakeStore{recall: func(context.Context) ([]memory.Fact, error) { return nil, memory.ErrUnreachable }}
	ask := func(context.Context, []loop.Message) (string, error) {
		t.Error("the model was asked")
		return "{}", nil
	}
	said := []loop.SessionMessage{{Role: "user", Text: "I moved to Lisbon"}}
	err := memory.Runs{Store: guarded(t, f, memory.Options{})}.Learn(t.Context(), "acme", "ann", "r", said, ask)
	if !errors.Is(err, loop.ErrAway) || errors.Is(err, loop.ErrUseless) {
		t.Errorf("error is %v, want away", err)
	}
}
