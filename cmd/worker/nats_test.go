package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

// natsTool builds the nats command line tool, from the module that pins it, and returns its path.
func natsTool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nats")
	cmd := exec.Command("go", "build", "-C", "../../toolchain/natscli", "-o", path, "github.com/nats-io/natscli/nats")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the nats tool: %v\n%s", err, out)
	}
	return path
}

// startWorker runs the program until the end of the test, and returns the URL of its embedded server.
func startWorker(t *testing.T, args ...string) (url string) {
	t.Helper()
	return startWorkerWith(t, nil, args...)
}

// startWorkerWith is startWorker with an environment.
func startWorkerWith(t *testing.T, env map[string]string, args ...string) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs := newLineBuffer()
	done := make(chan int, 1)
	go func() { done <- run(ctx, args, func(key string) string { return env[key] }, logs, logs) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("the worker ended with status %d:\n%s", code, logs)
		}
	})
	line := logs.wait(t, "taking tasks")
	var entry struct {
		NATS string `json:"nats"`
	}
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.NATS == "" {
		t.Fatalf("the log line %q does not say where NATS is: %v", line, err)
	}
	return entry.NATS
}

// lineBuffer collects output and lets a test wait for a line of it.
type lineBuffer struct {
	mu    sync.Mutex
	cond  *sync.Cond
	bytes bytes.Buffer
	from  int
}

func newLineBuffer() *lineBuffer {
	b := &lineBuffer{}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cond.Broadcast()
	return b.bytes.Write(p)
}

func (b *lineBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

// wait returns the next line that holds want, after the one returned last.
func (b *lineBuffer) wait(t *testing.T, want string) string {
	t.Helper()
	timeout := time.AfterFunc(30*time.Second, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.from = -1
		b.cond.Broadcast()
	})
	defer timeout.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.from >= 0 {
		rest := b.bytes.String()[b.from:]
		for line := range strings.Lines(rest) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			b.from += len(line)
			if strings.Contains(line, want) {
				return line
			}
		}
		b.cond.Wait()
	}
	t.Fatalf("no line with %q in 30 s:\n%s", want, b.bytes.String())
	return ""
}

// TestWithTheNATSToolAlone does what an operator can do with nothing but the nats program: publish a task, watch its
// events, reply to its questions, and read its state.
func TestWithTheNATSToolAlone(t *testing.T) {
	tool := natsTool(t)
	url := startWorker(t, "--embedded", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--model", "demo", "--http", "", "--sync", "2m")
	nats := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tool, append([]string{"--server", url}, args...)...)
		cmd.Env = append(os.Environ(), "NATS_CONTEXT=", "XDG_CONFIG_HOME="+t.TempDir())
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}

	events := newLineBuffer()
	watch := exec.Command(tool, "--server", url, "sub", "--raw", "agent.event.default.>")
	watch.Env = append(os.Environ(), "NATS_CONTEXT=", "XDG_CONFIG_HOME="+t.TempDir())
	watch.Stdout = events
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watch.Process.Kill(); _ = watch.Wait() })
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(events.String(), probe); {
		if time.Now().After(deadline) {
			t.Fatal("nats sub hears nothing")
		}
		nats("pub", "agent.event.default.probe", probe) // no subject of the journal
	}

	nats("pub", "agent.task.default", `{"id": "shares", "goal": "Buy a few Microsoft shares."}`)
	for _, answer := range []string{"200 shares.", "56.30 USD."} {
		line := events.wait(t, `"agent.question"`)
		var q struct {
			Data loop.Question `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		body, err := json.Marshal(loop.Reply{Question: q.Data.Question, Text: answer})
		if err != nil {
			t.Fatal(err)
		}
		nats("pub", "agent.reply.default.shares", string(body))
	}
	final := events.wait(t, `"agent.answer"`)
	if !strings.Contains(final, "200") || !strings.Contains(final, "56.3") {
		t.Errorf("the answer is %s", final)
	}
	checkFeed(t, events.String())

	var head loop.Head
	for deadline := time.Now().Add(10 * time.Second); !head.Closed; {
		if time.Now().After(deadline) {
			t.Fatalf("the state is %+v", head)
		}
		if err := json.Unmarshal([]byte(nats("kv", "get", "AGENT_RUNS", "default.shares", "--raw")), &head); err != nil {
			t.Fatal(err)
		}
	}
	if head.Status != loop.StatusDone || head.V != 1 || head.Run != "shares" || head.Question != nil {
		t.Errorf("the state is %+v", head)
	}
}

// probe is a message by which the test knows that the subscription is there.
const probe = "probe"

// checkFeed checks that every line is a valid CloudEvent, that n has no gaps, and that exactly the last one is final.
func checkFeed(t *testing.T, feed string) {
	t.Helper()
	var got []string
	scanner := bufio.NewScanner(strings.NewReader(feed))
	scanner.Buffer(nil, 1<<20)
	n := uint64(0)
	finals := 0
	for scanner.Scan() {
		if line := strings.TrimSpace(scanner.Text()); line == "" || line == probe {
			continue
		}
		var e cloudevents.Event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", scanner.Text(), err)
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", scanner.Text(), err)
		}
		ours, err := loop.DecodeEvent(scanner.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if ours.N != n+1 {
			t.Errorf("event %d follows event %d", ours.N, n)
		}
		n = ours.N
		if ours.Final() {
			finals++
		}
		got = append(got, ours.Type())
	}
	if finals != 1 {
		t.Errorf("%d final events", finals)
	}
	want := "accepted facts plan thought question reply thought question reply"
	if diff := cmp.Diff(want, strings.Join(got[:min(len(got), 9)], " ")); diff != "" {
		t.Errorf("the events differ (-want +got):\n%s", diff)
	}
}
