package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// lookUp is the plan that stands when the replies of context second come.
var lookUp = plan.Plan{
	{Step: "Look it up", Status: plan.Pending},
	{Step: "Answer", Status: plan.Pending},
}

// corpusCase is one odd reply and what must come of it.
type corpusCase struct {
	Context string   `json:"context"`
	Input   string   `json:"input"`
	Expect  string   `json:"expect"`
	AlsoOK  []string `json:"also_ok"`
	Detail  struct {
		Type        string            `json:"type"`
		Name        string            `json:"name"`
		Thought     *string           `json:"thought"`
		Answer      *string           `json:"answer"`
		AnswerAnyOf []string          `json:"answer_any_of"`
		Question    *string           `json:"question"`
		Arguments   json.RawMessage   `json:"arguments"`
		Calls       []json.RawMessage `json:"calls"`
		Plan        plan.Plan         `json:"plan"`
		Mentions    []string          `json:"mentions"`
	} `json:"expect_detail"`
}

func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil || len(files) < 54 {
		t.Fatalf("%d corpus files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c corpusCase
			if err := json.Unmarshal(data, &c); err != nil {
				t.Fatal(err)
			}
			prev := plan.Plan(nil)
			if c.Context == "second" {
				prev = lookUp
			}
			m, err := reply(prev, c.Input)
			outcome := "accept"
			if err != nil {
				outcome = "reject"
			}
			if outcome != c.Expect && !slices.Contains(c.AlsoOK, outcome) {
				t.Fatalf("%s, want %s: %v", outcome, c.Expect, err)
			}
			if err != nil {
				checkCorrection(t, err, c.Detail.Mentions)
				return
			}
			c.checkAccepted(t, m)
		})
	}
}

func (c corpusCase) checkAccepted(t *testing.T, m plan.Message) {
	t.Helper()
	same := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	d := c.Detail
	same("type", d.Type, string(m.Type))
	if d.Name != "" {
		same("calls", 1, len(m.Calls))
		same("name", d.Name, m.Calls[0].Name)
		same("arguments", compact(t, d.Arguments), string(m.Calls[0].Arguments))
	}
	if d.Thought != nil {
		same("thought", *d.Thought, m.Thought)
	}
	if d.Answer != nil {
		same("answer", *d.Answer, m.Answer)
	}
	if d.AnswerAnyOf != nil && !slices.Contains(d.AnswerAnyOf, m.Answer) {
		t.Errorf("answer %q, want one of %q", m.Answer, d.AnswerAnyOf)
	}
	if d.Question != nil {
		same("question", *d.Question, m.Question)
	}
	if d.Plan != nil {
		same("plan", d.Plan, m.Plan)
	}
}

// checkCorrection holds what every correction promises.
func checkCorrection(t *testing.T, err error, mentions []string) {
	t.Helper()
	text := err.Error()
	for _, want := range append(mentions, "Return exactly one JSON object and nothing else") {
		if !strings.Contains(text, want) {
			t.Errorf("the correction does not mention %q: %s", want, text)
		}
	}
	if len(text) > 1200 {
		t.Errorf("the correction has %d bytes", len(text))
	}
}

// reply reads and checks what a model said after a plan, with the tools of the corpus.
func reply(prev plan.Plan, text string) (plan.Message, error) {
	m, err := plan.Read(text)
	if err != nil {
		return m, err
	}
	return plan.Check(prev, m, rules)
}

var rules = plan.Rules{
	MinSteps:  2,
	Tools:     []string{"search", "calc", "send_email", "now"},
	Arguments: checkArguments,
}

// params are the tools' parameters with their JSON types; a question mark makes one optional.
var params = map[string]map[string]string{
	"search":     {"query": "string", "max_results": "integer?"},
	"calc":       {"expr": "string"},
	"send_email": {"to": "string", "subject": "string", "body": "string"},
	"now":        {},
}

func checkArguments(tool string, args json.RawMessage) (json.RawMessage, []string, bool) {
	want, known := params[tool]
	if !known {
		return nil, nil, false
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(args, &got); err != nil {
		return nil, []string{err.Error()}, true
	}
	var problems []string
	for name, value := range got {
		kind, ok := want[name]
		switch {
		case !ok:
			problems = append(problems, name+" is not a parameter")
		case kind == "string" && value[0] != '"', kind == "integer?" && strings.Trim(string(value), "-0123456789") != "":
			problems = append(problems, fmt.Sprintf("%s must be of type %s", name, strings.TrimSuffix(kind, "?")))
		}
	}
	for name, kind := range want {
		if _, ok := got[name]; !ok && !strings.HasSuffix(kind, "?") {
			problems = append(problems, name+" is missing")
		}
	}
	slices.Sort(problems)
	return args, problems, true
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b strings.Builder
	inString := false
	for i, c := range string(raw) {
		if c == '"' && (i == 0 || raw[i-1] != '\\') {
			inString = !inString
		}
		if inString || !strings.ContainsRune(" \n\t", c) {
			b.WriteRune(c)
		}
	}
	return b.String()
}
