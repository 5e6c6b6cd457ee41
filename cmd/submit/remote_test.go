package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestSubmitFollowsARun(t *testing.T) {
	url := server(t)
	o := submit(t, "", "--nats", url, "--id", "sum-1", sum)
	o.want(t, codeAnswered)
	if o.stdout != sumAnswer {
		t.Errorf("standard output is %q", o.stdout)
	}

	again := submit(t, "", "--nats", url, "--id", "sum-1", sum)
	again.want(t, codeAnswered)
	contains(t, again.stderr, "Run sum-1 exists already")
	if again.stdout != sumAnswer {
		t.Errorf("standard output is %q", again.stdout)
	}
}

func TestDetachPrintsTheID(t *testing.T) {
	url := server(t)
	o := submit(t, "", "--nats", url, "--detach", sum)
	o.want(t, codeAnswered)
	id := strings.TrimSuffix(o.stdout, "\n")
	if !loop.ValidID(id) || o.stderr != "" {
		t.Fatalf("standard output is %q, standard error %q", o.stdout, o.stderr)
	}
	followed := submit(t, "", "events", "--nats", url, id, "--follow")
	followed.want(t, codeAnswered)
	contains(t, followed.stdout, "accepted", "observation", "answer", "17 plus 25 is 42.")
}

func TestQuestionWithoutATerminal(t *testing.T) {
	url := server(t)
	o := submit(t, "these lines\nare no answers\n", "--nats", url, "--id", "buy-1", buy)
	o.want(t, codeWaiting)
	contains(t, o.stderr, "How many shares of Microsoft", "submit reply --nats "+url+` buy-1 "TEXT"`)

	shown := submit(t, "", "show", "--nats", url, "buy-1")
	shown.want(t, codeAnswered)
	contains(t, shown.stdout, "waiting", "▸ Find out how many shares", "How many shares of Microsoft", "submit reply --nats")

	submit(t, "", "reply", "--nats", url, "buy-1", "--question", "q1", "200 shares.").want(t, codeAnswered)
	again := submit(t, "", "--nats", url, "--id", "buy-1", buy)
	again.want(t, codeWaiting)
	if strings.Contains(again.stderr, "How many shares") {
		t.Errorf("a question that was answered before is asked again:\n%s", again.stderr)
	}
	contains(t, again.stderr, "At what price")
	submit(t, "", "reply", "--nats", url, "buy-1", "56.30", "--user", "u-17").want(t, codeAnswered)
	done := submit(t, "", "events", "--nats", url, "buy-1", "--follow", "--from", "3")
	done.want(t, codeAnswered)
	contains(t, done.stdout, "q2 by u-17: 56.30", "Bought 200 shares")

	late := submit(t, "", "reply", "--nats", url, "buy-1", "300")
	late.want(t, codeFailed)
	contains(t, late.stderr, "The run has ended.")
}

func TestApproveAndRefuse(t *testing.T) {
	url := server(t)
	goal := "Buy 20 Microsoft shares at 50.25 USD."
	for _, c := range []struct {
		id, answer string
		order      []string
	}{
		{"yes", "Bought 20 shares", []string{"approve", "--nats", url, "yes"}},
		{"no", "refused this call. too dear", []string{"refuse", "--nats", url, "no", "--reason", "too dear"}},
	} {
		o := submit(t, "", "--nats", url, "--id", c.id, "--approve", "buy_*", goal)
		o.want(t, codeWaiting)
		contains(t, o.stderr, `"amount": 20`, "submit approve --nats", "submit refuse --nats")

		wrong := submit(t, "", "approve", "--nats", url, c.id, "--question", "q7")
		wrong.want(t, codeFailed)
		contains(t, wrong.stderr, "asks about question q1, not q7")
		text := submit(t, "", "reply", "--nats", url, c.id, "yes please")
		text.want(t, codeUsage)
		contains(t, text.stderr, "asks for an approval")

		decided := submit(t, "", c.order...)
		decided.want(t, codeAnswered)
		contains(t, decided.stderr, `"amount": 20`, "Accepted.")
		done := submit(t, "", "events", "--nats", url, c.id, "--follow")
		done.want(t, codeAnswered)
		contains(t, done.stdout, c.answer)
	}
}

