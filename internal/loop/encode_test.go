package loop

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

var at = time.Date(2026, 11, 30, 17, 58, 22, 123456000, time.UTC)

// samples holds an event of every type.
func samples() []Event {
	yes := true
	answer := "Singapore."
	steps := plan.Plan{{Step: "Look", Status: plan.Done, Result: "31.5"}, {Step: "Answer", Status: plan.Pending}}
	made := Made{Model: "m", Usage: &Usage{PromptTokens: 7, CompletionTokens: 3, CostUSD: 0.01}, Seen: 2, Lost: 5, MS: 12}
	var events []Event
	for _, d := range []Data{
		Accepted{Task: Task{Goal: "g <&> é", ID: "a", Metadata: json.RawMessage(`{"c":1}`)}.withDefaults(), Tools: []OfferedTool{{Name: "t", Digest: "d", Effect: EffectRead}}, Prompt: "p/1"},
		Facts{Facts: []Fact{{Text: "f", Score: 0.5}}, Degraded: "down"},
		Plan{Plan: steps, Thought: "t", Created: true, Made: made},
		Thought{Thought: "t", Plan: steps, Answer: &answer, Made: made},
		Call{Calls: []ToolCall{{Call: "c1", Tool: "t", Arguments: json.RawMessage(`{"n":9007199254740993}`), Effect: EffectOnce}}, Plan: steps, Made: made},
		Rejection{Error: "e", Attempt: 2, Reply: "r\x01", Repeat: "f", Made: made},
		Reflection{Text: "r", Done: true, Made: made},
		Started{Call: "c1"},
		Observation{Call: "c1", Tool: "t", Status: ObservedOK, Result: json.RawMessage(`{"a":1.50}`), Truncated: true, Blob: "b", MS: 3},
		Question{Question: "q1", Kind: KindApproval, Text: "?", Deadline: at, Call: "c1", Tool: "t", Arguments: json.RawMessage(`{}`), ArgumentsSHA256: "s"},
		Reply{Question: "q1", Approve: &yes, Remember: "t*", By: "u"},
		Note{Text: "n", By: "u"},
		Control{Op: OpCancel, Reason: "r", By: "u"},
		Timeout{What: TimeoutQuestion, Question: "q1"},
		Wait{Until: at, Why: "w", Attempt: 1},
		Wait{Why: "w", Session: true},
		Child{Call: "c1", Run: "b", Tokens: 900},
		Child{Call: "c1", Run: "b", Status: StatusDone, Usage: &Usage{PromptTokens: 7}, Lost: 2},
		Summary{Upto: 4, Text: "s"},
		Answer{Answer: "a", Usage: Usage{PromptTokens: 1}},
		Failed{Reason: FailTimeout, Message: "m"},
		Cancelled{Reason: "r", By: "u"},
	} {
		events = append(events, Event{
			RunID: RunID{Tenant: "acme", Run: "order-4417"}, N: uint64(len(events) + 1), Time: at, Source: `/agent/worker/w"1`,
			Cause: "AGENT_TASKS:42:7", Metadata: json.RawMessage(`{"c":1}`), Data: d,
		})
	}
	return events
}

func TestEventsSurviveEncoding(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range samples() {
		seen[e.Type()] = true
		encoded, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(encoded) {
			t.Fatalf("not JSON: %s", encoded)
		}
		back, err := DecodeEvent(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("%s came back different (-want +got):\n%s", e.Type(), diff)
		}
	}
	if len(seen) != len(decoders) {
		t.Errorf("%d of %d event types are tried", len(seen), len(decoders))
	}
}
