package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"ratchet/internal/loop"
)

// longState is a run after so many turns, each with a result of 10 KB.
func longState(turns int) *loop.State {
	id := run("a")
	s := loop.State{RunID: id}
	n := uint64(0)
	add := func(d loop.Data) {
		n++
		s = loop.Step(s, loop.Event{RunID: id, N: n, Seq: n, Time: time.Unix(int64(n), 0), Data: d})
	}
	add(loop.Accepted{Task: loop.Task{Goal: "g", Strategy: loop.StrategyPlanReact, Limits: loop.Limits{MaxSteps: 1000, MaxRejections: 3}}})
	add(loop.Facts{})
	for i := range turns {
		call := fmt.Sprintf("c%d", i+1)
		args := json.RawMessage(fmt.Sprintf(`{"page":%d}`, i))
		add(loop.Call{Calls: []loop.ToolCall{{Call: call, Tool: "load_page", Arguments: args, Effect: loop.EffectRead}}})
		result, _ := json.Marshal(fmt.Sprint(i) + strings.Repeat("x", 10<<10))
		add(loop.Observation{Call: call, Tool: "load_page", Status: loop.ObservedOK, Result: result})
	}
	return &s
}

// TestPromptSharesTheTextOfTheConversation: a turn's prompt is made of the very strings of the conversation, not of copies.
func TestPromptSharesTheTextOfTheConversation(t *testing.T) {
	s := longState(50)
	opening := []loop.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "g"}}
	prompt := loop.Conversation(s, opening)
	if len(prompt) != len(opening)+len(s.Transcript) || len(s.Transcript) != 100 {
		t.Fatalf("%d messages of a conversation of %d", len(prompt), len(s.Transcript))
	}
	for i, m := range s.Transcript {
		if unsafe.StringData(m.Content) != unsafe.StringData(prompt[len(opening)+i].Content) {
			t.Errorf("message %d is a copy", i)
		}
	}
}

// BenchmarkPrompt makes the prompt of one turn. Its allocations are the list of messages: 32 bytes for each, whatever is in
// them.
func BenchmarkPrompt(b *testing.B) {
	for _, turns := range []int{10, 50, 200} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			s := longState(turns)
			opening := []loop.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "g"}}
			b.ReportAllocs()
			for b.Loop() {
				loop.Conversation(s, opening)
			}
		})
	}
}
