package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/batch"
	"ratchet/internal/bus/bustest"
)

// tasksFile writes a file of tasks, a line each.
func tasksFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sums are tasks that the demo model answers.
func sums(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, `{"goal": "What is `+strconv.Itoa(i)+` plus 25?"}`)
	}
	return lines
}

// results reads results, and demands that each is one line of JSON.
func results(t *testing.T, text string) (all []batch.Result) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r batch.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// outcomes are the lines of results with their outcomes.
func outcomes(all []batch.Result) (out []string) {
	for _, r := range all {
		out = append(out, strconv.Itoa(r.Line)+" "+string(r.Status))
	}
	return out
}

func TestBatchInOrder(t *testing.T) {
	url := server(t)
	o := submit(t, "", "batch", tasksFile(t, sums(1, 40)...), "--nats", url, "--concurrency", "8")
	o.want(t, codeAnswered)
	for i, r := range results(t, o.stdout) {
		want := strconv.Itoa(i+1) + " plus 25 is " + strconv.Itoa(i+26) + "."
		if r.Line != i+1 || r.Answer != want || r.Usage.Total() == 0 || r.Ended.IsZero() {
			t.Errorf("result %d is %+v", i+1, r)
		}
	}
	if got := strings.Count(o.stdout, "\n"); got != 40 {
		t.Errorf("%d results", got)
	}
	contains(t, o.stderr, "OUTCOME", "answered", "together", "40")

	// Without a file of results everything is found again.
	again := submit(t, "", "batch", tasksFile(t, sums(1, 40)...), "--nats", url, "--quiet")
	again.want(t, codeAnswered)
	if diff := cmp.Diff(o.stdout, again.stdout); diff != "" || again.stderr != "" {
		t.Errorf("%s\nresults (-first +again):\n%s", again.stderr, diff)
	}
}

