package terminal

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

// tree is a run with two child runs, one of which has a child that asks.
func tree() (*Run, []loop.Event) {
	at := func(run string, n uint64, d loop.Data) loop.Event {
		return loop.Event{RunID: loop.RunID{Tenant: "default", Run: run}, N: n, Time: noon.Add(time.Duration(n) * time.Second), Data: d}
	}
	delegate := func(call, goal string) loop.ToolCall {
		return loop.ToolCall{Call: call, Tool: "delegate", Arguments: json.RawMessage(`{"goal": "` + goal + `"}`)}
	}
	q := loop.Question{Question: "q1", Kind: loop.KindAsk, Text: "How many?", Chain: []string{"a", "a1"}}
	return NewRun("a", "The whole", noon), []loop.Event{
		at("a", 3, loop.Call{Calls: []loop.ToolCall{delegate("c1", "The left"), delegate("c2", "The right")}}),
		at("a", 4, loop.Child{Call: "c1", Run: "a1"}),
		at("a", 5, loop.Child{Call: "c2", Run: "a2"}),
		at("a1", 3, loop.Call{Calls: []loop.ToolCall{delegate("c1", "The detail")}}),
		at("a1", 4, loop.Child{Call: "c1", Run: "a11"}),
		at("a11", 3, q),
		at("a2", 9, loop.Answer{Answer: "right", Usage: loop.Usage{PromptTokens: 1200}, Chain: []string{"a"}}),
		at("a", 6, loop.Child{Call: "c2", Run: "a2", Status: loop.StatusDone, Usage: &loop.Usage{PromptTokens: 1200}}),
	}
}

func TestChildRunsInTheLiveView(t *testing.T) {
	r, events := tree()
	for _, e := range events[:6] {
		r.Find(e.Run).Apply(e)
	}
	show := func() string { return strings.Join(r.Lines(noon.Add(20*time.Second), 60, 20, Style{}), "\n") }
	want := `⠋ The whole
  ⠋ c1 The left: waiting for a child run
  ○ c1.c1 The detail: waiting for an answer
  ⠋ c2 The right: waiting for a worker to take it
  waiting for 2 child runs
  20 s · 0 tokens · run a`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(show(), "\n")); diff != "" {
		t.Errorf("two child runs (-want +got):\n%s", diff)
	}
	if asking := r.Asking(); len(asking) != 1 || asking[0].ID != "a11" {
		t.Errorf("asking are %v", asking)
	}
	for _, e := range events[6:] {
		r.Find(e.Run).Apply(e)
	}
	if got := show(); strings.Contains(got, "The right") || !strings.Contains(got, "1,200 tokens") || r.Find("a3") != nil {
		t.Errorf("after the end of a child run the view is\n%s", got)
	}
}

func TestManyChildRunsInTheLiveView(t *testing.T) {
	r, _ := tree()
	for range 10 {
		r.Apply(loop.Event{N: 4, Time: noon, Data: loop.Child{Call: "c1", Run: "b"}})
	}
	if got := r.belowLines(noon, 60, Style{}); len(got) != mostBelow+1 || got[mostBelow] != "    … 4 more" {
		t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
}

func TestFormNamesTheChain(t *testing.T) {
	_, events := tree()
	lines := NewForm(events[5].Data.(loop.Question)).Lines(60, Style{})
	want := []string{"? How many?", "  asked by a child run, below a > a1"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("the question (-want +got):\n%s", diff)
	}
}

func TestPageOfChildRuns(t *testing.T) {
	h := loop.Head{Run: "a1", Status: loop.StatusWaiting, Goal: "g", Parent: "a", Children: []string{"a11"}, Started: noon, Updated: noon}
	page := strings.Join(Page(h, nil, noon, 80, Style{}), "\n")
	for _, want := range []string{"  waits for the child run a11", "below run a"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}
