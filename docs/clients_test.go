package docs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/node"
)

var fence = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// program returns the last block of code in that language on the page.
func program(t *testing.T, page, language string) (text string) {
	t.Helper()
	for _, block := range fence.FindAllStringSubmatch(read(t, page), -1) {
		if block[1] == language {
			text = block[2]
		}
	}
	if text == "" {
		t.Fatalf("%s has no program in %s", page, language)
	}
	return text
}

// TestClients runs the programs of the page against a worker. That in Python needs a client that a build machine can't get;
// its syntax is looked at where there is a Python.
func TestClients(t *testing.T) {
	url := startWorker(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../toolchain/natscli", "-o", dir+"/", "github.com/nats-io/natscli/nats")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nats: %v\n%s", err, out)
	}
	for _, test := range []struct {
		language, folder, needs, how string
		command                      []string
		input                        string
	}{
		{language: "go", needs: "go", command: []string{"go", "run", write("client.go", program(t, "clients.md", "go"))}},
		{
			language: "js", needs: "../examples/node-tool/node_modules", how: "run make npm", folder: "../examples/node-tool",
			command: []string{"node", "--input-type=module", "-"}, input: program(t, "clients.md", "js"),
		},
		{language: "sh", needs: "jq", how: "install jq", command: []string{"sh", write("client.sh", program(t, "clients.md", "sh"))}},
	} {
		t.Run(test.language, func(t *testing.T) {
			t.Parallel()
			need(t, test.needs, test.how)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, test.command[0], test.command[1:]...)
			cmd.Dir, cmd.Stdin = test.folder, strings.NewReader(test.input)
			cmd.Env = append(os.Environ(), "NATS_URL="+url, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Count(string(out), "asked: ") != 2 || !regexp.MustCompile(`(?m)^answer: .*200`).Match(out) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("python", func(t *testing.T) {
		need(t, "python3", "install Python")
		cmd := exec.CommandContext(t.Context(), "python3", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
		cmd.Stdin = strings.NewReader(program(t, "clients.md", "python"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// need skips a test for a program or folder that is missing; on a build machine it fails.
func need(t *testing.T, what, how string) {
	t.Helper()
	if _, err := exec.LookPath(what); err == nil {
		return
	}
	if _, err := os.Stat(what); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing: %s", what, how)
	}
	t.Skipf("%s is missing: %s", what, how)
}

// startWorker runs a worker with the demo model and returns the address of its server.
func startWorker(t *testing.T) string {
	t.Helper()
	n, err := node.Start(t.Context(), node.Options{
		Embedded: &bus.EmbeddedOptions{Dir: t.TempDir(), Host: "127.0.0.1", Port: -1, Sync: "2m"}, Demo: true, Files: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n.Close()
	})
	return n.URL()
}
