package tools

import (
	"encoding/json"
	"strings"
	"sync"

	"ratchet/internal/plan"
)

// maxParts bounds how many partial schemas one tool keeps compiled: which arguments a plan leaves for later is a model's
// choice.
const maxParts = 64

// checkPart returns [loop.ToolSpec.CheckPart] of a tool with this schema. Each set of properties that come later makes a
// schema of its own, which is compiled once.
func checkPart(whole json.RawMessage) func(args json.RawMessage, later []string) []string {
	var mu sync.Mutex
	parts := map[string]*schema{}
	part := func(later []string) (*schema, error) {
		key := strings.Join(later, "\x00")
		mu.Lock()
		defer mu.Unlock()
		if s := parts[key]; s != nil {
			return s, nil
		}
		raw := whole
		if len(later) > 0 {
			var err error
			if raw, err = plan.PartialSchema(whole, later); err != nil {
				return nil, err
			}
		}
		s, err := compile(raw)
		if err != nil {
			return nil, err
		}
		if len(parts) >= maxParts {
			clear(parts)
		}
		parts[key] = s
		return s, nil
	}
	return func(args json.RawMessage, later []string) []string {
		s, err := part(later)
		if err != nil {
			return []string{"arguments: " + err.Error()}
		}
		_, problems := s.check(args)
		return problems
	}
}
