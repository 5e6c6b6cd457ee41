package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, func(string) string { return "" }, &out, &errs)
	return out.String(), errs.String(), code
}

func TestToolsAreListedCheckedAndTried(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.yaml")
	if err := os.WriteFile(file, []byte("tools:\n  - builtin: calculate\noverrides:\n  - match: calc*\n    approve: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("tools:\n  - bultin: calculate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args        []string
		code        int
		out, errout string
	}{
		{[]string{"tools", "--tools", file}, exitOK, "a person's yes", ""},
		{[]string{"tools", "--demo", "--json"}, exitOK, `"name":"buy_shares"`, ""},
		{[]string{"tools", "--tools", bad}, exitError, "", "line 2"},
		{[]string{"tools", "call", "calculate", `{"expression": "6*7"}`}, exitOK, "42", ""},
		{[]string{"tools", "call", "calculate", `{"expression": "6*"}`}, exitError, "", "calculate ended with status error"},
		{[]string{"tools", "call", "no_such_tool"}, exitError, "", "no_such_tool"},
		{[]string{"--model", "gpt-4o-mini"}, exitUsage, "", "OPENAI_API_KEY"},
		{[]string{"--model", "demo", "--price", "gpt=cheap"}, exitUsage, "", "MODEL=PROMPT,COMPLETION"},
		{[]string{"--model", "demo", "--concurrency", "0"}, exitUsage, "", "at least one"},
		{[]string{"--no-such-flag"}, exitUsage, "", "worker --help"},
		{[]string{"--help"}, exitOK, "--embedded", ""},
	} {
		stdout, stderr, code := command(t, c.args...)
		if code != c.code || !strings.Contains(stdout, c.out) || !strings.Contains(stderr, c.errout) {
			t.Errorf("worker %s: status %d\n%s%s", strings.Join(c.args, " "), code, stdout, stderr)
		}
	}
}
