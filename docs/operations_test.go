package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/freeport"
	"ratchet/internal/telemetry"
)

const runbook = "operations.md"

// TestEveryAlertIsInTheRunbook compares the headings with the alerts' names.
func TestEveryAlertIsInTheRunbook(t *testing.T) {
	var headings, alerts []string
	for _, m := range regexp.MustCompile(`(?m)^### (Ratchet\w+)$`).FindAllStringSubmatch(read(t, runbook), -1) {
		headings = append(headings, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\S+)`).FindAllStringSubmatch(read(t, "../deploy/prometheus/alerts.yml"), -1) {
		alerts = append(alerts, m[1])
	}
	same(t, "alerts", headings, alerts)
}

// TestMetricsOfTheRunbookExist looks for each metric that the page names among those that a worker shows.
func TestMetricsOfTheRunbookExist(t *testing.T) {
	shown := map[string]bool{"ratchet_queue": true} // what the page searches the metrics for
	for _, m := range telemetry.Catalog() {
		shown[m.Name] = true
	}
	named := regexp.MustCompile(`ratchet_\w+`).FindAllString(read(t, runbook), -1)
	if len(named) < 10 {
		t.Errorf("%d metrics are named: is the page read rightly?", len(named))
	}
	for _, name := range named {
		if !shown[name] {
			t.Errorf("the page names %s, and there is no such metric", name)
		}
	}
}

// section is a heading of the page with the commands below it that a test can run.
type section struct {
	title    string
	commands []string
}

func sections(t *testing.T) (all []section) {
	t.Helper()
	inside := false
	for line := range strings.Lines(read(t, runbook)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside && line != "":
			command, _, _ := strings.Cut(line, "  #")
			last := &all[len(all)-1]
			last.commands = append(last.commands, strings.TrimSpace(command))
		case !inside && strings.HasPrefix(line, "#"):
			all = append(all, section{title: strings.TrimLeft(line, "# ")})
		}
	}
	return all
}

// machine is where an operator sits: programs, a server, and perhaps a worker.
type machine struct {
	t         *testing.T
	bin, work string
	url, http string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, bin: t.TempDir(), work: t.TempDir(), http: free(t)}
	for module, what := range map[string]string{"..": "./cmd/...", "../toolchain/natscli": "github.com/nats-io/natscli/nats"} {
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", module, "-o", m.bin+"/", what).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", what, err, out)
		}
	}
	return m
}

// serve starts a server with an empty store.
func (m *machine) serve() (stop func()) {
	m.t.Helper()
	server, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: m.t.TempDir(), Port: -1, Sync: "2m"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(server.Shutdown)
	m.url = server.URL()
	return server.Shutdown
}

// worker starts a worker and returns when it takes tasks.
func (m *machine) worker() (stop func()) {
	m.t.Helper()
	cmd := exec.Command(m.bin+"/worker", "--model", "demo", "--http", m.http, "--grace", "1s")
	cmd.Dir, cmd.Env = m.work, m.env()
	logs, err := cmd.StderrPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended
			_ = cmd.Wait()
		}
	}
	m.t.Cleanup(stop)
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		if strings.Contains(lines.Text(), "taking tasks") {
			go func() {
				for lines.Scan() { // so that it never waits for a reader
				}
			}()
			return stop
		}
	}
	m.t.Fatal("the worker never took tasks")
	return nil
}

func (m *machine) env() []string {
	return append(os.Environ(), "NATS_URL="+m.url, "NATS_CONTEXT=", "OPENAI_API_KEY=", "OPENAI_BASE_URL=", "XDG_CONFIG_HOME="+m.work,
		"PATH="+m.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// do runs a command as the page has it and returns what it printed.
func (m *machine) do(command string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	command = strings.ReplaceAll(command, "127.0.0.1:8080", m.http)
	command = regexp.MustCompile(`^worker ready`).ReplaceAllString(command, "worker ready --http "+m.http)
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	cmd.Dir, cmd.Env = m.work, m.env()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		m.t.Errorf("%s: %v\n%s", command, err, &out)
	}
	return out.String()
}

// until repeats a command until what it prints has a text in it.
func (m *machine) until(command, text string) {
	m.t.Helper()
	const patience = 30 * time.Second
	seen := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if seen = m.do(command); strings.Contains(seen, text) {
			return
		}
	}
	m.t.Fatalf("%s never printed %q, but\n%s", command, text, seen)
}

// TestRunbook runs the commands of the page, in the order in which they stand there.
func TestRunbook(t *testing.T) {
	need(t, "curl", "install curl")
	m := newMachine(t)
	m.serve()
	m.worker()
	m.do(`submit --detach --id order-4417 "Buy a few Microsoft shares."`)
	m.do(`submit --detach --tenant acme --id flood-1 "Buy a few Microsoft shares."`)
	m.until("submit show order-4417", "How many shares")
	m.until("submit show flood-1 --tenant acme", "How many shares")
	const letters = 3
	for range letters {
		m.do(`nats pub agent.task.default '{"goal": ""}'`)
	}
	m.until("submit dead", fmt.Sprintf("\n%d ", letters))
	ran := 0
	for _, s := range sections(t) {
		if s.title == "Backup and restore" {
			continue // TestBackupAndRestore
		}
		for _, command := range s.commands {
			m.do(command)
			ran++
		}
	}
	if ran < 20 {
		t.Errorf("%d commands were run: is the page read rightly?", ran)
	}
}

// TestBackupAndRestore moves everything to another server by the commands of the page, and goes on there.
func TestBackupAndRestore(t *testing.T) {
	m := newMachine(t)
	m.serve()
	stop := m.worker()
	m.do(`submit --detach --id parked "Buy a few Microsoft shares."`)
	m.until("submit show parked", "How many shares")
	m.do(`submit --id finished "What is 17 plus 25?"`)
	m.do(`submit --id later --not-before 10s "What is 17 plus 25?"`)
	m.do(`submit --id hourly --every 1h "What is 17 plus 25?"`)
	stop()
	var commands []string
	for _, s := range sections(t) {
		if s.title == "Backup and restore" {
			commands = s.commands
		}
	}
	if len(commands) != 2 {
		t.Fatalf("the page has %q", commands)
	}
	m.do(commands[0])
	m.serve() // another one, with nothing in it
	m.do(commands[1])
	m.worker()
	m.until("submit schedule", "hourly")
	m.until("submit events finished", "17 plus 25 is 42")
	m.do(`submit reply parked "200 shares."`)
	m.until("submit show parked", "At what price")
	m.do(`submit reply parked "56.30 USD."`)
	m.until("submit show parked", "Bought 200 shares")
	m.until("submit list", "later")
	m.until("submit show later", "17 plus 25 is 42")
}

// free is an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + strconv.Itoa(freeport.One(t))
}
