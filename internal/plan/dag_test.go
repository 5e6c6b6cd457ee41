package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// dagRules offers the tools of the corpus; send_email is a once tool.
var dagRules = plan.DAGRules{
	Tools: []string{"search", "calc", "send_email", "now"},
	Vars:  []string{"email", "customer"},
	Tool: func(name string) (plan.DAGTool, bool) {
		tool, known := dagTools[name]
		return tool, known
	},
	Arguments: func(tool string, args json.RawMessage, later []string) []string {
		_, problems, _ := checkArguments(tool, args)
		return slices.DeleteFunc(problems, func(p string) bool {
			name, missing := strings.CutSuffix(p, " is missing")
			return missing && slices.Contains(later, name)
		})
	},
}

var dagTools = map[string]plan.DAGTool{
	"search":     {Fields: []string{"max_results", "query"}},
	"calc":       {Fields: []string{"expr"}},
	"send_email": {Fields: []string{"body", "subject", "to"}, Once: true},
	"now":        {},
}

// dagOf wraps steps, written one after the other, as a reply.
func dagOf(steps ...string) string {
	return `{"type":"create_plan","thought":"dag","plan":[` + strings.Join(steps, ",") + `]}`
}

// readAndCheck is what becomes of a reply that must be a DAG.
func readAndCheck(text string) (plan.DAG, error) {
	d, _, err := plan.ReadDAG(text)
	if err != nil {
		return nil, err
	}
	return d, plan.CheckDAG(d, dagRules)
}

