package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// sessionVersion is the version of the stored conversation that this program writes.
const sessionVersion = 1

// maxSummary bounds a stored summary in bytes, well above what this program writes.
const maxSummary = 64 << 10

// LoadSession implements [loop.Sessions]. What is stored and is no conversation is returned as an empty one with its
// revision, and logged: a stray message must not stop a conversation for ever.
func (b *Bus) LoadSession(ctx context.Context, tenant, session string) (loop.Session, uint64, error) {
	if err := checkRun(loop.RunID{Tenant: tenant, Run: session}); err != nil {
		return loop.Session{}, 0, fmt.Errorf("load session: %w", err)
	}
	entry, err := b.sessions.Get(ctx, tenant+"."+session)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return loop.Session{}, 0, fmt.Errorf("session %s of tenant %s: %w", session, tenant, loop.ErrNotFound)
	} else if err != nil {
		return loop.Session{}, 0, fmt.Errorf("load session %s of tenant %s: %w", session, tenant, b.explain(err))
	}
	var s loop.Session
	err = json.Unmarshal(entry.Value(), &s)
	if s.V > sessionVersion {
		return loop.Session{}, entry.Revision(),
			fmt.Errorf("session %s of tenant %s has version %d: %w", session, tenant, s.V, loop.ErrNewer)
	}
	if err != nil || !sane(s) {
		b.log.Warn("what is stored is no conversation; it starts anew", "tenant", tenant, "session", session, "error", err)
		s = loop.Session{V: sessionVersion}
	}
	return s, entry.Revision(), nil
}

func sane(s loop.Session) bool {
	for _, m := range s.Messages {
		if m.Role != "user" && m.Role != "assistant" || !loop.ValidID(m.Run) {
			return false
		}
	}
	for _, run := range s.Runs {
		if !loop.ValidID(run) {
			return false
		}
	}
	if s.Summary != nil && (!loop.ValidID(s.Summary.Run) || len(s.Summary.Text) > maxSummary) {
		return false
	}
	return s.V == sessionVersion
}

// DeleteSession implements [loop.Sessions]. It leaves no marker behind.
func (b *Bus) DeleteSession(ctx context.Context, tenant, session string, revision uint64) error {
	if err := checkRun(loop.RunID{Tenant: tenant, Run: session}); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	log, err := b.js.Stream(ctx, kvStream(b.names.sessions))
	if err != nil {
		return fmt.Errorf("delete session %s of tenant %s: %w", session, tenant, b.explain(err))
	}
	err = b.removeKey(ctx, log, kvSubject(b.names.sessions, tenant+"."+session), revision)
	if err != nil {
		return fmt.Errorf("delete session %s of tenant %s: %w", session, tenant, err)
	}
	return nil
}

// SaveSession implements [loop.Sessions]. A version of 0 is written as the current one.
func (b *Bus) SaveSession(ctx context.Context, tenant, session string, s loop.Session, revision uint64) error {
	if err := checkRun(loop.RunID{Tenant: tenant, Run: session}); err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	if s.V == 0 {
		s.V = sessionVersion
	}
	value, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save session %s of tenant %s: %w", session, tenant, err)
	}
	if _, err := compareAndSet(ctx, b.sessions, tenant+"."+session, value, revision); err != nil {
		return fmt.Errorf("save session %s of tenant %s: %w", session, tenant, b.explain(err))
	}
	return nil
}