func TestBatchCollectsQuestions(t *testing.T) {
	url := server(t)
	tasks := tasksFile(t, `{"id": "buy-1", "goal": "`+buy+`"}`, sums(1, 1)[0], "no task",
		`{"id": "buy-2", "goal": "Buy 20 Microsoft shares at 50.25 USD.", "approve": ["buy_*"]}`)
	out := filepath.Join(t.TempDir(), "results.jsonl")
	o := submit(t, "", "batch", tasks, "--out", out, "--nats", url, "--concurrency", "1")
	o.want(t, codeWaiting)
	contains(t, o.stderr, "Line 3 is no task that can be run: a task must be JSON", "2 runs wait for an answer.",
		"How many shares of Microsoft", "submit reply --nats "+url+` buy-1 "TEXT"`, "submit approve --nats "+url+" buy-2",
		"submit batch --nats "+url+" --out "+out)
	if o.stdout != "" {
		t.Errorf("standard output is %q", o.stdout)
	}
	stored := func() []batch.Result {
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return results(t, string(text))
	}
	if diff := cmp.Diff([]string{"1 waiting", "2 done", "3 invalid", "4 waiting"}, outcomes(stored())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	submit(t, "", "approve", "--nats", url, "buy-2").want(t, codeAnswered)
	second := submit(t, "", "batch", tasks, "--out", out, "--nats", url)
	second.want(t, codeWaiting)
	contains(t, second.stderr, "A run waits for an answer.", "1 of them ended in an earlier batch.")
	submit(t, "", "reply", "--nats", url, "buy-1", "200 shares.").want(t, codeAnswered)
	// It may ask for the price before the batch looks, or after.
	third := submit(t, "", "batch", tasks, "--out", out, "--nats", url)
	third.want(t, codeWaiting)
	contains(t, third.stderr, "At what price")
	submit(t, "", "reply", "--nats", url, "buy-1", "56.30 USD.").want(t, codeAnswered)
	last := submit(t, "", "batch", tasks, "--out", out, "--nats", url)
	last.want(t, codeFailed) // line 3
	contains(t, last.stderr, "1 of 4 lines have no answer")
	all := stored()
	if diff := cmp.Diff([]string{"1 done", "2 done", "3 invalid", "4 done"}, outcomes(all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	contains(t, all[0].Answer, "Bought 200 shares")
}

func TestBatchLocal(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	o := submit(t, strings.Join(sums(1, 3), "\n"), "batch", "--local", "-", "--order", "done")
	o.want(t, codeAnswered)
	contains(t, o.stdout, "1 plus 25 is 26.", "2 plus 25 is 27.", "3 plus 25 is 28.")
	contains(t, o.stderr, "built-in demo model", "answered")

	waits := submit(t, `{"goal": "`+buy+`"}`, "batch", "--local", "-")
	waits.want(t, codeWaiting)
	contains(t, waits.stderr, "--data DIR")
	kept := t.TempDir()
	waits = submit(t, `{"goal": "`+buy+`", "id": "b1"}`, "batch", "--local", "--data", kept, "-")
	waits.want(t, codeWaiting)
	contains(t, waits.stderr, "submit --local --data "+kept+" --id b1 'go on'", "submit batch --local --data "+kept)
}

// TestBatchKilled kills a batch in its middle; the next one goes on, and nothing runs twice.
func TestBatchKilled(t *testing.T) {
	url := server(t)
	tasks := tasksFile(t, sums(1, 60)...)
	out := filepath.Join(t.TempDir(), "results.jsonl")
	cmd := exec.Command(os.Args[0], "batch", tasks, "--out", out, "--nats", url, "--concurrency", "4")
	cmd.Env = []string{asProgram + "=1"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := bustest.Context(t)
	for {
		text, err := os.ReadFile(out)
		if err == nil && strings.Count(string(text), "\n") >= 5 || ctx.Err() != nil {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	o := submit(t, "", "batch", tasks, "--out", out, "--nats", url)
	o.want(t, codeAnswered)
	contains(t, o.stderr, "of them ended in an earlier batch.")
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	all := results(t, string(text))
	for i, r := range all {
		if r.Line != i+1 || r.Status != batch.Done {
			t.Errorf("result %d is %+v", i+1, r)
		}
	}
	listed := submit(t, "", "list", "--nats", url)
	if runs := strings.Count(listed.stdout, "\n") - 1; len(all) != 60 || runs != 60 {
		t.Errorf("%d results, %d runs", len(all), runs)
	}
}

func TestBatchWrongUsage(t *testing.T) {
	dir := t.TempDir()
	tasks := tasksFile(t, sums(1, 1)...)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"batch"}, "<file>"},
		{[]string{"batch", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"batch", dir}, "directory"},
		{[]string{"batch", tasks, "--out", tasks}, "is the file of the tasks"},
		{[]string{"batch", tasks, "--out", dir}, "is a directory"},
		{[]string{"batch", tasks, "--out", "main.go"}, "holds something else than results"},
		{[]string{"batch", tasks, "--out", filepath.Join(dir, "no", "r")}, "no such file"},
		{[]string{"batch", tasks, "--order", "random"}, "--order"},
		{[]string{"batch", tasks, "--concurrency", "0"}, "use 1 to 10000"},
		{[]string{"batch", tasks, "--data", "x"}, "--data belongs to --local"},
		{[]string{"batch", tasks, "--model", "x"}, "--model belongs to --local"},
	} {
		o := submit(t, "", c.args...)
		if o.code != codeUsage || !strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("submit %q: exit code %d, standard output %q, standard error:\n%s", c.args, o.code, o.stdout, o.stderr)
		}
	}
}

func TestBatchUnreachable(t *testing.T) {
	tasks := tasksFile(t, sums(1, 1)...)
	nobody := submit(t, "", "batch", tasks, "--nats", "nats://127.0.0.1:1")
	nobody.want(t, codeUnreachable)
	idle := submit(t, "", "batch", tasks, "--nats", bustest.Server(t).URL())
	idle.want(t, codeUnreachable)
	contains(t, idle.stderr, "No worker is running under prefix agent")
	empty := submit(t, "", "batch", tasksFile(t, "", " "), "--nats", server(t))
	empty.want(t, codeAnswered)
	contains(t, empty.stderr, "There is no task in")
}

func TestBatchOnATerminal(t *testing.T) {
	url := server(t)
	tasks := tasksFile(t, append(sums(1, 20), `{"id": "b", "goal": "`+buy+`"}`, "broken")...)
	p := sit(t, "batch", tasks, "--nats", url, "--out", filepath.Join(t.TempDir(), "r"))
	p.sees("0 of 22")
	p.sees("Line 22 is no task that can be run")
	p.sees("21 of 22")
	p.sees("1 failed")
	p.sees("OUTCOME")
	p.sees("waiting for a person")
	p.sees("How many shares of Microsoft")
	if code := p.leaves(); code != codeWaiting {
		t.Errorf("exit code %d", code)
	}
}

func TestBatchInterrupted(t *testing.T) {
	url := server(t)
	submit(t, "", "--nats", url, "--id", "b1", "--session", "s", buy).want(t, codeWaiting)
	tasks := tasksFile(t, `{"id": "b2", "goal": "What is 1 plus 2?", "session": "s"}`, sums(1, 1)[0])
	p := sit(t, "batch", tasks, "--nats", url)
	p.sees("1 of 2")
	p.sees("1 working")
	p.types("\x03")
	p.sees("still working")
	p.sees("Left the batch; 1 run that was handed in goes on.")
	p.sees("submit batch --nats")
	if code := p.leaves(); code != codeInterrupted {
		t.Errorf("exit code %d", code)
	}
}