// mustDAG reads steps that are right.
func mustDAG(t testing.TB, steps ...string) plan.DAG {
	t.Helper()
	d, err := readAndCheck(dagOf(steps...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCorpusDAG(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus-dag/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d corpus files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Input, Expect string
				Detail        struct{ Steps plan.DAG } `json:"expect_detail"`
			}
			if err := json.Unmarshal(data, &c); err != nil {
				t.Fatal(err)
			}
			d, err := readAndCheck(c.Input)
			if c.Expect == "reject" {
				if err == nil {
					t.Fatal("accepted")
				}
				checkCorrection(t, err, nil)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.Detail.Steps {
				s := &c.Detail.Steps[i]
				s.Args, s.Status = json.RawMessage(compact(t, s.Args)), plan.Pending
			}
			if diff := cmp.Diff(c.Detail.Steps, d); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckDAGRefuses: every check, with what the correction must name. The rules are those of all problems found.
func TestCheckDAGRefuses(t *testing.T) {
	const one = `{"id":"1","tool":"search","args":{"query":"a"}}`
	for _, c := range []struct {
		name     string
		text     string
		rules    []string
		mentions []string
	}{
		{"no steps", dagOf(), []string{plan.RuleEmptyPlan}, []string{"no steps"}},
		{"unknown tool", dagOf(one, `{"id":"2","tool":"fly"}`), []string{plan.RuleUnknownTool}, []string{`Step "2"`, `"fly"`, "send_email"}},
		{"no tool", dagOf(`{"id":"2"}`), []string{plan.RuleNoTool}, []string{`Step "2"`}},
		{"missing id", dagOf(one, `{"tool":"now"}`), []string{plan.RuleStepID}, []string{"number 2"}},
		{"id that no reference can name", dagOf(`{"id":"a.b","tool":"now"}`), []string{plan.RuleStepID}, []string{`"a.b"`}},
		{"fraction as id", dagOf(`{"id":1.0,"tool":"now"}`), []string{plan.RuleStepID}, []string{`"1.0"`}},
		{"session as id", dagOf(`{"id":"session","tool":"now"}`), []string{plan.RuleStepID}, []string{"session"}},
		{"duplicate id", dagOf(one, one), []string{plan.RuleDuplicateID}, []string{"number 1 and 2", `"1"`}},
		{"duplicate id, number and text", dagOf(`{"id":1,"tool":"now"}`, one), []string{plan.RuleDuplicateID}, []string{`"1"`}},
		{"waits for nobody", dagOf(`{"id":"1","tool":"now","after":["9"]}`), []string{plan.RuleDependency}, []string{`Step "1"`, `"9"`}},
		{"waits for itself", dagOf(`{"id":"1","tool":"now","after":[1]}`), []string{plan.RuleSelf}, []string{`Step "1" waits for itself`}},
		{"refers to itself", dagOf(`{"id":"1","tool":"calc","args":{"expr":"$1"}}`), []string{plan.RuleSelf}, []string{`Step "1"`}},
		{
			"circle of two", dagOf(`{"id":"1","tool":"now","after":["2"]}`, `{"id":"2","tool":"now","after":["1"]}`),
			[]string{plan.RuleCycle},
			[]string{`"1", "2"`},
		},
		{
			"circle of five", dagOf(
				`{"id":"x","tool":"now","after":["a"]}`, `{"id":"a","tool":"now","after":["e"]}`, `{"id":"b","tool":"now","after":["a"]}`,
				`{"id":"c","tool":"now","after":["b"]}`, `{"id":"d","tool":"now","after":["c"]}`, `{"id":"e","tool":"now","after":["d"]}`,
			), []string{plan.RuleCycle}, []string{`"a", "e", "d", "c", "b"`},
		},
		{
			"two circles", dagOf(`{"id":"1","tool":"now","after":["2"]}`, `{"id":"2","tool":"now","after":["1"]}`,
				`{"id":"3","tool":"now","after":["4"]}`, `{"id":"4","tool":"now","after":["3"]}`),
			[]string{plan.RuleCycle, plan.RuleCycle},
			[]string{`"1", "2"`, `"3", "4"`},
		},
		{
			"two circles through one step", dagOf(`{"id":"1","tool":"now","after":["2","3"]}`, `{"id":"2","tool":"now","after":["1"]}`,
				`{"id":"3","tool":"now","after":["1"]}`),
			[]string{plan.RuleCycle},
			[]string{`"1", "2"`},
		},
		{
			"circle over a reference", dagOf(`{"id":"1","tool":"now","after":["2"]}`, `{"id":"2","tool":"calc","args":{"expr":"$1"}}`),
			[]string{plan.RuleCycle},
			[]string{`"1", "2"`},
		},
		{
			"reference to a later step", dagOf(`{"id":"1","tool":"calc","args":{"expr":"$2.x"}}`, `{"id":"2","tool":"now"}`),
			[]string{plan.RuleReference},
			[]string{`"$2.x"`, "later"},
		},
		{"reference to nobody", dagOf(`{"id":"1","tool":"calc","args":{"expr":"$7"}}`), []string{plan.RuleReference}, []string{`"$7"`, "$$7"}},
		{"escaped reference to nobody", dagOf(`{"id":"1","tool":"calc","args":{"expr":"\u00247"}}`), []string{plan.RuleReference}, []string{`"$7"`}},
		{"unknown var", dagOf(`{"id":"1","tool":"calc","args":{"expr":"$session.key"}}`), []string{plan.RuleUnknownVar}, []string{"email"}},
		{"wrong literal type", dagOf(`{"id":"1","tool":"calc","args":{"expr":1}}`), []string{plan.RuleArguments}, []string{"expr must be"}},
		{
			"wrong literal beside a reference", dagOf(one, `{"id":"2","tool":"search","args":{"query":"$1","max_results":"x"}}`),
			[]string{plan.RuleArguments},
			[]string{"max_results must be"},
		},
		{
			"missing beside a reference and an open field",
			dagOf(one, `{"id":"2","tool":"send_email","args":{"to":"$1.to"},"open":["body"]}`),
			[]string{plan.RuleArguments},
			[]string{"subject is missing"},
		},
		{"unknown argument", dagOf(`{"id":"1","tool":"now","args":{"x":"$session.email","y":1}}`), []string{plan.RuleArguments}, []string{"y is not"}},
		{"args as text", dagOf(`{"id":"1","tool":"now","args":"{}"}`), []string{plan.RuleArguments}, []string{"a string"}},
		{"args as a list", dagOf(`{"id":"1","tool":"now","args":[]}`), []string{plan.RuleArguments}, []string{"a list"}},
		{
			"a once tool twice", dagOf(`{"id":"1","tool":"send_email","args":{"to":"a","subject":"b","body":"c"}}`,
				`{"id":"2","tool":"send_email","args":{"to":"a","subject":"b","body":"c"}}`),
			[]string{plan.RuleOnce},
			[]string{"send_email", "1 time", `"1", "2"`},
		},
		{"unknown open field", dagOf(`{"id":"1","tool":"calc","args":{"expr":"1"},"open":["to"]}`), []string{plan.RuleOpenField}, []string{`"to"`, "expr"}},
		{
			"everything at once", dagOf(`{"id":"1","tool":"fly","args":7}`, `{"id":"1","tool":"calc","args":{"expr":"$9"},"open":["x"]}`,
				`{"id":"3","tool":"now","after":["3","8"]}`),
			[]string{
				plan.RuleUnknownTool, plan.RuleArguments, plan.RuleDuplicateID, plan.RuleReference, plan.RuleOpenField, plan.RuleSelf,
				plan.RuleDependency,
			},
			[]string{"There are 7 problems", "(7)", `"8"`},
		},

		{"not the first type", strings.Replace(dagOf(one), "create_plan", "tool_call", 1), []string{plan.RuleUnknownType}, []string{"create_plan"}},
		{"no plan", `{"type":"create_plan"}`, []string{plan.RuleMissingField}, []string{"plan"}},
		{"list without its message", "[" + one + "]", []string{plan.RuleNotObject}, []string{"create_plan"}},
		{"plan as an object", `{"type":"create_plan","plan":{"1":{}}}`, []string{plan.RuleWrongType}, []string{"list"}},
		{
			"wrong form, all of it", dagOf(`"look"`, `{"id":true,"tool":["now"],"after":"1","open":[{}]}`),
			[]string{plan.RuleWrongType, plan.RuleWrongType, plan.RuleWrongType, plan.RuleWrongType, plan.RuleWrongType},
			[]string{"5 problems", "number 1", "an id that is a boolean", "tool is a list", "after is a string", "open holds an object"},
		},
		{
			"fields by other names", dagOf(`{"id":"1","tool":"calc","arguments":{"expr":"1"},"depends_on":["2"]}`),
			[]string{plan.RuleForeignField, plan.RuleForeignField},
			[]string{"called args", "called after"},
		},
		{
			"long list", dagOf(`{"id":"1","tool":"now","after":[` + strings.Repeat("9,", 1000) + `9]}`),
			[]string{plan.RuleTooManySteps},
			[]string{"after has 1001 entries"},
		},
		{"key of a step twice", dagOf(`{"id":"1","ID":"2"}`), []string{plan.RuleDuplicateKey}, []string{`"ID"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readAndCheck(c.text)
			wantProblems(t, err, c.rules, c.mentions)
		})
	}
}

// wantProblems holds an error to be a violation of these rules, all of them and no others.
func wantProblems(t *testing.T, err error, rules, mentions []string) {
	t.Helper()
	var v *plan.Violation
	if !errors.As(err, &v) {
		t.Fatalf("no violation: %v", err)
	}
	got := []string{v.Rule}
	if v.Problems != nil {
		got = nil
		for _, p := range v.Problems {
			got = append(got, p.Rule)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(rules)), got); diff != "" {
		t.Errorf("rules (-want +got):\n%s\n%v", diff, err)
	}
	for _, want := range mentions {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the correction does not mention %q: %v", want, err)
		}
	}
}

// TestReadDAGAccepts: what a plan may hold, and that a reference adds its edge.
func TestReadDAGAccepts(t *testing.T) {
	d := mustDAG(
		t,
		`{"id":"load","tool":"search","args":{"query":"costs $5, $USD, $9.50 and $load","max_results":90071992547409930},"status":"done","result":1}`,
		`{"id":2,"tool":"calc","args":{"expr":"$$load"},"after":["late"],"open":null}`,
		`{"id":"3","tool":"send_email","args":{"to":"$session.customer.email","subject":"$load.rows.0","body":"see $2"},`+
			`"after":[2,"2"],"open":["body","body"]}`,
		`{"id":"late","tool":"now","args":null}`,
	)
	want := plan.DAG{
		{
			ID: "load", Tool: "search", Args: []byte(`{"query":"costs $5, $USD, $9.50 and $load","max_results":90071992547409930}`),
			After: []string{}, Open: []string{}, Status: plan.Pending,
		},
		{ID: "2", Tool: "calc", Args: []byte(`{"expr":"$$load"}`), After: []string{"late"}, Open: []string{}, Status: plan.Pending},
		{
			ID: "3", Tool: "send_email", Args: []byte(`{"to":"$session.customer.email","subject":"$load.rows.0","body":"see $2"}`),
			After: []string{"2", "load"}, Open: []string{"body"}, Status: plan.Pending,
		},
		{ID: "late", Tool: "now", Args: []byte(`{}`), After: []string{}, Open: []string{}, Status: plan.Pending},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestCheckDAGTimes: a once tool may say that it allows more than one step.
func TestCheckDAGTimes(t *testing.T) {
	r := dagRules
	r.Tool = func(string) (plan.DAGTool, bool) { return plan.DAGTool{Once: true, Times: 2}, true }
	step := func(id int) string { return fmt.Sprintf(`{"id":%d,"tool":"now"}`, id) }
	two, _, _ := plan.ReadDAG(dagOf(step(1), step(2)))
	if err := plan.CheckDAG(two, r); err != nil {
		t.Error(err)
	}
	three, _, _ := plan.ReadDAG(dagOf(step(1), step(2), step(3)))
	wantProblems(t, plan.CheckDAG(three, r), []string{plan.RuleOnce}, []string{"2 times"})
}

// TestTooManySteps: 10,000 steps are refused before anything is made of them, read or not, and so is one more than the task allows.
func TestTooManySteps(t *testing.T) {
	steps := slices.Repeat([]string{`{"tool":"x"}`}, 10_000)
	_, _, err := plan.ReadDAG(dagOf(steps...))
	wantProblems(t, err, []string{plan.RuleTooManySteps}, []string{"10000", "1000"})
	wantProblems(t, plan.CheckDAG(make(plan.DAG, 10_000), dagRules), []string{plan.RuleTooManySteps}, []string{"10000"})
	r := dagRules
	r.MaxSteps = 1
	wantProblems(t, plan.CheckDAG(make(plan.DAG, 2), r), []string{plan.RuleTooManySteps}, []string{"2 steps; 1"})
}

// TestManyProblems: a correction stays short, whatever is wrong, and every problem is counted.
func TestManyProblems(t *testing.T) {
	_, err := readAndCheck(dagOf(slices.Repeat([]string{`{"tool":"` + strings.Repeat("x", 100) + `"}`}, 1000)...))
	var v *plan.Violation
	if !errors.As(err, &v) || len(v.Problems) != 2000 || len(v.Text) > 6000 || !strings.Contains(v.Text, "And 1970 more") {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

// TestHostileTextsAreRefused: no reader takes a text of the greatest size for what it reads, or breaks down over it, whatever
// it is made of. How long each takes is BenchmarkHostile's to tell.
func TestHostileTextsAreRefused(t *testing.T) {
	tempting := hostile(plan.MaxReply)
	for name, text := range hostileToAll(plan.MaxReply) {
		_, dagErr := readAndCheck(text)
		_, fillErr := plan.ReadFill(text, []string{"x", "y"})
		_, verdictErr := plan.ReadVerdict(text)
		errs := map[string]error{"a plan": dagErr, "a fill": fillErr, "a verdict": verdictErr}
		if tempting[name] != "" {
			_, errs["a message"] = plan.Read(text)
		}
		for reader, err := range errs {
			var v *plan.Violation
			switch {
			case !errors.As(err, &v):
				t.Errorf("%s is taken for %s: %v", name, reader, err)
			case len(v.Text) > 8<<10:
				t.Errorf("%s: the correction for %s has %d bytes", name, reader, len(v.Text))
			}
		}
		// Of text without braces the reader of labels makes a final answer; what it refuses, it refuses in words.
		if _, err := plan.ReadReact(text, reactRules); err != nil && len(err.Error()) > 8<<10 {
			t.Errorf("%s: the correction has %d bytes", name, len(err.Error()))
		}
	}
}

// hostileToAll adds to the hostile replies those that tempt the readers of plans, fills and labels; of at most n bytes.
func hostileToAll(n int) map[string]string {
	texts := hostile(n)
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (n-len(head)-len(tail))/len(unit)) + tail
	}
	texts["references"] = fill(`{"type":"create_plan","plan":[{"id":"1","tool":"calc","args":{"expr":["$1"`, `,"$1"`, `]}}]}`)
	texts["missing references"] = fill(`{"type":"create_plan","plan":[{"id":"1","tool":"calc","args":{"expr":["$9"`, `,"$9"`, `]}}]}`)
	texts["args"] = `{"type":"create_plan","plan":[{"id":"1","tool":"calc","open":["x"],"args":` + manyKeys(n/13, "x") + `}]}`
	texts["fields"] = `{"type":"fill","fields":` + manyKeys(n/13, "x") + `}`
	texts["labels"] = fill("", "Action: now\n", "")
	texts["brackets in brackets"] = fill("Action: search", "[", "")
	texts["emphasis"] = fill("", "*", "Action: now[1]")
	return texts
}