func TestPauseResumeCancel(t *testing.T) {
	url := server(t)
	submit(t, "", "--nats", url, "--id", "p1", buy).want(t, codeWaiting)
	submit(t, "", "pause", "--nats", url, "p1").want(t, codeAnswered)
	submit(t, "", "resume", "--nats", url, "p1").want(t, codeAnswered)
	cancelled := submit(t, "", "cancel", "--nats", url, "p1", "--reason", "changed my mind", "--user", "ada")
	cancelled.want(t, codeAnswered)
	contains(t, cancelled.stderr, "Run p1 is being cancelled.")

	submit(t, "", "events", "--nats", url, "--follow", "p1").want(t, codeCancelled)
	submit(t, "", "events", "--nats", url, "--follow", "p1", "--from", "999").want(t, codeCancelled)
	followed := submit(t, "", "--nats", url, "--id", "p1", buy)
	followed.want(t, codeCancelled)
	contains(t, followed.stderr, "Run p1 was cancelled (by ada: changed my mind).")
	ended := submit(t, "", "cancel", "--nats", url, "p1")
	ended.want(t, codeFailed)
	contains(t, ended.stderr, "has ended already")
}

func TestListAndShow(t *testing.T) {
	url := server(t)
	none := submit(t, "", "list", "--nats", url)
	none.want(t, codeAnswered)
	contains(t, none.stderr, "There are no runs")

	submit(t, "", "--nats", url, "--id", "sum-1", sum).want(t, codeAnswered)
	submit(t, "", "--nats", url, "--id", "buy-1", buy).want(t, codeWaiting)
	submit(t, "", "events", "--nats", url, "sum-1", "--follow").want(t, codeAnswered)

	waiting := submit(t, "", "list", "--nats", url, "--status", "waiting", "--json")
	waiting.want(t, codeAnswered)
	all := submit(t, "", "list", "--nats", url)
	lines := strings.Split(strings.TrimSpace(all.stdout), "\n")
	if len(lines) != 3 || strings.Fields(lines[0])[0] != "RUN" {
		t.Errorf("the list is:\n%s", all.stdout)
	}

	var state loop.Head
	shown := submit(t, "", "show", "--nats", url, "buy-1", "--json")
	if err := json.Unmarshal([]byte(shown.stdout), &state); err != nil || state.Status != loop.StatusWaiting || state.Question == nil {
		t.Errorf("the state is %s: %v", shown.stdout, err)
	}
	if diff := cmp.Diff(shown.stdout, waiting.stdout); diff != "" { // a list of one state
		t.Errorf("the list differs from the state (-show +list):\n%s", diff)
	}
	var runs []string
	for line := range strings.Lines(submit(t, "", "list", "--nats", url, "--json").stdout) {
		if err := json.Unmarshal([]byte(line), &state); err != nil || state.V != loop.HeadVersion {
			t.Errorf("%s: %v", line, err)
		}
		runs = append(runs, state.Run)
	}
	if len(runs) != 2 {
		t.Errorf("states of %q are listed", runs)
	}
}

func TestEventsAsTheyAreStored(t *testing.T) {
	url := server(t)
	submit(t, "", "--nats", url, "--id", "sum-1", sum).want(t, codeAnswered)
	stored := submit(t, "", "events", "--nats", url, "sum-1", "--json")
	stored.want(t, codeAnswered)
	followed := submit(t, "", "events", "--nats", url, "sum-1", "--json", "--follow")
	followed.want(t, codeAnswered)
	if diff := cmp.Diff(stored.stdout, followed.stdout); diff != "" {
		t.Errorf("followed events differ from stored ones (-stored +followed):\n%s", diff)
	}
}

