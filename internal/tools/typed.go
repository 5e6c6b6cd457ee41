package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"ratchet/internal/loop"
)

// Typed completes a tool whose arguments are the struct A: it fills in t.Spec.Schema and t.Run.
//
// The schema has one property for each field: named by its json tag, described by its jsonschema tag, optional with
// omitempty, and nothing else is allowed. Use json.Number for numbers that must keep their digits, and json.RawMessage
// for any value. fn gets arguments that satisfy the schema.
//
// It panics where A can't be described by a schema: that is a mistake in the program, found by any test that makes the
// tool.
func Typed[A any](t Tool, fn func(ctx context.Context, c loop.Invocation, a A) (any, error)) Tool {
	s, err := jsonschema.For[A](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.Number]():     {Type: "number"},
		reflect.TypeFor[json.RawMessage](): {},
	}})
	if err != nil {
		panic(fmt.Sprintf("tools: arguments of %s: %v", t.Spec.Name, err))
	}
	if s.Type != "object" || s.AdditionalProperties == nil {
		panic(fmt.Sprintf("tools: arguments of %s: %v is no struct", t.Spec.Name, reflect.TypeFor[A]()))
	}
	withoutNull(s)
	if t.Spec.Schema, err = json.Marshal(s); err != nil {
		panic(fmt.Sprintf("tools: schema of %s: %v", t.Spec.Name, err))
	}
	t.Run = func(ctx context.Context, c loop.Invocation) (any, error) {
		var a A
		if err := json.Unmarshal(c.Arguments, &a); err != nil {
			return nil, fmt.Errorf("read the arguments: %w", err)
		}
		return fn(ctx, c, a)
	}
	return t
}

// withoutNull takes null out of the types that a Go nil could be written as: a model that has no list leaves it out.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	for _, property := range s.Properties {
		withoutNull(property)
	}
	withoutNull(s.Items)
	withoutNull(s.AdditionalProperties)
}
