// Package examples runs the example tool services as programs of their own and calls them through the registry.
package examples

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
	"ratchet/internal/tools/npmtest"
	"ratchet/internal/tools/toolfile"
)

// registry returns the tools that a worker with examples/tools.yaml has, on a server of its own.
func registry(t *testing.T, vars map[string]string) (*tools.Registry, *bus.Embedded) {
	t.Helper()
	server := bustest.Server(t)
	r, closer, err := toolfile.Load(bustest.Context(t), "tools.yaml", toolfile.Env{
		Conn: bustest.Connect(t, server), Builtins: tools.Builtins(nil), Refresh: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Result: func(context.Context, string) ([]byte, error) { return nil, loop.ErrNotFound },
		Getenv: func(name string) string {
			if value, ok := vars[name]; ok {
				return value
			}
			return os.Getenv(name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, server
}

// vars is the environment that examples/tools.yaml wants.
func vars(t *testing.T) map[string]string {
	return map[string]string{"FILES": t.TempDir(), "SMTP_HOST": "127.0.0.1:1", "SMTP_FROM": "agent@example.org", "SMTP_PASSWORD": "not-a-real-password"}
}

// run starts a program and ends it with the test.
func run(t *testing.T, server *bus.Embedded, command ...string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "NATS_URL="+server.URL())
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", command[0], err)
		}
	})
}

// call waits for a tool and calls it.
func call(t *testing.T, r *tools.Registry, tool, arguments string) string {
	t.Helper()
	for {
		changed := r.Changed()
		specs, _ := r.Offer([]string{tool})
		if len(specs) == 1 {
			break
		}
		select {
		case <-changed:
		case <-bustest.Context(t).Done():
			t.Fatalf("%s was not found", tool)
		}
	}
	out := r.Call(t.Context(), loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c1", Tool: tool, Arguments: json.RawMessage(arguments)})
	return string(out.Status) + " " + string(out.Result)
}

func TestGoTool(t *testing.T) {
	program := filepath.Join(t.TempDir(), "go-tool")
	if out, err := exec.Command("go", "build", "-o", program, "./go-tool").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, server := registry(t, vars(t))
	run(t, server, program)
	if got := call(t, r, "convert_money", `{"euros":"8"}`); got != `ok {"dollars":10}` {
		t.Error(got)
	}
	if got := call(t, r, "convert_money", `{"euros":-1}`); !strings.Contains(got, "must be at least 0") {
		t.Error(got)
	}
}

func TestNodeTool(t *testing.T) {
	command := npmtest.Service(t)
	r, server := registry(t, vars(t))
	run(t, server, command...)
	if got := call(t, r, "reverse_text", `{"text":"añb"}`); got != `ok {"text":"bña","call":"acme/r1/c1"}` {
		t.Error(got)
	}
	if got := call(t, r, "reverse_text", `{"text":""}`); got != `error "the service answered with error 400: there is nothing to reverse"` {
		t.Error(got)
	}
}

func TestToolsFile(t *testing.T) {
	r, _ := registry(t, vars(t))
	got := map[string]tools.Listing{}
	for _, l := range r.List() {
		got[l.Name] = l
	}
	for _, name := range []string{"calculate", "current_time", "read_result", "http_get", "read_file", "write_file", "get_weather", "get_elevation", "send_email"} {
		if _, ok := got[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
	if mail := got["send_email"]; !mail.Approve || mail.Effect != loop.EffectOnce {
		t.Errorf("%+v", mail)
	}
}
