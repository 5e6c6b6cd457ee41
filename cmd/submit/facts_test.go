package main

import (
	"encoding/json"
	"strings"
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
)

// listed returns a user's facts as submit facts lists them.
func listed(t *testing.T, url string, scope ...string) (facts []bus.Fact) {
	t.Helper()
	out := submit(t, "", append([]string{"facts", "list", "--json", "--nats", url}, scope...)...)
	out.want(t, codeAnswered)
	for line := range strings.Lines(out.stdout) {
		var f bus.Fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		facts = append(facts, f)
	}
	return facts
}

func TestFactsAreListedAddedAndForgotten(t *testing.T) {
	s := bustest.Server(t)
	work(t, s)
	url := s.URL()
	ann, bob := []string{"--user", "ann"}, []string{"--user", "bob"}
	elsewhere := []string{"--tenant", "acme", "--user", "ann"}
	in := func(scope []string, words ...string) outcome {
		return submit(t, "", append(append([]string{"facts"}, words...), append(scope, "--nats", url)...)...)
	}

	none := in(ann, "list")
	none.want(t, codeAnswered)
	contains(t, none.stderr, "Nothing is known about this user.")
	for _, scope := range [][]string{ann, bob, elsewhere} {
		in(scope, "add", "The user prefers window seats.", "--kind", "preference").want(t, codeAnswered)
	}
	in(ann, "add", "The user\x1b[31m lives in Porto.").want(t, codeAnswered)
	table := in(ann, "list")
	table.want(t, codeAnswered)
	contains(t, table.stdout, "ID", "preference", "holds", "The user prefers window seats.", "lives in Porto.")
	if strings.Contains(table.stdout, "\x1b") {
		t.Errorf("what was stored reaches the terminal: %q", table.stdout)
	}

	refused := in(ann, "add", "The password is hunter2!")
	refused.want(t, codeUsage)
	contains(t, refused.stderr, "credentials")
	if strings.Contains(refused.stderr, "hunter2") {
		t.Errorf("the refusal repeats the credential: %s", refused.stderr)
	}

	first := listed(t, url, ann...)[0]
	foreign := in(bob, "forget", first.ID)
	foreign.want(t, codeFailed)
	contains(t, foreign.stderr, "no such fact")
	in(ann, "forget", first.ID).want(t, codeAnswered)
	if left := listed(t, url, ann...); len(left) != 1 || left[0].ID == first.ID {
		t.Errorf("forgotten, ann has %+v", left)
	}
	all := in(ann, "forget", "--all")
	all.want(t, codeAnswered)
	contains(t, all.stderr, "Forgotten: 1")
	if left := listed(t, url, ann...); len(left) > 0 {
		t.Errorf("all forgotten, ann has %+v", left)
	}
	for _, scope := range [][]string{bob, elsewhere} {
		if left := listed(t, url, scope...); len(left) != 1 {
			t.Errorf("%v has %+v, want the one fact", scope, left)
		}
	}
}

func TestFactsWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"facts", "add"}, {"facts", "forget"}, {"facts", "forget", "x", "--all"}, {"facts", "list", "words"}, {"facts", "burn"}} {
		submit(t, "", args...).want(t, codeUsage)
	}
}
