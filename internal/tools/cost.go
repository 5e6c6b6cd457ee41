package tools

import (
	"errors"
	"fmt"
	"slices"
)

// maxVisits bounds how often parts of a schema may look at parts of a value in one check. Schemas come from strangers, and
// references can multiply without end: a definition that refers twice to itself doubles the work with every level of the
// value. An honest check of the largest arguments there are stays far below.
const maxVisits = 300_000

// errCostly says that a check would not end in useful time.
var errCostly = errors.New("the JSON Schema refers to itself so often that these arguments can't be checked; make them less deep")

// checkReferences checks that every reference in a schema is one that [visitor] can follow.
func checkReferences(root, node any) error {
	switch node := node.(type) {
	case map[string]any:
		for key, item := range node {
			ref, isText := item.(string)
			switch {
			case key == "$dynamicRef" && isText, key == "$recursiveRef" && isText:
				return fmt.Errorf("the JSON Schema has a %s: write a $ref instead", key)
			case key == "$ref" && isText:
				if _, ok := resolve(root, ref); !ok {
					return fmt.Errorf("the JSON Schema refers to %s: only references such as #/$defs/name are followed", clip(ref, 80))
				}
			}
			if err := checkReferences(root, item); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range node {
			if err := checkReferences(root, item); err != nil {
				return err
			}
		}
	}
	return nil
}

// visitor counts what a validator would do, at most so many visits.
type visitor struct {
	root    any
	targets map[string]any // of references
	left    int
}

// affordable reports whether a check of the value takes no more than maxVisits.
func (s *schema) affordable(value any) bool {
	if !s.refers {
		return true
	}
	v := visitor{root: s.document, targets: map[string]any{}, left: maxVisits}
	v.visit(s.document, value, 0)
	return v.left > 0
}

// Keywords whose schemas look at the very same value: one each, or a list, or a map of them.
var (
	sameOne  = []string{"not", "if", "then", "else"}
	sameMany = []string{"allOf", "anyOf", "oneOf"}
)

// maxSame bounds how many visits in a row may be at the same part of a value. A schema that refers to itself without
// getting to another part never ends.
const maxSame = 500

// visit counts the visits of one part of the schema at one part of the value. same is how many visits in a row were at
// this part of the value.
func (v *visitor) visit(node, value any, same int) {
	if same > maxSame {
		v.left = 0
	}
	if v.left--; v.left <= 0 {
		return
	}
	object, ok := node.(map[string]any)
	if !ok {
		return
	}
	if ref, ok := object["$ref"].(string); ok {
		target, known := v.targets[ref]
		if !known {
			target, _ = resolve(v.root, ref) // the schema was checked to have no other references
			v.targets[ref] = target
		}
		v.visit(target, value, same+1)
	}
	for _, keyword := range sameOne {
		if inner, ok := object[keyword]; ok {
			v.visit(inner, value, same+1)
		}
	}
	for _, keyword := range sameMany {
		list, _ := object[keyword].([]any)
		for _, inner := range list {
			v.visit(inner, value, same+1)
		}
	}
	dependent, _ := object["dependentSchemas"].(map[string]any)
	for _, inner := range dependent {
		v.visit(inner, value, same+1)
	}
	v.parts(object, value)
}

// parts visits what lies below the value.
func (v *visitor) parts(object map[string]any, value any) {
	switch value := value.(type) {
	case map[string]any:
		properties, _ := object["properties"].(map[string]any)
		patterns, _ := object["patternProperties"].(map[string]any)
		for key, item := range value {
			v.visit(object["propertyNames"], key, 0)
			if property, ok := properties[key]; ok {
				v.visit(property, item, 0)
			}
			for _, inner := range patterns {
				v.visit(inner, item, 0)
			}
			for _, keyword := range []string{"additionalProperties", "unevaluatedProperties"} {
				v.visit(object[keyword], item, 0)
			}
		}
	case []any:
		for i, item := range value {
			prefix, _ := object["prefixItems"].([]any)
			if listed, ok := object["items"].([]any); ok { // before draft 2020-12
				prefix = slices.Concat(prefix, listed)
			}
			if i < len(prefix) {
				v.visit(prefix[i], item, 0)
			}
			for _, keyword := range []string{"items", "additionalItems", "contains", "unevaluatedItems"} {
				v.visit(object[keyword], item, 0)
			}
		}
	}
}
