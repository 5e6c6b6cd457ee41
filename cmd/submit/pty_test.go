package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// person sits at a terminal in which the program runs.
type person struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{} // something was added to seen
	gone chan struct{} // the terminal was closed
}

// sit starts the program on a terminal of its own.
func sit(t *testing.T, args ...string) *person {
	t.Helper()
	return sitIn(t, []string{"TERM=xterm", "NO_COLOR=1"}, args...)
}

func sitIn(t *testing.T, env []string, args ...string) *person {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{asProgram + "=1", "TMPDIR=" + t.TempDir()}, env...)
	return sitAt(t, cmd)
}

// sitAt starts a command on a terminal of its own.
func sitAt(t *testing.T, cmd *exec.Cmd) *person {
	t.Helper()
	p := &person{t: t, cmd: cmd, more: make(chan struct{}, 1), gone: make(chan struct{})}
	tty, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	p.tty = tty
	go p.watch()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended unless the test failed
		_ = tty.Close()
		<-p.gone
	})
	return p
}

func (p *person) watch() {
	defer close(p.gone)
	buffer := make([]byte, 4096)
	for {
		n, err := p.tty.Read(buffer)
		p.mu.Lock()
		p.seen.Write(buffer[:n])
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// sees waits until text stands on the terminal and forgets what came up to it.
func (p *person) sees(text string) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		before, after, found := bytes.Cut(p.seen.Bytes(), []byte(text))
		if found {
			p.seen = *bytes.NewBuffer(bytes.Clone(after))
		}
		shown := string(before)
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-p.more:
		case <-deadline:
			p.t.Fatalf("%q did not appear; there is %q", text, shown)
		}
	}
}

// awaits waits until what is new on the terminal matches.
func (p *person) awaits(pattern *regexp.Regexp) {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		shown := p.seen.String()
		p.mu.Unlock()
		if pattern.MatchString(shown) {
			return
		}
		select {
		case <-p.more:
		case <-deadline:
			p.t.Fatalf("%s did not appear; there is %q", pattern, shown)
		}
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := p.tty.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// leaves waits for the program's end and returns its exit code.
func (p *person) leaves() int {
	p.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			p.t.Fatal(err)
		}
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("the program did not end; there is %q", p.seen.String())
		return 0
	}
}

func TestPersonAnswersAtTheTerminal(t *testing.T) {
	p := sit(t, "--local", buy)
	p.sees("How many shares of Microsoft")
	p.sees("\r\n> ")
	p.types("200 shares.\n")
	p.sees("✓ Find out how many shares of Microsoft to buy — 200 shares.")
	p.sees("At what price per share")
	p.sees("\r\n> ")
	p.types("\n")
	p.sees("An empty answer says nothing")
	p.sees("\r\n> ")
	p.types("56.30 USD.\n")
	p.sees("✓ Buy a few Microsoft shares.")
	p.sees("Bought 200 shares of Microsoft at 56.30 USD each")
	if code := p.leaves(); code != codeAnswered {
		t.Errorf("exit code %d", code)
	}
}

