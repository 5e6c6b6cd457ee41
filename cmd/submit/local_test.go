package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	sum        = "What is 17 plus 25?"
	sumAnswer  = "17 plus 25 is 42.\n"
	buy        = "Buy a few Microsoft shares."
	buyAnswers = "200 shares.\n56.30 USD.\n"
)

func TestLocalPrintsTheAnswerAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := submit(t, "", "--local", sum)
	o.want(t, codeAnswered)
	if o.stdout != sumAnswer {
		t.Errorf("standard output is %q", o.stdout)
	}
	contains(t, o.stderr, "built-in demo model", "plan of 2 steps", "call add_numbers", "answered after")
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("the temporary directory holds %v, %v", left, err)
	}
}

func TestLocalQuietSaysOnlyTheModel(t *testing.T) {
	o := submit(t, "", "--local", "--model", "demo", "-q", sum)
	o.want(t, codeAnswered)
	if strings.Count(o.stderr, "\n") != 1 || o.stdout != sumAnswer {
		t.Errorf("standard error is %q, standard output %q", o.stderr, o.stdout)
	}
	contains(t, o.stderr, "demo model (as asked for)")
}

func TestLocalAnswersQuestionsFromStandardInput(t *testing.T) {
	o := submit(t, buyAnswers, "--local", buy)
	o.want(t, codeAnswered)
	contains(t, o.stdout, "Bought 200 shares of Microsoft at 56.30 USD")
	contains(t, o.stderr, "? How many shares of Microsoft", "> 200 shares.", "> 56.30 USD.")
}

func TestLocalApprovalFromStandardInput(t *testing.T) {
	goal := "Buy 20 Microsoft shares at 50.25 USD."
	o := submit(t, "perhaps\ny\n", "--local", "--approve", "buy_*", goal)
	o.want(t, codeAnswered)
	contains(t, o.stdout, "Bought 20 shares")
	contains(t, o.stderr, `"company": "Microsoft"`, `"perhaps" is neither y nor n.`, "Approve? [y/N] y")

	o = submit(t, "n\ntoo dear\n", "--local", "--approve", "buy_*", goal)
	o.want(t, codeAnswered)
	contains(t, o.stdout, "refused this call. too dear")
}

func TestLocalWithoutLinesWaits(t *testing.T) {
	o := submit(t, "", "--local", buy)
	o.want(t, codeWaiting)
	contains(t, o.stderr, "How many shares of Microsoft", "waits for an answer", "--data DIR")
	if o.stdout != "" {
		t.Errorf("standard output is %q", o.stdout)
	}
}

func TestLocalDataAreKeptAndGoneOnWith(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	first := submit(t, "200 shares.\n", "--local", "--data", dir, "--id", "order-1", buy)
	first.want(t, codeWaiting)
	contains(t, first.stderr, "submit --local --data "+dir+" --id order-1 'Buy a few Microsoft shares.'")

	second := submit(t, "56.30 USD.\n", "--local", "--data", dir, "--id", "order-1", buy)
	second.want(t, codeAnswered)
	contains(t, second.stdout, "Bought 200 shares of Microsoft at 56.30 USD")
	contains(t, second.stderr, "Run order-1 exists already")
	if log, err := os.ReadFile(filepath.Join(dir, "worker.log")); err != nil || len(log) == 0 {
		t.Errorf("the worker's log: %d bytes, %v", len(log), err)
	}
}

func TestLocalGoalFromStandardInput(t *testing.T) {
	o := submit(t, sum+"\n", "--local", "-")
	o.want(t, codeAnswered)
	if o.stdout != sumAnswer {
		t.Errorf("standard output is %q", o.stdout)
	}
}

func TestLocalJSONPrintsEachEvent(t *testing.T) {
	o := submit(t, "", "--local", "--json", "--id", "j1", sum)
	o.want(t, codeAnswered)
	var types []string
	for i, line := range strings.Split(strings.TrimSpace(o.stdout), "\n") {
		var event struct {
			SpecVersion, Type string
			N                 int
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.N != i+1 || event.SpecVersion != "1.0" {
			t.Fatalf("line %d is %s: %v", i+1, line, err)
		}
		types = append(types, event.Type)
	}
	if types[0] != "agent.accepted" || types[len(types)-1] != "agent.answer" {
		t.Errorf("the events are %q", types)
	}
}

func TestLocalFailedRun(t *testing.T) {
	o := submit(t, "", "--local", "--max-steps", "1", sum)
	o.want(t, codeFailed)
	contains(t, o.stderr, "steps_exhausted", "submit events")
	if o.stdout != "" {
		t.Errorf("standard output is %q", o.stdout)
	}
}

func TestLocalWithAnEndpointThatIsNone(t *testing.T) {
	env := map[string]string{"OPENAI_BASE_URL": "no address"}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"--local", sum}, func(k string) string { return env[k] }, strings.NewReader(""), &stdout, &stderr)
	outcome{code, stdout.String(), stderr.String()}.want(t, codeFailed)
	contains(t, stderr.String(), "OPENAI_BASE_URL")
}

func TestHostileTextIsNeutralised(t *testing.T) {
	o := submit(t, "", "--local", "--id", "h1", "What is 17 plus 25? \x1b]0;title\x07\u202e")
	o.want(t, codeAnswered)
	if strings.ContainsAny(o.stderr, "\x1b\x07\u202e") {
		t.Errorf("standard error holds what a terminal would obey: %q", o.stderr)
	}
}

func TestClosedStandardOutput(t *testing.T) {
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"--local", sum}, func(string) string { return "" }, strings.NewReader(""), failingWriter{}, &stderr)
	outcome{code, "", stderr.String()}.want(t, codeFailed)
	contains(t, stderr.String(), "could not be written to standard output")
}
