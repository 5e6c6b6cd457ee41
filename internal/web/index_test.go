package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

var clock = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// journal makes the events of a run, with sequences from the given one on.
func journal(run string, seq uint64, data ...loop.Data) []loop.Event {
	events := make([]loop.Event, len(data))
	for i, d := range data {
		events[i] = loop.Event{
			RunID: loop.RunID{Tenant: "acme", Run: run}, N: uint64(i + 1), Seq: seq + uint64(i), Time: clock.Add(time.Duration(i) * time.Second),
			Source: "/agent/worker/w1", Data: d,
		}
	}
	return events
}

func accepted(goal string) loop.Accepted {
	task, _, err := loop.ParseTask([]byte(`{"id": "x", "goal": "`+goal+`"}`), "x")
	if err != nil {
		panic(err)
	}
	return loop.Accepted{Task: task}
}

func TestARunsLineFollowsItsEvents(t *testing.T) {
	made := loop.Made{Model: "m", Usage: &loop.Usage{PromptTokens: 10, CompletionTokens: 2}}
	steps := plan.Plan{{Step: "a", Status: plan.Done}, {Step: "b", Status: plan.Pending}}
	events := journal("r1", 1,
		accepted("goal"), loop.Facts{}, loop.Plan{Plan: steps, Created: true, Made: made}, loop.Question{Question: "q1", Kind: loop.KindAsk},
		loop.Control{Op: loop.OpPause}, loop.Reply{Question: "q1"}, loop.Control{Op: loop.OpResume}, loop.Thought{Made: made}, loop.Wait{},
		loop.Timeout{What: loop.TimeoutWait}, loop.Answer{Answer: "42", Usage: loop.Usage{PromptTokens: 20, CompletionTokens: 5}})
	want := []loop.Status{
		"running", "running", "running", "waiting", "paused", "paused", "running", "running", "waiting", "running", "done",
	}
	x := newIndex()
	for i, e := range events {
		if !x.apply(e) {
			t.Errorf("event %d: the run is not known", i+1)
		}
		x.apply(e) // once more changes nothing
		got, _ := x.page(filter{}, 0, 10)
		if len(got) != 1 || got[0].status != want[i] {
			t.Fatalf("after event %d, %s: %d runs, status %s, want %s", i+1, e.Type(), len(got), got[0].status, want[i])
		}
		if asks := x.state().asks; asks != map[bool]int{true: 1}[i == 3 || i == 4] {
			t.Errorf("after event %d: %d open questions", i+1, asks)
		}
	}
	got, _ := x.page(filter{}, 0, 10)
	if e := got[0]; e.done != 1 || e.steps != 2 || e.usage.Total() != 25 || e.outcome != "42" || e.model != "m" || e.worker != "w1" {
		t.Errorf("the run is %+v", e)
	}
}

func TestStoredStatesAndEventsMeet(t *testing.T) {
	x := newIndex()
	x.adopt([]loop.Head{{Tenant: "acme", Run: "r1", Status: loop.StatusWaiting, Strategy: "react", Seq: 5, First: 2, N: 3, Goal: "g"}})
	for _, e := range journal("r1", 2, accepted("g"), loop.Facts{}, loop.Facts{}, loop.Thought{}, loop.Answer{Answer: "late"}) {
		x.apply(e) // the state contains all but the last
	}
	got, _ := x.page(filter{}, 0, 10)
	if got[0].status != loop.StatusDone || got[0].seq != 6 {
		t.Errorf("the run is %+v", got[0])
	}
	x.adopt([]loop.Head{{Tenant: "acme", Run: "r1", Status: loop.StatusRunning, Seq: 4, First: 2}})
	if got, _ = x.page(filter{}, 0, 10); got[0].status != loop.StatusDone {
		t.Errorf("an older state made the run %s", got[0].status)
	}
}