// TestTerminals asks on terminals that can do less or more, and with no progress shown.
func TestTerminals(t *testing.T) {
	const question = "? How many shares of Microsoft do you want to buy? A whole number, please."
	painted := "\x1b[33m?\x1b[0m \x1b[1mHow many shares of Microsoft do you want to buy? A whole number, please.\x1b[0m"
	for _, c := range []struct{ name, env, flag, question string }{
		{"dumb", "TERM=dumb", "--local", question},
		{"quiet", "TERM=xterm", "--quiet", painted},
		{"colour", "TERM=xterm", "--local", painted},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sitIn(t, []string{c.env}, "--local", c.flag, buy)
			p.sees(c.question)
			p.sees("\n> ")
			p.types("200\n")
			p.sees("At what price")
			p.sees("\n> ")
			p.types("1\n")
			p.sees("Bought 200 shares")
			if code := p.leaves(); code != codeAnswered {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestPersonApprovesAtTheTerminal(t *testing.T) {
	p := sit(t, "--local", "--approve", "buy_*", "Buy 20 Microsoft shares at 50.25 USD.")
	p.sees("May I call buy_shares")
	p.sees(`"amount": 20`)
	p.sees("Approve? [y/N] ")
	p.types("maybe\n")
	p.sees(`"maybe" is neither y nor n.`)
	p.sees("Approve? [y/N] ")
	p.types("y\n")
	p.sees("> approved")
	p.sees("Bought 20 shares")
	if code := p.leaves(); code != codeAnswered {
		t.Errorf("exit code %d", code)
	}
}

// TestAnsweredElsewhere answers the first question from another place while the prompt is open and half a line is
// typed: the prompt goes away, and the half line is no answer to the next question.
func TestAnsweredElsewhere(t *testing.T) {
	server := bustest.Server(t)
	work(t, server)
	client, err := bus.NewClient(bustest.Connect(t, server), "", "")
	if err != nil {
		t.Fatal(err)
	}
	p := sit(t, "--nats", server.URL(), "--id", "b1", buy)
	p.sees("How many shares of Microsoft")
	p.sees("\r\n> ")
	p.types("99")
	p.sees("99")
	reply := bus.ReplyRequest{Run: "b1", Reply: loop.Reply{Question: "q1", Text: "300 shares", By: "ben"}}
	outcome, err := client.Reply(bustest.Context(t), reply)
	if err != nil || outcome.Status != loop.OutcomeAccepted {
		t.Fatalf("%+v, %v", outcome, err)
	}
	p.sees("> 300 shares (ben)")
	p.sees("At what price per share")
	p.sees("\r\n> ")
	p.types("56.30 USD.\n")
	p.sees("Bought 300 shares of Microsoft at 56.30 USD each")
	if code := p.leaves(); code != codeAnswered {
		t.Errorf("exit code %d", code)
	}
}

func TestCtrlC(t *testing.T) {
	const ctrlC, ctrlD = "\x03", "\x04"
	url := server(t)
	open := func(id string) *person {
		p := sit(t, "--nats", url, "--id", id, buy)
		p.sees("How many shares of Microsoft")
		p.sees("\r\n> ")
		p.types(ctrlC)
		p.sees("[d]etach (the run goes on), [c]ancel the run, or Enter to go on?")
		p.sees("\r\n> ")
		return p
	}
	for _, c := range []struct {
		name, keys, says string
		code             int
	}{
		{"detach", "d\n", "Left run detach; it goes on.", codeInterrupted},
		{"again", ctrlC, "Left run again; it goes on.", codeInterrupted},
		{"close", ctrlD, "Left run close; it goes on.", codeInterrupted},
		{"cancel", "c\n", "Run cancel was cancelled", codeCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(c.name)
			p.types(c.keys)
			p.sees(c.says)
			if code := p.leaves(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
	t.Run("goes-on", func(t *testing.T) {
		p := open("goes-on")
		p.types("what?\n")
		p.sees("[d]etach")
		p.sees("\r\n> ")
		p.types("\n")
		p.sees("How many shares of Microsoft")
		p.sees("\r\n> ")
		p.types(ctrlD)
		p.sees("Run goes-on waits for an answer.")
		if code := p.leaves(); code != codeWaiting {
			t.Errorf("exit code %d, want %d", code, codeWaiting)
		}
	})
}

// TestInterruptWithoutATerminal leaves the run at once, with the exit code that a signal gives.
func TestInterruptWithoutATerminal(t *testing.T) {
	url := server(t)
	submit(t, "", "--nats", url, "--id", "w1", "--session", "s1", buy).want(t, codeWaiting)
	for _, c := range []struct {
		args  []string
		until string
	}{
		{[]string{"events", "w1", "--follow"}, "question"},
		{[]string{"--id", "w2", "--session", "s1", sum}, "waiting for the run before it"},
	} {
		cmd := exec.Command(os.Args[0], append(c.args, "--nats", url)...)
		cmd.Env = []string{asProgram + "=1"}
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = in, in
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		var seen strings.Builder
		for buffer := make([]byte, 1024); !strings.Contains(seen.String(), c.until); {
			count, err := out.Read(buffer)
			seen.Write(buffer[:count])
			if err != nil {
				t.Fatalf("submit %q ended before %q: %v\n%s", c.args, c.until, err, &seen)
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code says more
		stuck.Stop()
		_ = out.Close()
		if code := cmd.ProcessState.ExitCode(); code != codeInterrupted {
			t.Errorf("submit %q: exit code %d", c.args, code)
		}
	}
}
