package toolfile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
	"ratchet/internal/tools/demo"
	"ratchet/internal/tools/natstool"
	"ratchet/internal/tools/npmtest"
	"ratchet/internal/tools/toolfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer is a log for several writers.
type logBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

// wait returns when the log has the text.
func (l *logBuffer) wait(t *testing.T, text string) {
	t.Helper()
	for {
		l.mu.Lock()
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed, there := l.changed, strings.Contains(l.b.String(), text)
		l.mu.Unlock()
		if there {
			return
		}
		select {
		case <-changed:
		case <-bustest.Context(t).Done():
			t.Fatalf("the log never says %s:\n%s", text, l)
		}
	}
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// load loads a file with the given text. vars are the environment.
func load(t *testing.T, text string, env toolfile.Env, vars map[string]string) (*tools.Registry, *logBuffer, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tools.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log logBuffer
	env.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	env.Builtins, env.Demo = tools.Builtins(nil), demo.Tools(demo.Options{Outbox: t.TempDir()})
	env.Getenv = func(name string) string {
		if name == "PATH" {
			return os.Getenv(name)
		}
		return vars[name]
	}
	r, closer, err := toolfile.Load(bustest.Context(t), path, env)
	if err == nil {
		t.Cleanup(func() {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return r, &log, err
}

func must(t *testing.T, text string, env toolfile.Env, vars map[string]string) (*tools.Registry, *logBuffer) {
	t.Helper()
	r, log, err := load(t, text, env, vars)
	if err != nil {
		t.Fatal(err)
	}
	return r, log
}

func call(t *testing.T, r *tools.Registry, tool, arguments string) string {
	t.Helper()
	out := r.Call(bustest.Context(t), loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c1", Tool: tool, Arguments: json.RawMessage(arguments)})
	return string(out.Status) + " " + string(out.Result)
}

// names returns what is offered, each with its source.
func names(r *tools.Registry) map[string]string {
	list := map[string]string{}
	for _, l := range r.List() {
		list[l.Name] = l.Source
	}
	return list
}

func serve(t *testing.T, nc *nats.Conn, tool, effect string, answer string) micro.Service {
	t.Helper()
	s, err := micro.AddService(nc, micro.Config{Name: "shop", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	err = s.AddEndpoint("endpoint", micro.HandlerFunc(func(r micro.Request) { _ = r.Respond([]byte(answer)) }),
		micro.WithEndpointSubject("tools."+tool), micro.WithEndpointMetadata(map[string]string{
			natstool.MetaName: tool, natstool.MetaDescription: "does " + tool, natstool.MetaSchema: `{"type":"object"}`, natstool.MetaEffect: effect,
		}))
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWithoutAFile(t *testing.T) {
	builtins, samples := tools.Builtins(nil), demo.Tools(demo.Options{Outbox: t.TempDir()})
	for name, test := range map[string]struct {
		env  toolfile.Env
		want int
	}{
		"plain":  {toolfile.Env{Builtins: builtins, Demo: samples}, len(builtins)},
		"demo":   {toolfile.Env{Builtins: builtins, Demo: samples, WithDemo: true}, len(builtins) + len(samples)},
		"result": {toolfile.Env{Builtins: builtins, Result: func(context.Context, string) ([]byte, error) { return nil, loop.ErrNotFound }}, len(builtins) + 1},
	} {
		r, closer, err := toolfile.Load(t.Context(), "", test.env)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.List()); n != test.want {
			t.Errorf("%s: %d tools, want %d", name, n, test.want)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBuiltins(t *testing.T) {
	dir := t.TempDir()
	r, _ := must(t, `
defaults: {timeout: 5s, max_result: 1KB}
tools:
  - builtin: calculate
  - builtin: "demo/get_*"
  - builtin: read_file
    dir: "${FILES}"
  - builtin: write_file
    dir: "${FILES}"
  - builtin: http_get
    allow: ["https://api.open-meteo.com/*"]
  - builtin: get_weather
  - builtin: send_email
    smtp: {host: "${SMTP}", from: agent@example.org, username: agent, password: "${SMTP_PASSWORD}"}
    allow: ["*@example.org"]
overrides:
  - match: send_email
    approve: true
    max_parallel: 1
    rate: 10/m
`, toolfile.Env{}, map[string]string{"FILES": dir, "SMTP": "smtp.example.org", "SMTP_PASSWORD": "correct horse battery"})
	want := map[string]string{
		"calculate": "builtin, tools.yaml:4", "get_temperature": "demo, tools.yaml:5", "get_courier_note": "demo, tools.yaml:5",
		"read_file": "builtin, tools.yaml:6", "write_file": "builtin, tools.yaml:8", "http_get": "builtin, tools.yaml:10",
		"get_weather": "builtin, tools.yaml:12", "send_email": "builtin, tools.yaml:13",
	}
	if diff := cmp.Diff(want, names(r)); diff != "" {
		t.Error(diff)
	}
	for _, l := range r.List() {
		if l.Name != "send_email" {
			continue
		}
		if !l.Approve || l.Effect != loop.EffectOnce || l.MaxParallel != 1 || l.Rate != "10/1m0s" || l.MaxResult != 1024 || l.Timeout != loop.Duration(5*time.Second) {
			t.Errorf("%+v", l)
		}
	}
	if got := call(t, r, "write_file", `{"path":"a.txt","text":"hello"}`); !strings.HasPrefix(got, "ok ") {
		t.Error(got)
	}
	if got := call(t, r, "read_file", `{"path":"a.txt"}`); got != `ok "hello"` {
		t.Error(got)
	}
}

func TestMistakesInTheFile(t *testing.T) {
	const secret = "canary-0123456789"
	for name, test := range map[string]struct{ text, want string }{
		"empty":              {"", "tools.yaml"},
		"no YAML":            {"tools: [", "tools.yaml"},
		"unknown field":      {"tools:\n  - builtin: calculate\n    alow: [x]\n", "line 3: unknown field alow"},
		"unknown top":        {"tool: []\n", "line 1"},
		"unknown in mcp":     {"tools:\n  - mcp: {comand: [x]}\n", "line 2"},
		"unknown in http":    {"tools:\n  - http: {nam: x}\n", "line 2"},
		"unknown override":   {"tools: []\noverrides:\n  - match: x\n    aprove: true\n", "line 4"},
		"twice the same":     {"tools: []\ntools: []\n", "line 2"},
		"nothing":            {"tools:\n  - prefix: x\n", "line 2: an entry is one of"},
		"two kinds":          {"tools:\n  - builtin: calculate\n    nats: x\n", "line 2: an entry is one of"},
		"unknown builtin":    {"tools:\n  - builtin: calcualte\n", `line 2: builtin "calcualte" is none of`},
		"glob without match": {"tools:\n  - builtin: demo/nothing*\n", "line 2"},
		"misplaced allow":    {"tools:\n  - builtin: calculate\n    allow: [x]\n", "line 2: allow means nothing here"},
		"misplaced prefix":   {"tools:\n  - builtin: calculate\n    prefix: x\n", "line 2: prefix means nothing here"},
		"misplaced dir":      {"tools:\n  - builtin: http_get\n    dir: x\n", "line 2: dir means nothing here"},
		"http_get":           {"tools:\n  - builtin: http_get\n", "line 2: http_get needs allow"},
		"allow":              {"tools:\n  - builtin: http_get\n    allow: [example.org]\n", "line 2"},
		"read_file":          {"tools:\n  - builtin: read_file\n", "line 2: read_file needs dir"},
		"no such dir":        {"tools:\n  - builtin: read_file\n    dir: /no/such/folder\n", "line 2"},
		"send_email":         {"tools:\n  - builtin: send_email\n", "line 2: send_email needs smtp"},
		"not set":            {"tools:\n  - mcp: {url: \"http://x/${NOTHING}\"}\n  - nats: \"${NEITHER}.>\"\n", "line 2: the environment variable NOTHING is not set\nline 3: the environment variable NEITHER is not set"},
		"secret in url":      {"tools:\n  - http: {name: x, description: d, url: \"ftp://${SECRET}/\"}\n", "line 2"},
		"secret is no port":  {"tools:\n  - builtin: send_email\n    smtp: {host: \"h:${SECRET}\", from: a@example.org}\n", "line 2"},
		"secret as program":  {"tools:\n  - mcp: {command: [\"${SECRET}\"]}\n", "line 2"},
		"secret as allow":    {"tools:\n  - builtin: http_get\n    allow: [\"${SECRET}\"]\n", "line 2"},
		"no connection":      {"tools:\n  - nats: tools.>\n", "line 2: tools on NATS need a connection"},
		"mcp":                {"tools:\n  - mcp: {command: [x], url: y}\n", "line 2"},
		"no such program":    {"tools:\n  - mcp: {command: [no-such-program-anywhere]}\n", "line 2"},
		"http name":          {"tools:\n  - http: {name: \"a b\", description: d, url: \"http://example.org/\"}\n", `"a b"`},
		"http description":   {"tools:\n  - http: {name: a, url: \"http://example.org/\"}\n", "no description"},
		"http placeholder":   {"tools:\n  - http: {name: a, description: d, url: \"http://example.org/{id}\"}\n", "line 2"},
		"http schema":        {"tools:\n  - http: {name: a, description: d, url: \"http://example.org/\", schema: {type: text}}\n", "JSON Schema"},
		"http effect":        {"tools:\n  - http: {name: a, description: d, url: \"http://example.org/\", effect: never}\n", "effect"},
		"override match":     {"tools: []\noverrides:\n  - match: \"[\"\n", "line 3"},
		"override no match":  {"tools: []\noverrides:\n  - effect: read\n", "line 3"},
		"override effect":    {"tools: []\noverrides:\n  - match: x\n    effect: twice\n", "line 3"},
		"timeout":            {"defaults: {timeout: soon}\ntools: []\n", "line 1"},
		"size":               {"defaults: {max_result: big}\ntools: []\n", "line 1"},
		"rate":               {"tools: []\noverrides:\n  - match: x\n    rate: often\n", "line 4"},
		"guard":              {"tools:\n  - builtin: calculate\noverrides:\n  - match: calculate\n    guard: nobody\n", `its guard tool "nobody"`},
		"clash":              {"tools:\n  - builtin: calculate\n  - builtin: calc*\n", "calculate is offered by builtin, tools.yaml:2 and by builtin, tools.yaml:3"},
		"clash of sorts":     {"tools:\n  - builtin: demo/send_email\n  - builtin: send_email\n    smtp: {host: h, from: a@example.org}\n", "send_email is offered by demo, tools.yaml:2 and by builtin, tools.yaml:3"},
	} {
		_, log, err := load(t, test.text, toolfile.Env{}, map[string]string{"SECRET": secret})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "tools.yaml") {
			t.Errorf("%s: %v\nwant %s", name, err, test.want)
		}
		if strings.Contains(fmt.Sprint(err, log), "canary") {
			t.Errorf("%s: a secret is in %v\n%s", name, err, log)
		}
	}
}

func TestNATSToolsUnderTheFile(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	serve(t, nc, "buy_shares", "read", `{"order":7}`) // says that it is harmless
	serve(t, nc, "get_price", "read", `12.5`)
	serve(t, nc, "drop_table", "read", `1`)
	r, _ := must(t, `
tools:
  - nats: "tools.>"
    allow: ["get_*", "buy_shares", "late"]
overrides:
  - match: "buy_*"
    effect: once
    approve: true
    guard: check_order
    timeout: 10s
`, toolfile.Env{Conn: nc, Refresh: 50 * time.Millisecond}, nil)
	want := map[string]string{"buy_shares": "nats tools.buy_shares (service shop), tools.yaml:3", "get_price": "nats tools.get_price (service shop), tools.yaml:3"}
	if diff := cmp.Diff(want, names(r)); diff != "" {
		t.Error(diff)
	}
	buy := r.List()[0]
	if buy.Effect != loop.EffectOnce || !buy.Approve || buy.Guard != "check_order" || buy.Timeout != loop.Duration(10*time.Second) {
		t.Errorf("what the endpoint says of itself won: %+v", buy)
	}
	if problems := r.Guard(t.Context(), loop.Invocation{Tool: "buy_shares"}); len(problems) != 1 {
		t.Errorf("a guard that is not there let it through: %v", problems)
	}
	if got := call(t, r, "get_price", `{}`); got != "ok 12.5" {
		t.Error(got)
	}
	late := serve(t, nc, "late", "read", `"here"`)
	await(t, r, "late", true)
	if got := call(t, r, "late", `{}`); got != `ok "here"` {
		t.Error(got)
	}
	if err := late.Stop(); err != nil {
		t.Fatal(err)
	}
	await(t, r, "late", false)
	if _, _, err := load(t, "tools:\n  - nats: tools.>\n  - nats: \"*.get_price\"\n", toolfile.Env{Conn: nc}, nil); err == nil ||
		!strings.Contains(err.Error(), "get_price is offered by nats tools.get_price (service shop), tools.yaml:2 and by nats tools.get_price (service shop), tools.yaml:3") {
		t.Errorf("a clash: %v", err)
	}
}

// await waits until a tool is there, or is gone.
func await(t *testing.T, r *tools.Registry, tool string, there bool) {
	t.Helper()
	for {
		changed := r.Changed()
		if _, ok := names(r)[tool]; ok == there {
			return
		}
		select {
		case <-changed:
		case <-bustest.Context(t).Done():
			t.Fatalf("%s: there %t", tool, !there)
		}
	}
}

func TestClashWhileRunningLeavesTheFirst(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	r, log := must(t, "tools:\n  - builtin: calculate\n  - nats: tools.>\n", toolfile.Env{Conn: nc, Refresh: 50 * time.Millisecond}, nil)
	serve(t, nc, "calculate", "read", `"wrong"`)
	serve(t, nc, "other", "read", `"fine"`)
	await(t, r, "other", true)
	if got := call(t, r, "calculate", `{"expression":"6*7"}`); got != "ok 42" {
		t.Error(got)
	}
	log.wait(t, "calculate is offered by builtin, tools.yaml:2 and by nats")
}

func TestBadRemoteToolIsLeftOut(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	serve(t, nc, "bad", "whenever", `1`)
	serve(t, nc, "good", "read", `1`)
	r, log := must(t, "tools:\n  - nats: tools.>\n", toolfile.Env{Conn: nc}, nil)
	if _, ok := names(r)["bad"]; ok || len(r.List()) != 1 {
		t.Errorf("%v", names(r))
	}
	log.wait(t, "whenever")
}

func TestMCPUnderTheFile(t *testing.T) {
	command, err := json.Marshal(npmtest.Everything(t, "stdio"))
	if err != nil {
		t.Fatal(err)
	}
	r, _ := must(t, fmt.Sprintf(`
tools:
  - mcp: {command: %s}
    prefix: every_
    allow: ["echo", "get-*"]
overrides:
  - match: every_echo
    effect: once
    approve: true
`, command), toolfile.Env{}, nil)
	if _, ok := names(r)["every_trigger-long-running-operation"]; ok {
		t.Error("allow lets through what it does not name")
	}
	for _, l := range r.List() {
		if l.Name == "every_echo" && (l.Effect != loop.EffectOnce || !l.Approve || l.Source != "mcp tools.yaml:3") {
			t.Errorf("what the server says of itself won: %+v", l)
		}
	}
	if got := call(t, r, "every_echo", `{"message":"hi"}`); got != `ok "Echo: hi"` {
		t.Error(got)
	}
}

func TestServerThatIsDownIsAWarning(t *testing.T) {
	r, log := must(t, "tools:\n  - builtin: calculate\n  - mcp: {command: [\"false\"]}\n", toolfile.Env{}, nil)
	if len(r.List()) != 1 || !strings.Contains(log.String(), "not there yet") {
		t.Errorf("%v\n%s", names(r), log)
	}
}

// TestAllFourSources uses a tool of each in one registry.
func TestAllFourSources(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	serve(t, nc, "get_price", "read", `12.5`)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"order":%q,"auth":%q}`, r.URL.Path, r.Header.Get("Authorization"))
	}))
	defer web.Close()
	command, err := json.Marshal(npmtest.Everything(t, "stdio"))
	if err != nil {
		t.Fatal(err)
	}
	r, _ := must(t, fmt.Sprintf(`
tools:
  - builtin: calculate
  - nats: "tools.>"
  - mcp: {command: %s}
    prefix: every_
  - http:
      name: get_order
      description: Looks an order up.
      url: "%s/orders/{order_id}"
      headers: {Authorization: "Bearer ${TOKEN}"}
      schema:
        type: object
        properties: {order_id: {type: integer}}
        required: [order_id]
        additionalProperties: false
      example: {order_id: 4417}
`, command, web.URL), toolfile.Env{Conn: nc}, map[string]string{"TOKEN": "canary-0123456789"})
	for _, test := range [][3]string{
		{"calculate", `{"expression":"6*7"}`, "ok 42"},
		{"get_price", `{}`, "ok 12.5"},
		{"every_get-sum", `{"a":1,"b":"2"}`, `ok "The sum of 1 and 2 is 3."`},
		{"get_order", `{"order_id":"4417"}`, `ok {"order":"/orders/4417","auth":"Bearer [hidden: TOKEN]"}`},
	} {
		if got := call(t, r, test[0], test[1]); got != test[2] {
			t.Errorf("%s: got %s, want %s", test[0], got, test[2])
		}
	}
}

// TestSecretsStayInside sends a secret through every way that a value can come back, and looks for it in all that a
// person, a model or a log could see.
func TestSecretsStayInside(t *testing.T) {
	const canary = `canary/"0123"+456&789`
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "you sent %s and %s", r.Header.Get("X-Key"), r.URL.RawQuery)
	})
	mux.HandleFunc("/fail", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "bad key "+r.Header.Get("X-Key"), http.StatusUnauthorized)
	})
	mux.HandleFunc("/break", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.example/?"+r.URL.RawQuery, http.StatusFound)
	})
	web := httptest.NewServer(mux)
	defer web.Close()
	command, err := json.Marshal(npmtest.Everything(t, "stdio"))
	if err != nil {
		t.Fatal(err)
	}
	text := "tools:\n"
	for _, path := range []string{"echo", "fail", "break", "away"} {
		text += fmt.Sprintf("  - http: {name: %s, description: d, url: \"%s/%s\", query: {key: \"${KEY}\"}, headers: {X-Key: \"${KEY}\"}}\n", path, web.URL, path)
	}
	text += "  - http: {name: nobody, description: d, url: \"http://127.0.0.1:1/${KEY2}\", headers: {X-Key: \"${KEY}\"}}\n"
	text += fmt.Sprintf("  - mcp: {command: %s, env: {KEY: \"${KEY}\"}}\n    prefix: every_\n", command)
	text += "  - mcp: {command: [sh, -c, 'echo \"my key is $KEY\" >&2; exit 1'], env: {KEY: \"${KEY}\"}}\n"
	text += fmt.Sprintf("  - mcp: {url: \"%s/fail\", headers: {X-Key: \"${KEY}\"}}\n", web.URL)
	text += "  - builtin: send_email\n    smtp: {host: \"127.0.0.1:1\", from: a@example.org, username: u, password: \"${KEY}\"}\n"
	r, log := must(t, text, toolfile.Env{}, map[string]string{"KEY": canary, "KEY2": "canary2-path"})
	var all strings.Builder
	for _, tool := range []string{"echo", "fail", "break", "away", "nobody", "every_get-env"} {
		fmt.Fprintf(&all, "%s: %s\n", tool, call(t, r, tool, `{}`))
	}
	fmt.Fprintf(&all, "send_email: %s\n", call(t, r, "send_email", `{"to":["b@example.org"],"subject":"s","text":"t"}`))
	specs, _ := r.Offer(nil)
	for _, s := range specs {
		all.WriteString(s.Description + string(s.Schema) + s.Source + "\n")
	}
	log.wait(t, "my key is [hidden: KEY]") // what a child says on its standard error
	seen := all.String() + log.String()
	for _, form := range []string{"canary", "0123"} {
		if at := strings.Index(seen, form); at >= 0 {
			t.Errorf("a secret is seen: …%s…", seen[max(0, at-200):min(len(seen), at+50)])
		}
	}
	if n := strings.Count(all.String(), "[hidden: KEY]"); n < 4 {
		t.Errorf("only %d places were hidden, so the tools did not get the secret:\n%s", n, all.String())
	}
}

func TestCloseEndsChildren(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.yaml")
	command, err := json.Marshal(npmtest.Everything(t, "stdio"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "tools:\n  - mcp: {command: %s}\n", command), 0o600); err != nil {
		t.Fatal(err)
	}
	r, closer, err := toolfile.Load(bustest.Context(t), path, toolfile.Env{Getenv: os.Getenv, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := call(t, r, "echo", `{"message":"hi"}`); !strings.Contains(got, "the worker is stopping") {
		t.Error(got)
	}
}
