package memory

import (
	"context"
	"errors"
	"fmt"

	"ratchet/internal/loop"
)

// Runs is memory as runs see it.
type Runs struct{ Store Store }

var _ loop.Memory = Runs{}

// Recall implements [loop.Memory].
func (r Runs) Recall(ctx context.Context, tenant, user, query string, k int) ([]loop.Fact, error) {
	facts, err := r.Store.Recall(ctx, tenant, user, query, k)
	if err != nil {
		return nil, err
	}
	out := make([]loop.Fact, len(facts))
	for i, f := range facts {
		out[i] = loop.Fact{Text: f.Text, Score: f.Score}
	}
	return out, nil
}

// Learn implements [loop.Memory]. What another try can't help wraps [loop.ErrUseless].
func (r Runs) Learn(ctx context.Context, tenant, user, run string, said []loop.SessionMessage, ask loop.Asker) error {
	conversation := make([]Said, len(said))
	for i, m := range said {
		conversation[i] = Said{Role: m.Role, Text: m.Text}
	}
	_, err := Learner{Store: r.Store, Ask: ask}.Learn(ctx, tenant, user, run, conversation)
	if errors.Is(err, ErrInvalid) {
		return fmt.Errorf("%w: %w", loop.ErrUseless, err)
	}
	return err
}