func TestNoSuchRun(t *testing.T) {
	url := server(t)
	for _, args := range [][]string{
		{"show", "nobody"},
		{"events", "nobody"},
		{"events", "nobody", "--follow"},
		{"reply", "nobody", "hello"},
		{"approve", "nobody"},
		{"refuse", "nobody"},
		{"pause", "nobody"},
		{"resume", "nobody"},
	} {
		o := submit(t, "", append(args, "--nats", url)...)
		if o.code != codeFailed || !strings.Contains(o.stderr, "here is no run") || o.stdout != "" {
			t.Errorf("submit %q: exit code %d, %q, %q", args, o.code, o.stdout, o.stderr)
		}
	}
	bad := submit(t, "", "show", "--nats", url, "no id!")
	bad.want(t, codeUsage)
	contains(t, bad.stderr, "no valid id")
}

func TestTaskThatNoWorkerAccepts(t *testing.T) {
	url := server(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--strategy", "wishful", sum}, "wishful"},
		{[]string{"--id", "no id!", sum}, "not a valid id"},
		{[]string{"--tools", "no_such_tool", sum}, "no_such_tool"},
		{[]string{strings.Repeat("x", 65<<10)}, "Goal has 66560 bytes"},
		{[]string{"--tenant", "a.b", sum}, "a.b"},
		{[]string{"--prefix", "UPPER", sum}, "UPPER"},
	} {
		o := submit(t, "", append(c.args, "--nats", url)...)
		o.want(t, codeUsage)
		contains(t, o.stderr, c.says)
	}
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "Usage: submit"},
		{[]string{"--no-such-flag", sum}, "no-such-flag"},
		{[]string{"Buy", "shares"}, "goes into quotes"},
		{[]string{"reply", "r1"}, "<text>"},
		{[]string{"list", "--status", "happy"}, "--status"},
		{[]string{"--timeout", "soon", sum}, "--timeout"},
		{[]string{"--var", "=x", sum}, "NAME=VALUE"},
		{[]string{" "}, "The goal is empty"},
		{[]string{"\xff"}, "Argument 1 is not UTF-8"},
		{[]string{"--local", "--detach", sum}, "--detach with --local"},
		{[]string{"--data", "x", sum}, "--data belongs to --local"},
		{[]string{"--local", "--model", "gpt-4o-mini", sum}, "OPENAI_API_KEY"},
	} {
		o := submit(t, "", c.args...)
		if o.code != codeUsage || !strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("submit %q: exit code %d, standard output %q, standard error:\n%s", c.args, o.code, o.stdout, o.stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "run", "batch", "reply", "approve", "refuse", "cancel", "pause", "resume", "show", "list", "events", "dead", "gc"} {
		o := submit(t, "", strings.Fields(command+" --help")...)
		o.want(t, codeAnswered)
		contains(t, o.stdout, "xample", "submit "+command, "--nats")
		if o.stderr != "" {
			t.Errorf("help of %q says on standard error: %s", command, o.stderr)
		}
	}
}

func TestUnreachable(t *testing.T) {
	nobody := submit(t, "", "--nats", "nats://ada:secret@127.0.0.1:1", sum)
	nobody.want(t, codeUnreachable)
	contains(t, nobody.stderr, "nats://127.0.0.1:1", "worker --embedded", "--local")
	if strings.Contains(nobody.stderr, "secret") {
		t.Errorf("a password is shown: %s", nobody.stderr)
	}

	idle := submit(t, "", "--nats", bustest.Server(t).URL(), sum)
	idle.want(t, codeUnreachable)
	contains(t, idle.stderr, "No worker is running under prefix agent")
}

func TestVars(t *testing.T) {
	vars, err := readVars([]string{"n=100", "mail=ada@example.org", `o={"a":[1]}`, "empty=", "eq=a=b"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]json.RawMessage{
		"n": []byte("100"), "mail": []byte(`"ada@example.org"`), "o": []byte(`{"a":[1]}`), "empty": []byte(`""`), "eq": []byte(`"a=b"`),
	}
	if diff := cmp.Diff(want, vars); diff != "" {
		t.Errorf("vars (-want +got):\n%s", diff)
	}
}
