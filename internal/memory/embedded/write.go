package embedded

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"ratchet/internal/memory"
)

// attempts bounds how often a write is tried that others overtake.
const attempts = 20

// Remember implements [memory.Store].
func (s *Store) Remember(ctx context.Context, tenant, user string, facts []memory.NewFact) error {
	if err := memory.CheckScope(tenant, user); err != nil {
		return err
	}
	facts, ids, err := memory.CheckAll(tenant, user, facts)
	if err != nil {
		return err
	}
	now := s.now().UTC()
	sc := scopeFor(tenant, user)
	changes := make([]change, len(facts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i, f := range facts {
		group.Go(func() (err error) {
			r := record{V: 1, ID: ids[i], Tenant: tenant, User: user, Text: f.Text, Kind: f.Kind, Run: f.SourceRun, Created: now}
			changes[i], err = s.add(ctx, sc, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.indexes.apply(userKey(sc), changes)
	return nil
}

// add stores a fact. One that is there stays as it is, but holds again.
func (s *Store) add(ctx context.Context, sc scope, r record) (change, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return change{}, err
	}
	for range attempts {
		revision, err := s.kv.Create(ctx, sc.key(r.ID), value)
		if err == nil {
			return change{key: sc.key(r.ID), revision: revision, text: r.Text}, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return change{}, explain("store a fact", err)
		}
		c, err := s.change(ctx, sc, r.ID, func(stored *record) bool {
			was := stored.Replaced
			stored.Replaced = time.Time{}
			return !was.IsZero()
		})
		if !errors.Is(err, memory.ErrNotFound) {
			return c, err
		} // forgotten in between: it is new again
	}
	return change{}, errOvertaken(r.ID)
}

// change changes a stored fact with compare-and-set. edit reports whether it changed anything.
func (s *Store) change(ctx context.Context, sc scope, id string, edit func(*record) bool) (change, error) {
	for range attempts {
		r, revision, err := s.load(ctx, sc, id)
		if err != nil {
			return change{}, err
		}
		if edit(&r) {
			value, err := json.Marshal(r)
			if err != nil {
				return change{}, err
			}
			revision, err = s.kv.Update(ctx, sc.key(id), value, revision)
			if overtaken(err) {
				continue
			}
			if err != nil {
				return change{}, explain("change a fact", err)
			}
		}
		c := change{key: sc.key(id), revision: revision}
		if r.Replaced.IsZero() {
			c.text = r.Text
		}
		return c, nil
	}
	return change{}, errOvertaken(id)
}

func errOvertaken(id string) error {
	return fmt.Errorf("change fact %s: others changed it %d times meanwhile; try again", id, attempts)
}

func overtaken(err error) bool {
	var api *jetstream.APIError
	if errors.Is(err, jetstream.ErrKeyExists) {
		return true
	}
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == 10164)
}

// Replace implements [memory.Store]. The new fact is stored first: a crash in between leaves both, never none.
func (s *Store) Replace(ctx context.Context, tenant, user, id string, by memory.NewFact) error {
	if err := cmp.Or(memory.CheckScope(tenant, user), memory.CheckID(id)); err != nil {
		return err
	}
	sc := scopeFor(tenant, user)
	if _, _, err := s.load(ctx, sc, id); err != nil {
		return err
	}
	if err := s.Remember(ctx, tenant, user, []memory.NewFact{by}); err != nil {
		return err
	}
	if memory.ID(tenant, user, memory.OneLine(by.Text)) == id {
		return nil
	}
	now := s.now().UTC()
	c, err := s.change(ctx, sc, id, func(r *record) bool {
		was := r.Replaced
		if was.IsZero() {
			r.Replaced = now
		}
		return was.IsZero()
	})
	if err != nil {
		return err
	}
	s.indexes.apply(userKey(sc), []change{c})
	return nil
}

// List implements [memory.Store].
func (s *Store) List(ctx context.Context, tenant, user, after string, limit int) ([]memory.Fact, string, error) {
	if err := memory.CheckScope(tenant, user); err != nil {
		return nil, "", err
	}
	entries, err := s.entries(ctx, scopeFor(tenant, user))
	if err != nil {
		return nil, "", err
	}
	var facts []memory.Fact
	for _, entry := range entries {
		r, err := decode(entry)
		if err != nil {
			s.log.Warn("a fact is left out", "error", err)
			continue
		}
		if f := r.fact(); place(f) > after {
			facts = append(facts, f)
		}
	}
	slices.SortFunc(facts, func(a, b memory.Fact) int { return strings.Compare(place(a), place(b)) })
	if limit = max(limit, 1); len(facts) > limit {
		return facts[:limit], place(facts[limit-1]), nil
	}
	return facts, "", nil
}

// place is where a fact stands in a list: by age, then by id. As text it sorts in that order.
func place(f memory.Fact) string {
	return f.Created.UTC().Format("20060102T150405.000000000") + "." + f.ID
}

// Forget implements [memory.Store].
func (s *Store) Forget(ctx context.Context, tenant, user, id string) error {
	if err := cmp.Or(memory.CheckScope(tenant, user), memory.CheckID(id)); err != nil {
		return err
	}
	sc := scopeFor(tenant, user)
	for range attempts {
		_, revision, err := s.load(ctx, sc, id)
		if err != nil && revision == 0 {
			return err
		} // one that can't be read has a revision, and is removed too
		err = s.kv.Purge(ctx, sc.key(id), jetstream.LastRevision(revision))
		if overtaken(err) {
			continue
		}
		if err != nil {
			return explain("forget a fact", err)
		}
		s.indexes.apply(userKey(sc), []change{{key: sc.key(id), revision: revision + 1}})
		if _, left, _ := s.load(ctx, sc, id); left == revision {
			return fmt.Errorf("forget fact %s: the server confirmed it, but the fact is still there", id)
		}
		return nil
	}
	return errOvertaken(id)
}

// Touch implements [memory.Store].
func (s *Store) Touch(ctx context.Context, tenant, user string, ids []string, at time.Time) error {
	if err := memory.CheckScope(tenant, user); err != nil {
		return err
	}
	for _, id := range ids {
		if err := memory.CheckID(id); err != nil {
			return err
		}
		c, err := s.change(ctx, scopeFor(tenant, user), id, func(r *record) bool {
			later := at.After(r.LastUsed)
			if later {
				r.LastUsed = at.UTC()
			}
			return later
		})
		if errors.Is(err, memory.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s.indexes.apply(userKey(scopeFor(tenant, user)), []change{c})
	}
	return nil
}
