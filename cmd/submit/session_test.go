package main

import (
	flags "flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flags.Bool("update", false, "write docs/session.txt anew")

// session.txt is what somebody sees who types these commands, on a terminal that repaints nothing.
const (
	sessionFile  = "../../docs/session.txt"
	sessionIntro = "Recorded by `go test ./cmd/submit -run TestRecordedSession -update`, on a terminal that can't repaint (TERM=dumb).\n" +
		"Times, order numbers and counts of tokens are put in afterwards, so that each recording is the same.\n\n"
)

// sessions are commands, and what is typed at each prompt.
var sessions = []struct {
	args    []string
	answers []string
}{
	{args: []string{"--local", "--id", "sum", sum}},
	{args: []string{"--local", "--id", "shares", "--approve", "buy_*", buy}, answers: []string{"200 shares.", "56.30 USD.", "y"}},
}

// varying are the parts that differ from one recording to the next: times, and names made by chance.
var varying = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`answered after (less than )?\d+(\.\d+)? s, [\d,]+ tokens`), "answered after 0.1 s, 12,345 tokens"},
	{regexp.MustCompile(`after \d+ ms`), "after 3 ms"},
	{regexp.MustCompile(`ORD-(\n?)[0-9a-f]{8}`), "ORD-${1}5f0c1e72"},
}

// TestRecordedSession compares the recorded session with what is seen today.
func TestRecordedSession(t *testing.T) {
	got := sessionIntro
	for _, s := range sessions {
		got += record(t, s.args, s.answers)
	}
	if *update {
		if err := os.WriteFile(filepath.FromSlash(sessionFile), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(sessionFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/session.txt is not what is seen today; -update writes it anew (-want +got):\n%s", diff)
	}
}

// record runs the program on a terminal and returns the command and all that stood there.
func record(t *testing.T, args, answers []string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = []string{asProgram + "=1", "TMPDIR=" + t.TempDir(), "TERM=dumb", "NO_COLOR=1"}
	p := sitAt(t, cmd)
	command := "$ submit"
	for _, a := range args {
		command += " " + quoteTwice(a)
	}
	seen := ""
	for _, answer := range answers {
		seen += p.untilPrompt()
		p.types(answer + "\n")
	}
	if code := p.leaves(); code != codeAnswered {
		t.Fatalf("%s: exit code %d", command, code)
	}
	<-p.gone
	p.mu.Lock()
	seen += p.seen.String()
	p.mu.Unlock()
	seen = strings.ReplaceAll(seen, "\r\n", "\n")
	for _, v := range varying {
		seen = v.pattern.ReplaceAllString(seen, v.text)
	}
	return command + "\n" + seen + "\n"
}

// untilPrompt waits for a prompt and returns all that stood there up to it.
func (p *person) untilPrompt() string {
	p.t.Helper()
	p.awaits(regexp.MustCompile(`(?m)^(> |Approve\? \[y/N\] )\z`))
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := p.seen.String()
	p.seen.Reset()
	return shown
}

// quoteTwice puts a word into double quotes where a shell needs them, as a person would.
func quoteTwice(word string) string {
	if strings.ContainsAny(word, " *?") {
		return `"` + word + `"`
	}
	return word
}
