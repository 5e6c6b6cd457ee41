package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parent is the state of a run that has asked for these calls of delegate, in one message.
func parent(t *testing.T, change func(*Task), arguments ...string) State {
	t.Helper()
	task := Task{ID: "a", Goal: "g", Limits: Limits{MaxTokens: 10_000}}.withDefaults()
	if change != nil {
		change(&task)
	}
	calls := make([]ToolCall, len(arguments))
	for i, a := range arguments {
		calls[i] = ToolCall{Call: fmt.Sprint("c", i+1), Tool: "delegate", Arguments: json.RawMessage(a), Effect: EffectIdempotent}
	}
	return steps(t, State{},
		Accepted{Task: task, Tools: []OfferedTool{{Name: "delegate", Delegate: true}, {Name: "get_a"}, {Name: "get_b", Approve: true}}},
		Facts{},
		Call{Calls: calls, Made: Made{Usage: &Usage{PromptTokens: 1000}}})
}

// steps folds data as events that are a second apart.
func steps(t *testing.T, s State, data ...Data) State {
	t.Helper()
	for _, d := range data {
		at := time.Date(2026, 3, 1, 9, 0, int(s.N), 0, time.UTC)
		s = Step(s, Event{RunID: RunID{"default", "a"}, N: s.N + 1, Seq: s.N + 7, Time: at, Data: d})
	}
	return s
}

// down writes down the child run of a call.
func down(t *testing.T, s State, call string) (State, Data) {
	t.Helper()
	d := s.writeDown(*s.call(call))
	return steps(t, s, d), d
}

func TestTokensOfChildren(t *testing.T) {
	s := parent(t, nil, `{"goal": "x"}`, `{"goal": "y", "max_tokens": 700}`)
	s, one := down(t, s, "c1")
	if got, want := one.(Child).Tokens, 9000/3; got != want {
		t.Errorf("the first child gets %d tokens, want an equal share of %d", got, want)
	}
	s, two := down(t, s, "c2")
	if got := two.(Child).Tokens; got != 700 {
		t.Errorf("the second child gets %d tokens and asked for 700", got)
	}
	if got, want := s.tokensUsed(), 1000+3000+700; got != want {
		t.Errorf("%d tokens count as used, want %d", got, want)
	}
	first, problem := s.firstOfChild(*s.call("c1"))
	if got := first.Task.Limits.MaxTokens; got != 3000 || problem != "" {
		t.Errorf("the child may use %d tokens: %s", got, problem)
	}
	s = steps(t, s, Child{Call: "c1", Run: one.(Child).Run, Status: StatusDone, Usage: &Usage{PromptTokens: 400, CompletionTokens: 50}, Lost: 5})
	if got, want := s.tokensUsed(), 1000+450+5+700; got != want {
		t.Errorf("after the first child has ended %d tokens count as used, want %d", got, want)
	}
	// A child whose end is not known keeps what it was given: too much is counted rather than too little.
	s = steps(t, s, Control{Op: OpCancel}, Observation{Call: "c2", Tool: "delegate", Status: ObservedCancelled, Result: []byte(`""`)})
	if got, want := s.tokensUsed(), 1000+450+5+700; got != want {
		t.Errorf("after a cancel %d tokens count as used, want %d", got, want)
	}
}

func TestChildRunsThatAreNotBegun(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*Task)
		arguments string
		says      string
	}{
		"no tokens":    {func(t *Task) { t.Limits.MaxTokens = 1900 }, `{"goal": "x"}`, "Of the 1900 tokens of this run too few are left."},
		"no goal":      {nil, `{"goal": " "}`, "goal is missing"},
		"strategy":     {nil, `{"goal": "x", "strategy": "tree"}`, `strategy \"tree\" is not one of`},
		"tool":         {nil, `{"goal": "x", "tools": ["get_*", "pay"]}`, "This run has no tool pay to pass on."},
		"bad pattern":  {nil, `{"goal": "x", "tools": ["get_["]}`, "This run has no tool get_[ to pass on."},
		"not readable": {nil, `{"goal": 7}`, "can't be read"},
		"long":         {nil, `{"goal": "` + strings.Repeat("x", maxGoal+1) + `"}`, "goal has"},
	} {
		s := parent(t, c.change, c.arguments)
		_, d := down(t, s, "c1")
		o, ok := d.(Observation)
		if !ok || o.Status != ObservedError || !strings.Contains(string(o.Result), c.says) || !strings.Contains(string(o.Result), "No child run was begun.") {
			t.Errorf("%s: %+v %s, want it to say %s", name, d, o.Result, c.says)
		}
	}
}

