package tools

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"ratchet/internal/loop"
)

// Listing is a tool as an operator sees it.
type Listing struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Source      string        `json:"source"`
	Effect      loop.Effect   `json:"effect"`
	Approve     bool          `json:"approve"`
	Guard       string        `json:"guard,omitempty"`
	Reconcile   string        `json:"reconcile,omitempty"`
	Timeout     loop.Duration `json:"timeout"`
	MaxResult   int           `json:"max_result"` // bytes
	MaxParallel int           `json:"max_parallel,omitempty"`
	Rate        string        `json:"rate,omitempty"`
	Internal    bool          `json:"internal,omitempty"` // there for the engine, never offered to a model
	Digest      string        `json:"digest"`
}

// List returns all tools as they are now, internal ones too, sorted by name.
func (r *Registry) List() []Listing {
	now := r.current.Load()
	list := make([]Listing, len(now.names))
	for i, name := range now.names {
		e := now.tools[name]
		list[i] = Listing{
			Name: name, Description: e.Spec.Description, Source: e.Spec.Source, Effect: e.Spec.Effect, Approve: e.Spec.Approve,
			Guard: e.Guard, Reconcile: e.Reconcile, Timeout: loop.Duration(e.Spec.Timeout), MaxResult: e.MaxResult,
			MaxParallel: e.MaxParallel, Rate: e.Rate.String(), Internal: e.Internal, Digest: e.Spec.Digest,
		}
	}
	return list
}

// Try makes one call outside of any run, for an operator who wants to see what comes back. The guard is asked first;
// approval is the operator's own. The idempotency key is a new one each time.
func (r *Registry) Try(ctx context.Context, tool string, arguments json.RawMessage) loop.Outcome {
	c := loop.Invocation{
		Run: loop.RunID{Tenant: "default", Run: "try-" + uuid.NewString()}, Call: "c1", Tool: tool, Arguments: object(arguments),
	}
	if e, ok := r.entry(tool); ok {
		if _, problems := e.Spec.Check(c.Arguments); len(problems) > 0 {
			return *failure("%s was not called: %s", tool, strings.Join(problems, "; "))
		}
	}
	if problems := r.Guard(ctx, c); len(problems) > 0 {
		return *failure("%s was not called, its guard objects: %s", tool, strings.Join(problems, "; "))
	}
	return r.Call(ctx, c)
}

// Changed returns a channel that is closed when [Registry.Replace] next changes what is offered.
func (r *Registry) Changed() <-chan struct{} {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.changed
}
