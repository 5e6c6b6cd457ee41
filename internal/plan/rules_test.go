package plan_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"ratchet/internal/plan"
)

var update = flag.Bool("update", false, "write down what the worker says in testdata/rules")

// checkRules are the rules that a conversation must show: broken once, and kept after the correction.
var checkRules = []string{
	plan.RuleFirstNotCreate, plan.RuleSecondCreate, plan.RuleMinSteps, plan.RuleNotPending, plan.RuleEmptyPlan,
	plan.RuleStepText, plan.RuleStepStatus, plan.RuleStepResult, plan.RuleStepOrder, plan.RuleInProgress, plan.RuleDoneChanged,
	plan.RuleNoOpenStep, plan.RuleOpenSteps, plan.RuleNothingClosed, plan.RuleBlankAnswer, plan.RuleBlankQuestion,
	plan.RuleAnswerSchema, plan.RuleNoCall, plan.RuleNameAndCalls, plan.RuleTooManyCalls, plan.RuleUnknownTool, plan.RuleArguments,
}

// TestRules plays the conversations in testdata/rules: what a model says, and what the worker makes of it. A message that
// is accepted hands its plan to the next turn.
func TestRules(t *testing.T) {
	for _, rule := range checkRules {
		t.Run(rule, func(t *testing.T) {
			file := filepath.Join("testdata", "rules", rule+".txtar")
			conversation, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var played []txtar.File
			var prev plan.Plan
			var broken, kept bool
			for _, f := range conversation.Files {
				if f.Name != "model" {
					continue
				}
				said := "accepted"
				m, err := reply(prev, string(f.Data))
				var v *plan.Violation
				switch {
				case errors.As(err, &v):
					said = fmt.Sprintf("rejected (%s): %s", v.Rule, v)
					broken = broken || v.Rule == rule
					checkCorrection(t, err, nil)
				case err != nil:
					t.Fatalf("the error is no violation: %v", err)
				default:
					said += ": " + m.Encode()
					prev = m.Plan
					kept = broken
				}
				played = append(played, f, txtar.File{Name: "worker", Data: []byte(said + "\n")})
			}
			if !broken || !kept {
				t.Errorf("the conversation breaks the rule: %t, and keeps it afterwards: %t", broken, kept)
			}
			want := txtar.Format(conversation)
			got := txtar.Format(&txtar.Archive{Comment: conversation.Comment, Files: played})
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
				t.Errorf("conversation (-recorded +played), -update writes it anew:\n%s", diff)
			}
		})
	}
}
