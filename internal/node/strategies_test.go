package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// TestStrategies runs examples of the README with every strategy and the demo model, and compares them with recorded
// transcripts.
func TestStrategies(t *testing.T) {
	for name, task := range map[string]map[string]any{
		"react-warmest":   {"strategy": "react", "goal": "Is it warmer in Singapore, Jakarta or Paris?"},
		"react-courier":   {"strategy": "react", "goal": "Where is my order 4418?", "vars": map[string]any{"email": "ada@example.com"}},
		"execute-courier": {"strategy": "plan_execute", "goal": "Where is my order 4418?", "vars": map[string]any{"email": "ada@example.com"}},
		"execute-report":  {"strategy": "plan_execute", "goal": "Write the sales report for March and mail it to ada@example.com."},
		"execute-no-month": {
			"strategy": "plan_execute", "locked": false, "goal": "Write the sales report for August and mail it to ada@example.com.",
		},
		"execute-locked-no-month": {"strategy": "plan_execute", "goal": "Write the sales report for August and mail it to ada@example.com."},
		"execute-warmest":         {"strategy": "plan_execute", "goal": "Is it warmer in Singapore, Jakarta or Paris?"},
		"execute-sum":             {"strategy": "plan_execute", "goal": "What is 17 plus 25 plus 8?"},
		"reflect-warmest":         {"strategy": "plan_act_reflect", "goal": "Is it warmer in Singapore, Jakarta or Paris?"},
		"reflect-report": {
			"strategy": "plan_act_reflect", "limits": map[string]any{"max_iterations": 5}, "model_options": map[string]any{"native_tools": false},
			"goal": "Write the sales report for March and mail it to ada@example.com.",
		},
		"reflect-spent": {"strategy": "plan_act_reflect", "goal": "Write the sales report for March and mail it to ada@example.com."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task["id"] = "run"
			events := play(t, task)
			keepJournal(t, name, events)
			compare(t, filepath.Join("testdata", name+".txt"), transcript(events))
		})
	}
}

// play runs a task that asks nothing to its end.
func play(t *testing.T, task map[string]any) (events []loop.Event) {
	t.Helper()
	client, err := bus.NewClient(start(t, nil).Conn(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	body, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Submit(ctx, body); err != nil {
		t.Fatal(err)
	}
	err = client.Follow(ctx, "run", 1, func(e loop.Event) error {
		events = append(events, e)
		if q, asked := e.Data.(loop.Question); asked {
			return fmt.Errorf("an unexpected question: %s", q.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, transcript(events))
	}
	return events
}
