package tools

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"ratchet/internal/loop"
)

// Delegate returns the tool with which a run hands a part of its work to a child run. The engine carries its calls out;
// whoever calls it in another way is told so.
func Delegate() Tool {
	schema, err := json.Marshal(map[string]any{
		"type": "object", "required": []string{"goal"}, "additionalProperties": false,
		"properties": map[string]any{
			"goal": map[string]any{
				"type": "string", "minLength": 1,
				"description": "what the other run is to do, complete in itself: it sees nothing of this conversation",
			},
			"strategy": map[string]any{
				"enum": loop.Strategies(), "description": "how it works; left out: plan_react",
			},
			"tools": map[string]any{
				"type": "array", "items": map[string]any{"type": "string", "minLength": 1},
				"description": "names, or patterns such as get_*, of the tools it may use, among those of this run; left out: all of them",
			},
			"max_steps":  map[string]any{"type": "integer", "minimum": 1, "maximum": 10000, "description": "model turns it may take"},
			"max_tokens": map[string]any{"type": "integer", "minimum": 1, "description": "tokens it may use, taken from those of this run"},
		},
	})
	if err != nil {
		panic("tools: schema of delegate: " + err.Error()) // all of it is plain data
	}
	return Tool{
		Spec: loop.ToolSpec{
			Name: "delegate",
			Description: strings.Join([]string{
				"Hands a larger part of the work, one that stands by itself, to another run and returns that run's answer.",
				"Several calls at once work side by side. Not for what a call or two of other tools can do.",
			}, " "),
			Schema:   schema,
			Example:  json.RawMessage(`{"goal":"Find out which of our three suppliers delivers bolts soonest, and at what price.","strategy":"react"}`),
			Effect:   loop.EffectIdempotent,
			Delegate: true,
		},
		Run: func(context.Context, loop.Invocation) (any, error) {
			return nil, errors.New("delegate begins a run below another one; outside of a run there is nothing to call: submit a task instead")
		},
	}
}