func TestFilterAndPages(t *testing.T) {
	x := newIndex()
	for i := range 30 {
		tenant := []string{"acme", "globex"}[i%2]
		status := []loop.Status{loop.StatusDone, loop.StatusFailed, loop.StatusRunning}[i%3]
		x.adopt([]loop.Head{{
			Tenant: tenant, Run: fmt.Sprintf("r%02d", i), Status: status, Strategy: "react", Goal: fmt.Sprintf("Order %d", i),
			First: uint64(i + 1), Seq: uint64(100 - i), Updated: clock,
		}})
	}
	var seen []string
	for before := uint64(0); ; {
		page, next := x.page(filter{Tenant: "acme"}, before, 4)
		for _, e := range page {
			seen = append(seen, e.id.Run)
		}
		if before = next; next == 0 {
			break
		}
	}
	var want []string
	for i := 28; i >= 0; i -= 2 {
		want = append(want, fmt.Sprintf("r%02d", i))
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("runs of acme, newest first (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		f    filter
		want int
	}{
		{filter{Status: "done"}, 10},
		{filter{Status: statusOpen}, 10},
		{filter{Text: "ORDER 2"}, 11},
		{filter{Text: "r07"}, 1},
		{filter{Tenant: "acme", Status: "failed", Text: "1"}, 2},
		{filter{Strategy: "plan_react"}, 0},
	} {
		page, _ := x.page(c.f, 0, 100)
		if total := x.facets(c.f).Total; len(page) != c.want || total != c.want {
			t.Errorf("%+v: %d runs, counted %d, want %d", c.f, len(page), total, c.want)
		}
	}
	x.drop(loop.RunID{Tenant: "acme", Run: "r00"})
	x.expire(clock.Add(time.Second))
	if got := x.state().runs; got != 10 {
		t.Errorf("%d runs are left, want the 10 that go on", got)
	}
}

// TestTheListIsBounded fills it beyond its room: those that have ended leave, oldest first.
func TestTheListIsBounded(t *testing.T) {
	x := newIndex()
	heads := make([]loop.Head, maxRuns+10)
	for i := range heads {
		status := loop.StatusDone
		if i == 0 {
			status = loop.StatusWaiting
		}
		heads[i] = loop.Head{Tenant: "acme", Run: fmt.Sprintf("r%d", i), Status: status, Strategy: "react", First: uint64(i + 1), Seq: uint64(i + 1)}
	}
	x.adopt(heads)
	if got := x.state(); got.runs > maxRuns || got.left != dropAtOnce {
		t.Errorf("the list holds %d runs, %d left", got.runs, got.left)
	}
	if page, _ := x.page(filter{Status: "waiting"}, 0, 5); len(page) != 1 {
		t.Error("the oldest run, which has not ended, had to leave")
	}
}

func TestDrawAGraph(t *testing.T) {
	step := func(id string, after ...string) plan.DAGStep {
		return plan.DAGStep{ID: id, Tool: "tool_" + id, After: after, Status: plan.Done, Args: json.RawMessage(`{}`)}
	}
	g := draw(plan.DAG{step("a"), step("b"), step("c", "a", "b"), step("d", "c"), step("e", "a")})
	column := map[string]int{}
	for _, n := range g.Nodes {
		column[n.ID] = n.X
		if n.X < 0 || n.Y < 0 || n.X+nodeWidth > g.Width || n.Y+nodeHeight > g.Height {
			t.Errorf("node %s lies outside of the picture", n.ID)
		}
	}
	for _, pair := range [][2]string{{"a", "c"}, {"b", "c"}, {"c", "d"}, {"a", "e"}} {
		if column[pair[0]] >= column[pair[1]] {
			t.Errorf("%s does not stand to the right of %s", pair[1], pair[0])
		}
	}
	if len(g.Edges) != 4 || column["c"] != column["e"] {
		t.Errorf("%d edges, columns %v", len(g.Edges), column)
	}
	if draw(nil) != nil || draw(make(plan.DAG, maxDrawn+1)) != nil {
		t.Error("a plan that is empty or too large was drawn")
	}
	draw(plan.DAG{step("x", "y"), step("y", "x"), step("z", "z", "nobody")}) // nonsense must not hang
}

func TestWhatAReaderCanNotSeeIsShown(t *testing.T) {
	for text, want := range map[string]string{
		"plain ünïcode ∑\n": "plain ünïcode ∑\n",
		"pay \u202eevil":    "pay ⟨U+202E⟩evil",
		"zero\u200bwidth":   "zero⟨U+200B⟩width",
		"bell\a":            "bell⟨U+0007⟩",
	} {
		if got := visible(text); got != want {
			t.Errorf("visible(%q) is %q, want %q", text, got, want)
		}
	}
	if family := "👩\u200d💻"; readable(family) != family || readable("a\u202eb") != "a⟨U+202E⟩b" {
		t.Error("prose is not shown as it should be")
	}
}

// secondLife is a store whose server has restarted, with a journal that ends at last and these states.
type secondLife struct {
	*world
	last uint64
	life string
}

func (s *secondLife) LastEvent(context.Context) (uint64, error) { return s.last, nil }

func (s *secondLife) Changed(_ context.Context, after loop.Cursor, _ int) ([]loop.Head, loop.Cursor, error) {
	last := loop.Cursor{Revision: 1, Life: s.life}
	if after == last {
		return nil, after, nil
	}
	return s.heads, last, nil
}

// A server that restarts and has all it had changes nothing. One that has lost events has others in their place, and runs that
// are not there any more leave the list.
func TestTheListForgetsWhatTheServerHasLost(t *testing.T) {
	head := func(run string, seq uint64, status loop.Status) loop.Head {
		return loop.Head{V: loop.HeadVersion, Tenant: "acme", Run: run, First: 1, Seq: seq, N: seq, Status: status, Updated: clock}
	}
	store := &secondLife{world: &world{heads: []loop.Head{head("a", 5, loop.StatusDone), head("b", 6, loop.StatusRunning)}}, last: 6, life: "first"}
	f := newFeed(store, time.Hour, func() time.Time { return clock }, slog.New(slog.DiscardHandler))
	if err := f.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.index.apply(loop.Event{RunID: loop.RunID{Tenant: "acme", Run: "b"}, N: 7, Seq: 7, Time: clock, Data: loop.Thought{}})
	list := func() (lines []string) {
		t.Helper()
		if err := f.catchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		page, _ := f.index.page(filter{}, 0, 10)
		for _, e := range page {
			lines = append(lines, fmt.Sprintf("%s %s up to %d", e.id.Run, e.status, e.seq))
		}
		slices.Sort(lines)
		return lines
	}
	for _, step := range []struct {
		life  string
		last  uint64
		heads []loop.Head
		want  []string
	}{
		{"first", 7, store.heads, []string{"a done up to 5", "b running up to 7"}},
		{"second", 7, store.heads, []string{"a done up to 5", "b running up to 7"}},
		{"third", 4, []loop.Head{head("a", 4, loop.StatusRunning)}, []string{"a running up to 4"}},
	} {
		store.life, store.last, store.heads = step.life, step.last, step.heads
		if diff := cmp.Diff(step.want, list()); diff != "" {
			t.Errorf("in the %s life (-want +got):\n%s", step.life, diff)
		}
	}
}
