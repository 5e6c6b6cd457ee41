package torture

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

func arguments(tool string, args json.RawMessage) (json.RawMessage, []string, bool) {
	return args, nil, effects[tool] != ""
}

// play is a role in every strategy and shape, and in several runs.
func play(t *testing.T, strategy Strategy, check func(t *testing.T, r role)) {
	for _, shape := range Shapes {
		if shape.asks() && strategy != PlanReact {
			continue
		}
		for _, run := range []string{"run-1", "run-2", "run-3", "run-4"} {
			r := role{shape: shape, strategy: strategy, run: run, seed: 5}
			check(t, r)
		}
	}
}

// TestRoleIsInTheGoal reads a goal behind another one of the same conversation.
func TestRoleIsInTheGoal(t *testing.T) {
	want := role{ShapeRough, PlanActReflect, "run-1", 5}
	other := role{ShapePlain, React, "other", 1}
	if got, ok := readRole("The conversation so far:\nuser: " + other.goal() + "\nThe goal:\n" + want.goal()); !ok || got != want {
		t.Fatalf("the role is %+v", got)
	}
}

// TestScriptsKeepTheRules plays every shape to its end and checks each message as the engine does; lies must not pass.
func TestScriptsKeepTheRules(t *testing.T) {
	rules := plan.Rules{MinSteps: 2, Arguments: arguments}
	play(t, PlanReact, func(t *testing.T, r role) {
		var so plan.Plan
		for turn := range len(r.script()) + 2 {
			m, err := plan.Read(r.planReact(turn))
			if err == nil {
				m, err = plan.Check(so, m, rules)
			}
			if err != nil {
				t.Fatalf("%s, turn %d: %v", r.shape, turn, err)
			}
			so = m.Plan
			if last := turn == len(r.script())+1; last != (m.Type == plan.FinalAnswer) {
				t.Errorf("%s, turn %d is a %s", r.shape, turn, m.Type)
			}
		}
		for _, lie := range planLies {
			if m, err := plan.Read(lie.text); err == nil {
				if _, err := plan.Check(so, m, rules); err == nil {
					t.Errorf("the lie %s passes", lie.text)
				}
			}
		}
	})
}

// TestReactActs plays react in both forms.
func TestReactActs(t *testing.T) {
	rules := plan.ReactRules{Arguments: arguments, Single: func(string) (string, bool) { return "item", true }}
	play(t, React, func(t *testing.T, r role) {
		for _, tools := range []bool{false, true} {
			made := 0
			for turn := 0; ; turn++ {
				say := prompt{role: r, tools: tools, said: turn}.react()
				if made += len(say.calls); len(say.calls) > 0 {
					continue
				}
				got, err := plan.ReadReact(say.text, rules)
				if err != nil {
					t.Fatalf("%s, turn %d: %v in %s", r.shape, turn, err, say.text)
				}
				if got.Call == nil {
					if got.Answer != r.answer() {
						t.Errorf("%s answers %q", r.shape, got.Answer)
					}
					break
				}
				made++
			}
			if want := len(slices.Concat(r.batches()...)); made != want {
				t.Errorf("%s makes %d calls, want %d", r.shape, made, want)
			}
		}
	})
	for _, lie := range reactLies {
		if got, err := plan.ReadReact(lie.text, rules); err == nil {
			t.Errorf("the lie %s passes as %+v", lie.text, got)
		}
	}
}

// TestGraphsAreRight checks every graph as the engine does, and the rest of one that failed.
func TestGraphsAreRight(t *testing.T) {
	rules := plan.DAGRules{
		Arguments: func(string, json.RawMessage, []string) []string { return nil },
		Tool: func(name string) (plan.DAGTool, bool) {
			return plan.DAGTool{Fields: []string{"item"}, Once: effects[name] == loop.EffectOnce, Times: 100}, effects[name] != ""
		},
	}
	open, references := 0, 0
	play(t, PlanExecute, func(t *testing.T, r role) {
		d, _, err := plan.ReadDAG(prompt{role: r}.planExecute())
		if err == nil {
			err = plan.CheckDAG(d, rules)
		}
		if err != nil {
			t.Fatalf("%s: %v", r.shape, err)
		}
		for _, s := range d {
			open += len(s.Open)
			references += strings.Count(string(s.Args), "$")
		}
		failed := slices.Clone(d)
		failed[len(d)-1].Status, failed[len(d)-1].Result = plan.Failed, json.RawMessage(`"no"`)
		for i := range failed[:len(d)-1] {
			failed[i].Status, failed[i].Result = plan.Done, json.RawMessage(`{}`)
		}
		last := "Step " + failed[len(d)-1].ID + ", " + failed[len(d)-1].Tool + ", is failed.\nWrite the rest anew"
		rest, _, err := plan.ReadDAG(prompt{role: r, said: 1, last: last}.planExecute())
		if err == nil {
			_, err = plan.Replan(failed, rest, rules)
		}
		if err != nil {
			t.Errorf("%s: the rest: %v", r.shape, err)
		}
		m, err := plan.ReadMove(prompt{role: r, said: 1}.planExecute(), plan.FinalAnswer)
		if err != nil || m.Answer != r.answer() {
			t.Errorf("%s: the answer is %+v, %v", r.shape, m, err)
		}
	})
	if open == 0 || references == 0 {
		t.Errorf("%d open fields and %d references: the graphs show too little", open, references)
	}
	for _, lie := range graphLies {
		d, _, err := plan.ReadDAG(lie.text)
		if err == nil && plan.CheckDAG(d, rules) == nil {
			t.Errorf("the lie %s passes as a plan", lie.text)
		}
		if _, err := plan.ReadFill(lie.text, []string{"item"}); err == nil {
			t.Errorf("the lie %s passes as a fill", lie.text)
		}
		if _, err := plan.ReadMove(lie.text, plan.FinalAnswer); err == nil {
			t.Errorf("the lie %s passes as an answer", lie.text)
		}
	}
}

// TestRoundsEnd plays planner and critic against each other.
func TestRoundsEnd(t *testing.T) {
	play(t, PlanActReflect, func(t *testing.T, r role) {
		work, said := "", 0
		for rounds := 0; ; rounds++ {
			if rounds > 40 {
				t.Fatalf("%s never ends: %s", r.shape, work)
			}
			say := prompt{role: r, said: said}.planner()
			said++
			if !r.native() || say.text[0] == '{' {
				m, err := plan.ReadMove(say.text, plan.ToolCall, plan.FinalAnswer)
				if err != nil {
					t.Fatalf("%s: %v", r.shape, err)
				}
				say.calls = m.Calls
			}
			for range say.calls {
				work += "- Call c1 of x with {}: ok\n"
			}
			if len(say.calls) == 0 {
				work += "- The planner's answer so far: " + say.text + "\n"
			}
			v, err := plan.ReadVerdict(prompt{role: r, text: work}.criticise())
			if err != nil {
				t.Fatalf("%s: %v", r.shape, err)
			}
			if v.Done {
				break
			}
		}
	})
	for _, lie := range criticLies {
		if v, err := plan.ReadVerdict(lie.text); err == nil {
			t.Errorf("the lie %s passes as %+v", lie.text, v)
		}
	}
	for _, lie := range plannerLies {
		m, err := plan.ReadMove(lie.text, plan.ToolCall, plan.FinalAnswer)
		if err == nil {
			_, err = plan.CheckCalls(m.Calls, plan.Rules{Arguments: arguments})
		}
		if err == nil {
			t.Errorf("the lie %s passes", lie.text)
		}
	}
}
