package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

func TestCheckPart(t *testing.T) {
	r, err := New(Config{Tools: []Tool{{
		Spec: loop.ToolSpec{
			Name: "send", Description: "sends", Schema: json.RawMessage(
				`{"type":"object","required":["to","body"],"properties":{"to":{"type":"string"},"body":{"type":"string"},"copies":{"type":"integer"}},"additionalProperties":false}`),
		},
		Run: func(context.Context, loop.Invocation) (any, error) { return nil, nil },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	specs, _ := r.Offer(nil)
	if diff := cmp.Diff([]string{"body", "copies", "to"}, specs[0].Fields); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		args  string
		later []string
		wrong int
	}{
		{`{"to":"ada"}`, []string{"body"}, 0},
		{`{}`, []string{"body", "to"}, 0},
		{`{"to":"ada"}`, nil, 1},
		{`{"to":7}`, []string{"body"}, 1},
		{`{"copies":"2"}`, []string{"body", "to"}, 0}, // coerced, as in a whole check
		{`{"from":"eve"}`, []string{"body", "to"}, 1},
	} {
		for range 2 { // compiled, and remembered
			if problems := specs[0].CheckPart(json.RawMessage(c.args), c.later); len(problems) != c.wrong {
				t.Errorf("%s, later %v: %q", c.args, c.later, problems)
			}
		}
	}
	for i := range 2 * maxParts {
		if problems := specs[0].CheckPart(json.RawMessage(`{}`), []string{"to", "body", fmt.Sprint(i)}); len(problems) > 0 {
			t.Errorf("%q", problems)
		}
	}
}
