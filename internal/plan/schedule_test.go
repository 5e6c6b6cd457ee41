package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// report is a plan of three loads, a merge, a chart and a report, and a mail.
var report = []string{
	`{"id":"a","tool":"now"}`, `{"id":"b","tool":"now"}`, `{"id":"c","tool":"now"}`,
	`{"id":"merge","tool":"now","after":["a","b","c"]}`,
	`{"id":"chart","tool":"calc","args":{"expr":"$merge"}}`, `{"id":"text","tool":"calc","args":{"expr":"$merge.total"}}`,
	`{"id":"mail","tool":"send_email","args":{"to":"$session.email","subject":"Report","body":"$text"},"after":["chart"]}`,
}

// set gives steps a status.
func set(d plan.DAG, status plan.Status, ids ...string) {
	for _, id := range ids {
		d[d.Index(id)].Status = status
		d[d.Index(id)].Result = json.RawMessage(`"` + id + `"`)
	}
}

func ids(steps []plan.DAGStep) (list []string) {
	for _, s := range steps {
		list = append(list, s.ID)
	}
	return list
}

// TestReady: a step can start the moment its own inputs are there.
func TestReady(t *testing.T) {
	d := mustDAG(t, report...)
	for _, c := range []struct {
		status plan.Status
		step   string
		want   []string
	}{
		{plan.Pending, "a", []string{"a", "b", "c"}},
		{plan.Running, "a", []string{"b", "c"}},
		{plan.Done, "b", []string{"c"}},
		{plan.Done, "a", []string{"c"}},
		{plan.Running, "c", nil},
		{plan.Done, "c", []string{"merge"}},
		{plan.Done, "merge", []string{"chart", "text"}},
		{plan.Done, "text", []string{"chart"}},
		{plan.Running, "chart", nil},
		{plan.Done, "chart", []string{"mail"}},
		{plan.Done, "mail", nil},
	} {
		set(d, c.status, c.step)
		if diff := cmp.Diff(c.want, ids(d.Ready())); diff != "" {
			t.Errorf("with %s %s (-want +got):\n%s", c.step, c.status, diff)
		}
		if ended := c.step == "mail"; d.Ended() != ended {
			t.Errorf("with %s %s the plan has ended: %t", c.step, c.status, d.Ended())
		}
	}
}

// TestSkipped: a failure takes with it what depends on it, and nothing else.
func TestSkipped(t *testing.T) {
	d := mustDAG(t, append([]string{`{"id":"x","tool":"now"}`, `{"id":"y","tool":"now","after":["x"]}`}, report...)...)
	set(d, plan.Done, "a", "b")
	if skips := d.Skipped(); skips != nil {
		t.Errorf("nothing failed, skipped %v", skips)
	}
	set(d, plan.Failed, "c")
	want := []plan.Skip{{"merge", "c"}, {"chart", "c"}, {"text", "c"}, {"mail", "c"}}
	if diff := cmp.Diff(want, d.Skipped()); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"x"}, ids(d.Ready())); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	set(d, plan.Skipped, "merge", "chart")
	if diff := cmp.Diff(want[2:], d.Skipped()); diff != "" {
		t.Errorf("skipped, with two of them recorded (-want +got):\n%s", diff)
	}
	set(d, plan.Skipped, "text", "mail")
	set(d, plan.Done, "x", "y")
	if skips := d.Skipped(); skips != nil || !d.Ended() {
		t.Errorf("all is recorded, skipped %v, ended %t", skips, d.Ended())
	}
}

// TestSkippedNamesTheFirstCause where several steps failed.
func TestSkippedNamesTheFirstCause(t *testing.T) {
	d := mustDAG(t, report...)
	set(d, plan.Done, "a")
	set(d, plan.Failed, "b", "c")
	for _, skip := range d.Skipped() {
		if skip.Because != "b" {
			t.Errorf("%s is skipped because of %s", skip.ID, skip.Because)
		}
	}
}

func read(t *testing.T, steps ...string) plan.DAG {
	t.Helper()
	d, _, err := plan.ReadDAG(dagOf(steps...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReplan(t *testing.T) {
	prev := mustDAG(t, report...)
	set(prev, plan.Done, "a")
	set(prev, plan.Running, "b")
	set(prev, plan.Failed, "c")
	set(prev, plan.Skipped, "merge", "chart", "text", "mail")
	next := read(t, report[1], `{"id":"c","tool":"search","args":{"query":"$a"}}`,
		`{"id":"note","tool":"send_email","args":{"to":"$session.email","subject":"Delay","body":"$c"},"after":["b"]}`)
	d, err := plan.Replan(prev, next, dagRules)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "note"}, ids(d)); diff != "" {
		t.Fatalf("steps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(prev[:2], d[:2]); diff != "" {
		t.Errorf("steps that stay (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c"}, ids(d.Ready())); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, d[2].After); diff != "" {
		t.Errorf("a reference to a step that stays adds its edge (-want +got):\n%s", diff)
	}
}

func TestReplanRefuses(t *testing.T) {
	prev := mustDAG(t, `{"id":"1","tool":"now"}`, `{"id":"2","tool":"search","args":{"query":"$one"}}`,
		`{"id":"3","tool":"send_email","args":{"to":"a","subject":"b","body":"c"}}`)
	set(prev, plan.Done, "1", "3")
	set(prev, plan.Failed, "2")
	for _, c := range []struct {
		name     string
		next     []string
		rules    []string
		mentions []string
	}{
		{"the id of a done step", []string{`{"id":"1","tool":"calc","args":{"expr":"1"}}`}, []string{plan.RuleStepDone}, []string{`"1"`, "done"}},
		{
			"a once tool that was called",
			[]string{`{"id":"4","tool":"send_email","args":{"to":"a","subject":"b","body":"c"}}`},
			[]string{plan.RuleOnce},
			[]string{`"3", "4"`},
		},
		{
			"a failed step as input",
			[]string{`{"id":"4","tool":"calc","args":{"expr":"$2"},"after":["2"]}`},
			[]string{plan.RuleReference, plan.RuleDependency},
			[]string{`"$2"`},
		},
		{
			"all of it",
			[]string{`{"id":"1","tool":"calc","args":{"expr":"1"}}`, `{"id":"4","tool":"fly"}`},
			[]string{plan.RuleStepDone, plan.RuleUnknownTool},
			[]string{"2 problems"},
		},
		{"nothing new", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := plan.Replan(prev, read(t, c.next...), dagRules)
			if c.rules == nil {
				if err != nil || len(d) != 2 {
					t.Errorf("steps %v, error %v", ids(d), err)
				}
				return
			}
			wantProblems(t, err, c.rules, c.mentions)
		})
	}
	_, err := plan.Replan(nil, plan.DAG{}, dagRules)
	wantProblems(t, err, []string{plan.RuleEmptyPlan}, nil)
	// What a done step said literally stays so, even where a new step gets the name that it seems to use.
	prev[0].Args = json.RawMessage(`{"x":"$one"}`)
	d, err := plan.Replan(prev, read(t, `{"id":"one","tool":"now","after":["1"]}`), dagRules)
	if err != nil || len(d[0].After) != 0 {
		t.Errorf("%+v, error %v", d, err)
	}
}
