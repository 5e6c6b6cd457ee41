package main

import (
	"bufio"
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ratchet/internal/demo"
	"ratchet/internal/freeport"
)

// readmeCommands returns the commands of the README's sh blocks, one a line, without comments.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	inBlock := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = line == "```sh"
		case inBlock && line != "":
			command, _, _ := strings.Cut(line, "  #")
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// TestReadmeCommands runs every command of the README, in the order in which it stands there.
func TestReadmeCommands(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "../..", "./cmd/...")
	build(t, dir, "../../toolchain/natscli", "github.com/nats-io/natscli/nats")
	s := session{t: t, bin: dir, work: t.TempDir()}
	s.url = "nats://127.0.0.1:" + strconv.Itoa(freeport.One(t))
	examples, err := filepath.Abs("../../examples")
	if err == nil {
		err = os.Symlink(examples, filepath.Join(s.work, "examples"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range readmeCommands(t) {
		s.run(command)
	}
	if s.ran < 10 {
		t.Errorf("%d commands were run: is the README read rightly?", s.ran)
	}
}

func build(t *testing.T, to, module, packages string) {
	t.Helper()
	to, err := filepath.Abs(to)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-C", module, "-o", to+"/", packages)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", packages, err, out)
	}
}

// session is a shell in which the README's commands are run one after another.
type session struct {
	t         *testing.T
	bin, work string
	url       string // of the worker that the README starts
	ran       int
}

var goRun = regexp.MustCompile(`^go run \./cmd/(\w+)`)

// run runs one command. What the reader's own model or terminals are for is stood in for: the worker listens on a free
// port and stays in the background, and questions are answered from standard input.
func (s *session) run(command string) {
	s.t.Helper()
	s.ran++
	switch {
	case strings.HasPrefix(command, "make "):
		s.target(strings.TrimPrefix(command, "make "))
		return
	case strings.HasPrefix(command, "export "):
		return // a key of the reader's
	case strings.Contains(command, "--model gpt-4o-mini"):
		s.ownModel(command)
		return
	}
	command = goRun.ReplaceAllString(command, s.bin+"/$1")
	command = strings.ReplaceAll(command, "nats://127.0.0.1:4222", s.url)
	if strings.HasPrefix(command, "nats ") {
		command = s.bin + "/" + command
	}
	if strings.HasPrefix(command, s.bin+"/worker") && !strings.Contains(command, "/worker tools") {
		s.background(strings.Replace(command, "--embedded", "--embedded --http '' --sync 2m --listen "+strings.TrimPrefix(s.url, "nats://"), 1))
		return
	}
	stdin := ""
	if strings.Contains(command, "Buy a few") {
		stdin = "200 shares.\n56.30 USD.\n"
	}
	s.foreground(command, stdin)
}

func (s *session) shell(ctx context.Context, command string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = s.work
	cmd.Env = append(os.Environ(), "NATS_URL="+s.url, "NATS_CONTEXT=", "OPENAI_API_KEY=", "OPENAI_BASE_URL=", "XDG_CONFIG_HOME="+s.work)
	return cmd
}

func (s *session) foreground(command, stdin string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	// A subscription goes on until it is ended: one message is enough to see that it works.
	if strings.Contains(command, "nats sub") {
		command += " --count 1"
		defer s.publishSoon(ctx)()
	}
	cmd := s.shell(ctx, command)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	// A submission without a terminal leaves when it is asked something: that is status 4.
	asked := cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 4 && strings.Contains(command, "Buy a few")
	if err != nil && !asked {
		s.t.Errorf("%s: %v\n%s%s", command, err, stdout.String(), stderr.String())
	}
	if strings.Contains(command, "--local") && stdout.Len() == 0 {
		s.t.Errorf("%s printed no answer:\n%s", command, stderr.String())
	}
}

// publishSoon submits a task again and again, so that a subscription has something to hear.
func (s *session) publishSoon(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = s.shell(ctx, s.bin+`/nats pub agent.task.default '{"goal": "What is 17 plus 25?"}'`).Run() // tried again
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// background starts a worker and returns once it takes tasks.
func (s *session) background(command string) {
	s.t.Helper()
	cmd := s.shell(context.Background(), "exec "+command)
	logs, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "taking tasks") {
			go func() {
				for lines.Scan() { // so that it never waits for a reader
				}
			}()
			return
		}
	}
	s.t.Fatalf("%s never took tasks", command)
}

// target checks that the Makefile has the target, without running the tests from within the tests.
func (s *session) target(name string) {
	s.t.Helper()
	if out, err := exec.Command("make", "-C", "../..", "-n", name).CombinedOutput(); err != nil {
		s.t.Errorf("make %s: %v\n%s", name, err, out)
	}
}

// ownModel checks that the command asks the endpoint of the environment, with the demo model in its place.
func (s *session) ownModel(command string) {
	s.t.Helper()
	if !strings.Contains(command, "17 plus 25") {
		s.t.Errorf("%s: not the example that this test knows", command)
	}
	url := demoEndpoint(s.t)
	command = goRun.ReplaceAllString(command, s.bin+"/$1")
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := s.shell(ctx, command)
	cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+url+"/v1", "OPENAI_API_KEY=key")
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "42") {
		s.t.Errorf("%s printed %q, %v", command, out, err)
	}
}

// demoEndpoint serves the demo model over HTTP.
func demoEndpoint(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(demo.Handler())
	t.Cleanup(server.Close)
	return server.URL
}
