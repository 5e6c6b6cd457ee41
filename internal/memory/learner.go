package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// Learner turns conversations into facts.
type Learner struct {
	Store Store
	// Ask puts messages to a model and returns its reply, which has to be one JSON object.
	Ask func(ctx context.Context, messages []loop.Message) (string, error)
	// Known is how many of the nearest known facts the model is shown; 3.
	Known int
	// Rejections is how many replies that can't be used are answered with a correction; 2.
	Rejections int
}

// Learn asks the model for durable facts in a conversation and stores them. It may be repeated: the same reply changes
// nothing the second time. An error that wraps [ErrInvalid] will not get better by repeating; all others may.
func (l Learner) Learn(ctx context.Context, tenant, user, run string, conversation []Said) (Learned, error) {
	query := conversationQuery(conversation)
	if query == "" {
		return Learned{}, nil
	}
	known, err := l.Store.Recall(ctx, tenant, user, query, cmp.Or(l.Known, 3))
	if err != nil {
		return Learned{}, fmt.Errorf("recall what is known before learning: %w", err)
	}
	learned, err := l.ask(ctx, conversation, known, run)
	if err != nil {
		return Learned{}, err
	}
	return learned, Apply(ctx, l.Store, tenant, user, learned)
}

func (l Learner) ask(ctx context.Context, conversation []Said, known []Fact, run string) (Learned, error) {
	messages := LearnPrompt(conversation, known)
	for rejected := 0; ; rejected++ {
		reply, err := l.Ask(ctx, messages)
		if err != nil {
			return Learned{}, fmt.Errorf("ask the model what is to be learned: %w", err)
		}
		learned, problems := ParseLearned(reply, known, run)
		if len(problems) == 0 {
			return learned, nil
		}
		said := strings.Join(problems, "\n")
		if rejected == cmp.Or(l.Rejections, 2) {
			return Learned{}, fmt.Errorf("learn from run %s: the model's reply is %w: %s", run, ErrInvalid, said)
		}
		messages = append(messages, loop.Message{Role: "assistant", Content: reply},
			loop.Message{Role: "user", Content: "That can't be used:\n" + said})
	}
}

// Apply stores what was learned. A known fact that was forgotten meanwhile is not replaced, and nothing takes its place:
// the person wanted it gone.
func Apply(ctx context.Context, store Store, tenant, user string, l Learned) error {
	if len(l.Add) > 0 {
		if err := ignoreRefused(store.Remember(ctx, tenant, user, l.Add)); err != nil {
			return fmt.Errorf("remember %d facts: %w", len(l.Add), err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.Replace)) {
		err := ignoreRefused(store.Replace(ctx, tenant, user, id, l.Replace[id]))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("replace fact %s: %w", id, err)
		}
	}
	return nil
}

func ignoreRefused(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// conversationQuery is what the user said last: the facts near it are those that may have to be replaced.
func conversationQuery(conversation []Said) string {
	var said []string
	for _, m := range conversation {
		if m.Role == "user" && !Trivial(m.Text) {
			said = append(said, m.Text)
		}
	}
	return clipFront(strings.Join(said, "\n"), maxQuery)
}
