package memory

import (
	"context"
	"errors"
	"fmt"

	"ratchet/internal/loop"
)

// Runs is memory as runs see it. Its store is a guarded one: an empty query, which asks for nothing, ends there.
type Runs struct{ Store Store }

var _ loop.Memory = Runs{}

// Recall implements [loop.Memory] with the query that [Query] makes.
func (r Runs) Recall(ctx context.Context, tenant, user string, before []loop.SessionMessage, goal string, k int) ([]loop.Fact, error) {
	recent := make([]string, 0, recentMessages)
	for _, m := range before[max(len(before)-recentMessages, 0):] {
		recent = append(recent, m.Text)
	}
	facts, err := r.Store.Recall(ctx, tenant, user, Query(recent, goal), k)
	if err != nil {
		return nil, err
	}
	out := make([]loop.Fact, len(facts))
	for i, f := range facts {
		out[i] = loop.Fact{Text: f.Text, Score: f.Score}
	}
	return out, nil
}

// Learn implements [loop.Memory]. What another try can't help wraps [loop.ErrUseless]; where the store could not be asked
// what is known, and so the model was not asked either, the error wraps [loop.ErrAway].
func (r Runs) Learn(ctx context.Context, tenant, user, run string, said []loop.SessionMessage, ask loop.Asker) error {
	conversation := make([]Said, len(said))
	for i, m := range said {
		conversation[i] = Said{Role: m.Role, Text: m.Text}
	}
	_, err := Learner{Store: r.Store, Ask: ask}.Learn(ctx, tenant, user, run, conversation)
	var degraded *DegradedError
	switch {
	case errors.Is(err, ErrInvalid):
		return fmt.Errorf("%w: %w", loop.ErrUseless, err)
	case errors.As(err, &degraded):
		return fmt.Errorf("%w: %w", loop.ErrAway, err)
	}
	return err
}
