// Package access_test holds no program: it has a nats-server read what the script beside it prints, runs a worker as the
// worker's user, and looks what each user can do and can't.
package access_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/node"
)

func TestMain(m *testing.M) { bustest.Main(m) }

// Goals as the demo model knows them.
const (
	sum = "What is 17 plus 25?"         // a few steps to an answer
	buy = "Buy a few Microsoft shares." // asks how many, and then at what price
)

const (
	users    = "users"
	accounts = "accounts"
	password = "pw-of-the-user" // of everybody
)

// print runs the script.
func print(t *testing.T, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"access.sh"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &said
	err = cmd.Run()
	return out.String(), said.String(), err
}

// rig is a server with the users of a form for the tenants acme and evil. Two users are the test's own addition: the
// referee may do everything in the workers' account, and where tenants have accounts, root may do everything in evil's.
type rig struct {
	t    *testing.T
	form string
	at   string // host and port
}

func newRig(t *testing.T, form string, args ...string) *rig {
	t.Helper()
	config, said, err := print(t, nil, append(append([]string{form}, args...), "acme", "evil")...)
	must(t, err)
	if said != "" {
		t.Errorf("the script says: %s", said)
	}
	return &rig{t, form, serve(t, config, func(o *server.Options) {
		referee := &server.User{Username: "referee", Password: password}
		for _, a := range o.Accounts {
			if a.Name == "AGENT" {
				referee.Account = a
			}
		}
		o.Users = append(o.Users, referee)
		for _, a := range o.Accounts {
			if a.Name == "evil" {
				o.Users = append(o.Users, &server.User{Username: "root", Password: password, Account: a})
			}
		}
	})}
}

// serve starts a server with a configuration that includes the one given, and returns its host and port.
func serve(t *testing.T, config string, change func(*server.Options)) string {
	t.Helper()
	return serveWith(t, config, nil, change)
}

// serveWith is serve with more in the environment.
func serveWith(t *testing.T, config string, env map[string]string, change func(*server.Options)) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"WORKER", "OPERATOR", "READER", "TOOLS", "ACME_SUBMIT", "ACME_BOT", "EVIL_SUBMIT", "EVIL_BOT"} {
		t.Setenv("NATS_"+name+"_PASSWORD", password)
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	must(t, os.WriteFile(filepath.Join(dir, "access.conf"), []byte(config), 0o600))
	main := fmt.Sprintf("listen: \"127.0.0.1:-1\"\njetstream {store_dir: %q}\ninclude access.conf\n", dir)
	must(t, os.WriteFile(filepath.Join(dir, "nats.conf"), []byte(main), 0o600))
	opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	must(t, err)
	opts.NoLog, opts.NoSigs = true, true
	change(opts)
	s, err := server.NewServer(opts)
	must(t, err)
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s.Addr().String()
}

// patience bounds every wait: long, so that a slow machine fails no test.
const patience = 20 * time.Second

// inbox is the prefix of reply subjects of a user.
func inbox(user string) string {
	if tenant, role, found := strings.Cut(user, "-"); found {
		return "_INBOX.tenant." + tenant + "." + role
	}
	return "_INBOX." + user
}

func (r *rig) url(user string) string { return "nats://" + user + ":" + password + "@" + r.at }

// conn is a connection of a user, and what the server said of its own accord.
type conn struct {
	*nats.Conn
	t    *testing.T
	user string
	said *journal
}

// as connects as a user, with a plain client.
func (r *rig) as(user string, more ...nats.Option) *conn {
	r.t.Helper()
	c := &conn{t: r.t, user: user, said: newJournal()}
	nc, err := nats.Connect(r.url(user), append(more, nats.CustomInboxPrefix(inbox(user)), nats.ErrorHandler(
		func(_ *nats.Conn, _ *nats.Subscription, err error) { c.said.add(err.Error()) }))...)
	must(r.t, err)
	c.Conn = nc
	r.t.Cleanup(nc.Close)
	return c
}

// referee is a connection that may do everything where the workers are.
func (r *rig) referee() (*nats.Conn, jetstream.JetStream) {
	r.t.Helper()
	nc, err := nats.Connect(r.url("referee"))
	must(r.t, err)
	r.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(r.t, err)
	return nc, js
}

// overhear has the referee call heard with all that is published where the workers are. It leaves the worker's own reply
// subjects alone: a listener there would have the server believe that pulls are waited for that the worker has given up.
func (r *rig) overhear(heard func(*nats.Msg)) *nats.Conn {
	r.t.Helper()
	nc, _ := r.referee()
	for _, subject := range []string{"agent.>", "$JS.API.>", "$JS.ACK.>", "$KV.>", "$O.>", "$SRV.>", "_INBOX.tenant.>", "_INBOX.worker.x"} {
		_, err := nc.Subscribe(subject, heard)
		must(r.t, err)
	}
	must(r.t, nc.Flush())
	return nc
}

// client speaks to the API as a user.
func (r *rig) client(user, tenant string) *bus.Client {
	r.t.Helper()
	client, err := bus.NewClient(r.as(user).Conn, "", tenant)
	must(r.t, err)
	return client
}

// work runs a worker as the worker's user until the end of the test, which fails where a permission was missing.
func (r *rig) work(change func(*node.Options)) *node.Node {
	r.t.Helper()
	log := newJournal()
	opts := node.Options{
		Connect: bus.ConnectOptions{URL: r.url("worker"), InboxPrefix: "_INBOX.worker"}, Name: "w1",
		Demo: true, Files: r.t.TempDir(), Grace: time.Second, Stream: true, HTTP: "127.0.0.1:0",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&opts)
	}
	starting, cancel := context.WithTimeout(bustest.Context(r.t), patience)
	defer cancel()
	n, err := node.Start(starting, opts)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, log)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- n.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			r.t.Error(err)
		}
		n.Close()
		if lines := log.with("ermission"); len(lines) > 0 {
			r.t.Errorf("the worker lacks permissions:\n%s", strings.Join(lines, "\n"))
		}
		if r.t.Failed() {
			r.t.Logf("the worker's log:\n%s", strings.Join(log.with("level=WARN", "level=ERROR"), "\n"))
		}
	})
	return n
}

// journal collects lines and lets a test wait for one.
type journal struct {
	mu    sync.Mutex
	lines []string
	grown chan struct{}
}

func newJournal() *journal { return &journal{grown: make(chan struct{})} }

func (j *journal) Write(p []byte) (int, error) {
	j.add(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	close(j.grown)
	j.grown = make(chan struct{})
}

func (j *journal) String() string { return strings.Join(j.with(""), "\n") }

// with returns the lines that hold one of these texts.
func (j *journal) with(texts ...string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		for _, text := range texts {
			if strings.Contains(line, text) {
				found = append(found, line)
				break
			}
		}
	}
	return found
}

// wait returns when there is a line with the text.
func (j *journal) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		j.mu.Lock()
		grown := j.grown
		j.mu.Unlock()
		if len(j.with(text)) > 0 {
			return
		}
		select {
		case <-grown:
		case <-timeout:
			t.Fatalf("no %q in %s, but\n%s", text, patience, j)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
