package weaviate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-openapi/strfmt"
	"github.com/weaviate/weaviate/entities/models"

	"ratchet/internal/memory"
)

// Objects in one request: vectors make them large.
const (
	batchBare    = 1000
	batchVectors = 200
)

// Remember implements [memory.Store].
func (s *Store) Remember(ctx context.Context, tenant, user string, facts []memory.NewFact) error {
	if err := s.connected(ctx, tenant, user); err != nil {
		return err
	}
	facts, ids, err := memory.CheckAll(tenant, user, facts)
	if err != nil {
		return err
	}
	stored, err := s.lookup(ctx, tenant, user, ids)
	if err != nil {
		return err
	}
	var objects []*models.Object
	now := s.cfg.Now().UTC().Format(time.RFC3339Nano)
	for i, f := range facts {
		o, there := stored[ids[i]]
		if there && !o.Current {
			if err := s.merge(ctx, tenant, ids[i], map[string]any{propCurrent: true}); err != nil {
				return err
			}
		}
		if there {
			continue
		}
		objects = append(objects, &models.Object{
			Class: s.cfg.Collection, Tenant: tenant, ID: strfmt.UUID(ids[i]), Properties: map[string]any{
				propText: f.Text, propUser: userValue(user), propKind: f.Kind, propRun: f.SourceRun,
				propCreated: now, propCurrent: true,
			},
		})
	}
	return s.insert(ctx, objects)
}

// insert stores objects, with vectors where an endpoint makes them.
func (s *Store) insert(ctx context.Context, objects []*models.Object) error {
	size := batchBare
	if s.cfg.Embedder != nil {
		size = batchVectors
	}
	for len(objects) > 0 {
		batch := objects[:min(size, len(objects))]
		objects = objects[len(batch):]
		if err := s.embed(ctx, batch); err != nil {
			return err
		}
		results, err := s.client.Batch().ObjectsBatcher().WithObjects(batch...).Do(ctx)
		if err != nil {
			return s.explain("store facts", err)
		}
		if err := batchError(results, len(batch)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) embed(ctx context.Context, batch []*models.Object) error {
	if s.cfg.Embedder == nil {
		return nil
	}
	texts := make([]string, len(batch))
	for i, o := range batch {
		texts[i], _ = o.Properties.(map[string]any)[propText].(string)
	}
	vectors, err := s.cfg.Embedder.Embed(ctx, texts)
	if err != nil {
		return fmt.Errorf("store facts: %w", err)
	}
	for i, o := range batch {
		o.Vector = vectors[i]
	}
	return nil
}

// batchError says which objects of a batch were not stored: the request as a whole succeeds all the same.
func batchError(results []models.ObjectsGetResponse, sent int) error {
	var failed int
	var first string
	for _, r := range results {
		if r.Result == nil || r.Result.Errors == nil || len(r.Result.Errors.Error) == 0 {
			if r.Result == nil || r.Result.Status == nil || *r.Result.Status == models.ObjectsGetResponseAO2ResultStatusSUCCESS {
				continue
			}
		}
		failed++
		if first == "" && r.Result.Errors != nil && len(r.Result.Errors.Error) > 0 {
			first = fmt.Sprintf(": %s: %s", r.ID, clip(r.Result.Errors.Error[0].Message))
		}
	}
	if failed > 0 {
		return fmt.Errorf("store facts: Weaviate refused %d of %d%s", failed, sent, first)
	}
	if len(results) != sent {
		return fmt.Errorf("store facts: Weaviate answered for %d of %d", len(results), sent)
	}
	return nil
}

// merge changes properties of one fact, which must be the user's.
func (s *Store) merge(ctx context.Context, tenant, id string, properties map[string]any) error {
	err := s.client.Data().Updater().WithMerge().WithClassName(s.cfg.Collection).WithTenant(tenant).WithID(id).WithProperties(properties).Do(ctx)
	if err != nil {
		return s.explain("change fact "+id, err)
	}
	return nil
}

// Replace implements [memory.Store]. The new fact is stored first: a crash in between leaves both, never none.
func (s *Store) Replace(ctx context.Context, tenant, user, id string, by memory.NewFact) error {
	old, err := s.one(ctx, tenant, user, id)
	if err != nil {
		return err
	}
	if err := s.Remember(ctx, tenant, user, []memory.NewFact{by}); err != nil {
		return err
	}
	if memory.ID(tenant, user, memory.OneLine(by.Text)) == id || !old.Current {
		return nil
	}
	return s.merge(ctx, tenant, id, map[string]any{propCurrent: false, propReplaced: s.cfg.Now().UTC().Format(time.RFC3339Nano)})
}

// one returns a fact of the user.
func (s *Store) one(ctx context.Context, tenant, user, id string) (object, error) {
	if err := cmp.Or(s.connected(ctx, tenant, user), memory.CheckID(id)); err != nil {
		return object{}, err
	}
	found, err := s.lookup(ctx, tenant, user, []string{id})
	if err != nil {
		return object{}, err
	}
	o, ok := found[id]
	if !ok {
		return object{}, fmt.Errorf("%s: %w", id, memory.ErrNotFound)
	}
	return o, nil
}

// Forget implements [memory.Store].
func (s *Store) Forget(ctx context.Context, tenant, user, id string) error {
	if _, err := s.one(ctx, tenant, user, id); err != nil {
		return err
	}
	if err := s.client.Data().Deleter().WithClassName(s.cfg.Collection).WithTenant(tenant).WithID(id).Do(ctx); err != nil {
		return s.explain("forget fact "+id, err)
	}
	there, err := s.client.Data().Checker().WithClassName(s.cfg.Collection).WithTenant(tenant).WithID(id).Do(ctx)
	if err != nil {
		return s.explain("make sure that fact "+id+" is gone", err)
	}
	if there {
		return fmt.Errorf("forget fact %s: Weaviate confirmed it, but the fact is still there", id)
	}
	return nil
}

// Touch implements [memory.Store].
func (s *Store) Touch(ctx context.Context, tenant, user string, ids []string, at time.Time) error {
	if err := s.connected(ctx, tenant, user); err != nil {
		return err
	}
	for _, id := range ids {
		if err := memory.CheckID(id); err != nil {
			return err
		}
	}
	found, err := s.lookup(ctx, tenant, user, ids)
	if err != nil {
		return err
	}
	for id, o := range found {
		if !at.After(o.LastUsed) {
			continue
		}
		if err := s.merge(ctx, tenant, id, map[string]any{propLastUsed: at.UTC().Format(time.RFC3339Nano)}); err != nil {
			return err
		}
	}
	return nil
}
