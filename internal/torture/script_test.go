package torture

import (
	"encoding/json"
	"testing"

	"ratchet/internal/plan"
)

// TestScriptsKeepTheRules plays every shape to its end and checks each message as the engine does; lies must not pass.
func TestScriptsKeepTheRules(t *testing.T) {
	rules := plan.Rules{MinSteps: 2, Arguments: func(tool string, args json.RawMessage) (json.RawMessage, []string, bool) {
		_, known := effects[tool]
		return args, nil, known
	}}
	for _, shape := range Shapes {
		r, ok := readRole("The conversation so far:\nuser: " + goalOf(ShapePlain, "other", 1) + "\nThe goal:\n" + goalOf(shape, "run-1", 5))
		if !ok || r.shape != shape || r.run != "run-1" || r.seed != 5 {
			t.Fatalf("the role is %+v", r)
		}
		var so plan.Plan
		for turn := range len(r.script()) + 2 {
			m, err := plan.Read(r.say(turn))
			if err == nil {
				m, err = plan.Check(so, m, rules)
			}
			if err != nil {
				t.Fatalf("%s, turn %d: %v", shape, turn, err)
			}
			so = m.Plan
			if last := turn == len(r.script())+1; last != (m.Type == plan.FinalAnswer) {
				t.Errorf("%s, turn %d is a %s", shape, turn, m.Type)
			}
		}
		for _, lie := range lies {
			if m, err := plan.Read(lie); err == nil {
				if _, err := plan.Check(so, m, rules); err == nil {
					t.Errorf("the lie %s passes", lie)
				}
			}
		}
	}
}
