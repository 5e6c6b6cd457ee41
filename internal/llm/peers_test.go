package llm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/loop"
)

// The servers here come from npm and were written by others. `make npm` installs them, at the versions that the lock file
// names.
const npmFolder = "testdata/npm"

// peer starts a server with node and returns its base URL, up to /v1. listening is part of the line that it prints when
// it is ready. It learns its port from args or from the environment.
func peer(t *testing.T, script, listening string, args func(port string) []string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is not installed")
	}
	path, err := filepath.Abs(filepath.Join(npmFolder, "node_modules", filepath.FromSlash(script)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		missing(t, script+" is not installed")
	}
	port := freePort(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, node, append([]string{path}, args(port)...)...)
	cmd.Dir = npmFolder
	cmd.Env = append(os.Environ(), "HOST=127.0.0.1", "PORT="+port)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var said strings.Builder
	ready := false
	for !ready && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		ready = strings.Contains(lines.Text(), listening)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() { // a full pipe would stop the server
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = cmd.Wait() // it was killed, and says so
	})
	if !ready {
		t.Fatalf("%s ended before it listened:\n%s", script, said.String())
	}
	return "http://127.0.0.1:" + port + "/v1"
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// missing ends the test: as failed where everything must be there, else as skipped.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: run `make npm`", what)
	}
	t.Skipf("%s: run `make npm`", what)
}

func mockLLM(t *testing.T) string {
	return peer(t, "@dwmkerr/mock-llm/dist/main.js", "server running on", func(string) []string {
		return []string{"--config", "mock-llm.yaml"}
	})
}

func aimock(t *testing.T, more ...string) string {
	return peer(t, "@copilotkit/aimock/dist/cli.js", "server listening on", func(port string) []string {
		return append([]string{"--port", port, "--fixtures", "aimock.json", "--chunk-size", "3"}, more...)
	})
}

func peerClient(t *testing.T, url string, change func(*llm.Config)) *llm.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	conf := llm.Config{BaseURL: url, APIKey: "test-key", Model: "gpt-4o-mini", Transport: transport}
	if change != nil {
		change(&conf)
	}
	client, err := llm.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func peerRequest(say string) loop.ModelRequest {
	return loop.ModelRequest{
		Run: loop.RunID{Tenant: "default", Run: "r1"}, Purpose: loop.PurposeStep, JSON: true,
		Schema:   &loop.ReplySchema{Name: "message", Schema: json.RawMessage(`{"type":"object"}`)},
		Messages: []loop.Message{{Role: "system", Content: "Reply with JSON."}, {Role: "user", Content: say}},
	}
}

// both asks for a whole reply and for a stream.
func both(t *testing.T, ask func(t *testing.T, stream func(*loop.ModelRequest) *pieces)) {
	t.Run("whole", func(t *testing.T) {
		ask(t, func(*loop.ModelRequest) *pieces { return nil })
	})
	t.Run("streamed", func(t *testing.T) {
		ask(t, func(r *loop.ModelRequest) *pieces {
			p := &pieces{}
			r.Tokens = p.add
			return p
		})
	})
}

func (p *pieces) checkMany(t *testing.T, reply loop.ModelReply) {
	t.Helper()
	if p == nil {
		return
	}
	p.check(t, reply, nil)
	if p.n < 4 || p.restarts > 0 {
		t.Errorf("%d pieces and %d restarts, want some and none", p.n, p.restarts)
	}
}

func TestAgainstMockLLM(t *testing.T) {
	client := peerClient(t, mockLLM(t), nil)
	const said = "Say 🙂🙂🙂 and Grüezi, twice"
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest(said)
		p := stream(&r)
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		p.checkMany(t, reply)
		reply.MS, reply.Usage = 0, loop.Usage{} // it counts no tokens
		if diff := cmp.Diff(loop.ModelReply{Text: said, Model: "gpt-4o-mini"}, reply); diff != "" {
			t.Errorf("reply (-want +got):\n%s", diff)
		}
	})
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest("unauthorised")
		stream(&r)
		_, err := client.Complete(t.Context(), r)
		if me := modelError(t, err); me.Passing || me.Cause != llm.CauseAuth {
			t.Errorf("%+v, want cause %s", me, llm.CauseAuth)
		}
	})
}

func TestAgainstAIMock(t *testing.T) {
	client := peerClient(t, aimock(t), nil)
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest("hello")
		p := stream(&r)
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		p.checkMany(t, reply)
		if want := `{"greeting": "Grüezi 🙂🙂🙂, how can I help you?"}`; reply.Text != want || reply.Usage.CompletionTokens == 0 {
			t.Errorf("reply %+v, want text %s and tokens used", reply, want)
		}
	})
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		r := peerRequest("weather")
		r.Tools = []loop.ToolSpec{{Name: "get_weather", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "now"}}
		stream(&r)
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range reply.Calls {
			if reply.Calls[i].ID == "" {
				t.Errorf("call %d has no id", i)
			}
			reply.Calls[i].ID = ""
		}
		want := []loop.NativeCall{
			{Name: "get_weather", Arguments: json.RawMessage(`{"place":"Köln 🙂","days":3}`)}, {Name: "now", Arguments: json.RawMessage(`{}`)},
		}
		if diff := cmp.Diff(want, reply.Calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// A stream that the server breaks in the middle is never taken for a reply.
func TestAgainstAIMockThatCutsStreams(t *testing.T) {
	at := &testClock{now: clock}
	client := peerClient(t, aimock(t), func(c *llm.Config) { c.Now, c.Timer, c.Attempts = at.Now, at.Timer, 3 })
	for _, say := range []string{"truncated", "disconnected"} {
		r := peerRequest(say)
		p := &pieces{}
		r.Tokens = p.add
		reply, err := client.Complete(t.Context(), r)
		if err == nil {
			t.Fatalf("%s: reply %q", say, reply.Text)
		}
		if me := modelError(t, err); !me.Passing || me.Cause != llm.CauseTransport {
			t.Errorf("%s: %+v, want one that may pass", say, me)
		}
		if p.restarts != 2 {
			t.Errorf("%s: begun anew %d times, want 2", say, p.restarts)
		}
	}
}

// A server that refuses, breaks off and fails every third time costs attempts, and no reply is wrong for it.
func TestAgainstAIMockInTrouble(t *testing.T) {
	url := aimock(t, "--chaos-ratelimit", "0.15", "--chaos-disconnect", "0.1", "--chaos-drop", "0.1")
	at := &testClock{now: clock}
	client := peerClient(t, url, func(c *llm.Config) { c.Now, c.Timer, c.Patience, c.Attempts = at.Now, at.Timer, time.Hour, 20 })
	both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
		for range 20 {
			r := peerRequest("hello")
			p := stream(&r)
			reply, err := client.Complete(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if p != nil {
				p.check(t, reply, nil)
			}
			if want := `{"greeting": "Grüezi 🙂🙂🙂, how can I help you?"}`; reply.Text != want {
				t.Errorf("reply %q, want %q", reply.Text, want)
			}
		}
	})
	if len(at.waits) == 0 {
		t.Error("the server was never in trouble")
	}
}
