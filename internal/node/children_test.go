package node_test

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// TestChildren runs a goal of two parts, each of which goes to a child run, and compares what all three runs said with
// recorded transcripts.
func TestChildren(t *testing.T) {
	for name, strategy := range map[string]string{"delegate": "plan_react", "delegate-execute": "plan_execute"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := bus.NewClient(start(t, nil).Conn(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			task, err := json.Marshal(map[string]any{
				"id": "run", "strategy": strategy, "goal": "Is it warmer in Singapore, Jakarta or Paris? What is 17 plus 25?",
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Submit(ctx, task); err != nil {
				t.Fatal(err)
			}
			follow := func(run string) (events []loop.Event) {
				err := client.Follow(ctx, run, 1, func(e loop.Event) error { events = append(events, e); return nil })
				if err != nil {
					t.Fatal(err)
				}
				return events
			}
			events := sideBySide(follow("run"))
			keepJournal(t, name, events)
			text := transcript(events)
			for _, e := range events {
				if child, ok := e.Data.(loop.Child); ok && child.Status == "" {
					text += "\n" + child.Run + "\n" + transcript(follow(child.Run))
				}
			}
			compare(t, filepath.Join("testdata", name+".txt"), text)
		})
	}
}

// sideBySide puts what happens to calls side by side, in any order, into that of the calls.
func sideBySide(events []loop.Event) []loop.Event {
	key := func(e loop.Event) string {
		switch d := e.Data.(type) {
		case loop.Child:
			order := "1"
			if d.Status != "" {
				order = "2" + d.Call
			}
			return order + d.Call
		case loop.Observation:
			return "2" + d.Call + d.Call + " observed"
		default:
			return ""
		}
	}
	for from := 0; from < len(events); from++ {
		to := from
		for to < len(events) && key(events[to]) != "" {
			to++
		}
		if to > from {
			data := slices.Clone(events[from:to])
			slices.SortStableFunc(data, func(a, b loop.Event) int { return cmp.Compare(key(a), key(b)) })
			for i := range data {
				events[from+i].Data = data[i].Data
			}
			from = to
		}
	}
	return events
}
