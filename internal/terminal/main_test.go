package terminal

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

var update = flag.Bool("update", false, "write what is shown now to testdata")

func TestMain(m *testing.M) {
	flag.Parse()
	time.Local = time.UTC // what is shown has local times
	goleak.VerifyTestMain(m)
}

// golden compares what is shown with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// script is a run in which everything happens that can, two seconds apart.
func script() []loop.Event {
	steps := func(statuses ...plan.Status) plan.Plan {
		p := plan.Plan{
			{Step: "Find out how many shares of Microsoft to buy"},
			{Step: "Find out the price, in USD and with two digits behind the point"},
			{Step: "Buy the shares"},
			{Step: "Confirm the purchase"},
		}
		results := []plan.Result{"200 shares.", "56.30 USD each, as the person said when asked", "", "Nothing to confirm."}
		for i, s := range statuses {
			p[i].Status = s
			if s.Closed() {
				p[i].Result = results[i]
			}
		}
		return p
	}
	made := func(tokens int) loop.Made { return loop.Made{Model: "demo", Usage: &loop.Usage{PromptTokens: tokens}} }
	const pending, busy, done, blocked = plan.Pending, plan.InProgress, plan.Done, plan.Blocked
	yes := true
	until := noon.Add(time.Hour)
	calls := []loop.ToolCall{
		{Call: "c1", Tool: "buy_shares", Arguments: json.RawMessage(`{"company":"Microsoft","amount":200}`), Effect: loop.EffectOnce},
		{Call: "c2", Tool: "current_time", Arguments: json.RawMessage(`{}`), Effect: loop.EffectRead},
	}
	data := []loop.Data{
		loop.Accepted{Task: loop.Task{Goal: "Buy a few Microsoft shares.", Strategy: "plan_react"}, Tools: make([]loop.OfferedTool, 3)},
		loop.Facts{Facts: []loop.Fact{}, Degraded: "the store is down"},
		loop.Rejection{Error: "The reply is no JSON object.", Attempt: 1, Made: made(900)},
		loop.Plan{Plan: steps(busy, pending, pending, pending), Thought: "I need\x1b[2J two numbers.", Created: true, Made: made(1000)},
		loop.Thought{Plan: steps(busy, pending, pending, pending), Thought: "Only the person can tell.", Ask: &loop.Asking{Question: "How many?"}, Made: made(1100)},
		loop.Question{Question: "q1", Kind: loop.KindAsk, Text: "How many?", Deadline: until},
		loop.Reply{Question: "q1", Text: "200 shares.", By: "ada"},
		loop.Note{Text: "be\r\nquick", By: "ada"},
		loop.Call{Plan: steps(done, done, busy, pending), Thought: "Amount and price are known.", Calls: calls, Made: made(1200)},
		loop.Question{Question: "q2", Kind: loop.KindApproval, Text: "May I?", Tool: "buy_shares", Arguments: calls[0].Arguments, Call: "c1"},
		loop.Observation{Call: "c2", Tool: "current_time", Status: loop.ObservedOK, Result: json.RawMessage(`"12:00"`), MS: 3},
		loop.Reply{Question: "q2", Approve: &yes},
		loop.Started{Call: "c1"},
		loop.Control{Op: loop.OpPause, Reason: "lunch", By: "ada"},
		loop.Control{Op: loop.OpResume},
		loop.Wait{Until: until, Why: "the provider is down", Attempt: 2},
		loop.Timeout{What: loop.TimeoutWait},
		loop.Child{Call: "c1", Run: "r2"},
		loop.Child{Call: "c1", Run: "r2", Status: loop.StatusDone},
		loop.Observation{Call: "c1", Tool: "buy_shares", Status: loop.ObservedError, Result: json.RawMessage(`"no\u001b[31m money"`), MS: 120},
		loop.Reflection{Text: "Nothing more can be done."},
		loop.Summary{Upto: 12, Text: "They asked for shares."},
		loop.Thought{Plan: steps(done, done, blocked, done), Thought: "That is all.", Made: made(1300)},
	}
	events := make([]loop.Event, len(data))
	for i, d := range data {
		events[i] = event(i, d)
	}
	return events
}

func event(i int, d loop.Data) loop.Event {
	return loop.Event{
		RunID: loop.RunID{Tenant: "default", Run: "order-4417"}, N: uint64(i + 1), Time: noon.Add(time.Duration(2*i) * time.Second), Data: d,
	}
}

// endings are the ways in which the script can end.
func endings() map[string]loop.Data {
	used := loop.Usage{PromptTokens: 5000, CompletionTokens: 500}
	return map[string]loop.Data{
		"answered":  loop.Answer{Answer: "Not bought:\nno money.", Usage: used},
		"failed":    loop.Failed{Reason: loop.FailStepsExhausted, Message: "The run used all of its turns.", Usage: used},
		"cancelled": loop.Cancelled{Reason: "changed my mind", By: "ada"},
	}
}