func TestCountOfChildren(t *testing.T) {
	s := parent(t, func(t *Task) { t.Limits.MaxChildren = 1 }, `{"goal": "x"}`, `{"goal": "y"}`)
	s, _ = down(t, s, "c1")
	if _, d := down(t, s, "c2"); d.(Observation).Status != ObservedError || !strings.Contains(string(d.(Observation).Result), "limits.max_children") {
		t.Errorf("the second child: %+v", d)
	}
}

func TestToolsOfChildren(t *testing.T) {
	names := func(s *State, call string) []string {
		first, _ := s.firstOfChild(*s.call(call))
		out := []string{}
		for _, o := range first.Tools {
			out = append(out, fmt.Sprintf("%s %t", o.Name, o.Approve))
		}
		return out
	}
	for _, c := range []struct {
		depth     int
		arguments string
		want      []string
	}{
		{2, `{"goal": "x"}`, []string{"delegate false", "get_a false", "get_b true"}},
		{1, `{"goal": "x"}`, []string{"get_a false", "get_b true"}},
		{2, `{"goal": "x", "tools": ["get_b", "set_*"]}`, []string{"get_b true"}},
		{2, `{"goal": "x", "tools": []}`, []string{}},
	} {
		s := parent(t, func(t *Task) { t.Limits.MaxDepth = c.depth; t.Approve = []string{"x*"} }, c.arguments)
		if diff := cmp.Diff(c.want, names(&s, "c1")); diff != "" {
			t.Errorf("%d %s (-want +got):\n%s", c.depth, c.arguments, diff)
		}
		if first, _ := s.firstOfChild(*s.call("c1")); first.Task.Limits.MaxDepth != c.depth-1 || !slices.Equal(first.Task.Approve, []string{"x*"}) {
			t.Errorf("the child has the depth %d and approve %v", first.Task.Limits.MaxDepth, first.Task.Approve)
		}
	}
}

func TestChildIDs(t *testing.T) {
	long := strings.Repeat("r", 64)
	id := func(run, call string, first uint64) string {
		s := State{RunID: RunID{"t", run}, First: first}
		return s.childID(call).Run
	}
	seen := map[string]bool{}
	for _, got := range []string{id("a", "c1", 1), id("a", "c2", 1), id("a", "c1", 2), id("b", "c1", 1), id(long, "c1", 1), id(long, "c123456", 1)} {
		if !ValidID(got) || seen[got] {
			t.Errorf("%q is no id of its own", got)
		}
		seen[got] = true
	}
	if got, want := id("a", "c1", 1), "a-c1-"; len(got) != len(want)+10 || !strings.HasPrefix(got, want) || !seen[got] {
		t.Errorf("the id of a child is %q the second time", got)
	}
}

// A run that waits for its children owes nothing, and its clock stands still.
func TestWaitingForChildren(t *testing.T) {
	s := parent(t, nil, `{"goal": "x"}`, `{"goal": "y"}`)
	for _, call := range []string{"c1", "c2"} {
		if got := s.Owed()[0].Key(); got != "child/"+call {
			t.Fatalf("owed is %s", got)
		}
		s, _ = down(t, s, call)
	}
	if owed := s.Owed(); len(owed) > 0 || s.Status() != StatusWaiting {
		t.Fatalf("the run is %s and owes %v", s.Status(), owed)
	}
	worked := s.Worked
	s = steps(t, s, Child{Call: "c2", Run: s.call("c2").Child.Run, Status: StatusDone})
	if s.Worked != worked {
		t.Errorf("waiting counted as %s of work", s.Worked-worked)
	}
	if owed := s.Owed(); len(owed) != 1 || owed[0].Key() != "child/c2" {
		t.Errorf("after the end of a child the run owes %v", owed)
	}
	s = steps(t, s, Control{Op: OpCancel})
	if owed := s.Owed(); len(owed) != 2 || owed[0].Key() != "close/c1" {
		t.Errorf("after a cancel the run owes %v", owed)
	}
}
