package access_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestTheScriptRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  string
		says string
	}{
		{nil, "", "Usage"},
		{[]string{"users"}, "", "Usage"},
		{[]string{"groups", "acme"}, "", "Usage"},
		{[]string{"users", "a.b"}, "", `"a.b" is no tenant`},
		{[]string{"users", "_x"}, "", `"_x" is no tenant`},
		{[]string{"users", "a>"}, "", "is no tenant"},
		{[]string{"users", strings.Repeat("x", 65)}, "", "more than 64"},
		{[]string{"users", "a-b", "a_b"}, "", "one password"},
		{[]string{"accounts", "AGENT"}, "", "the workers' account"},
		{[]string{"users", "-p", "Agent", "acme"}, "", "is no prefix"},
		{[]string{"users", "-t", `x"y`, "acme"}, "", "-t takes a subject"},
		{[]string{"users", "acme"}, "NATS_WORKER_NKEY=SUSECRET", "is no public key of a user"},
	} {
		out, said, err := print(t, []string{c.env}, c.args...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(said, c.says) || out != "" {
			t.Errorf("access.sh %q: %v, prints %q, says %q", c.args, err, out, said)
		}
	}
}

// TestSecrets: a password in the server's environment may be a hash, a user may have an nkey, and what is printed holds no
// secret.
func TestSecrets(t *testing.T) {
	pair, err := nkeys.CreateUser()
	must(t, err)
	public, err := pair.PublicKey()
	must(t, err)
	config, _, err := print(t, []string{"NATS_ACME_BOT_NKEY=" + public, "NATS_EVIL_BOT_PASSWORD=" + password}, users, "acme", "evil")
	must(t, err)
	if strings.Contains(config, password) {
		t.Error("a password was printed")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("clear"), bcrypt.MinCost)
	must(t, err)
	at := serveWith(t, config, map[string]string{"NATS_EVIL_BOT_PASSWORD": string(hash)}, func(*server.Options) {})
	for name, option := range map[string]nats.Option{
		"nkey":   nats.Nkey(public, pair.Sign),
		"bcrypt": nats.UserInfo("evil-bot", "clear"),
	} {
		nc, err := nats.Connect("nats://"+at, option)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		nc.Close()
	}
	if nc, err := nats.Connect("nats://"+at, nats.UserInfo("evil-bot", string(hash))); err == nil {
		nc.Close()
		t.Error("a hash is taken for a password")
	}
}

// TestToolsOnNATS: with -t, services behind tools have a user that answers and says nothing else.
func TestToolsOnNATS(t *testing.T) {
	for _, form := range []string{users, accounts} {
		t.Run(form, func(t *testing.T) {
			r := newRig(t, form, "-t", "tools.>")
			tool := r.as("tools")
			_, err := tool.Subscribe("tools.double", func(msg *nats.Msg) { _ = msg.Respond([]byte("42")) })
			must(t, err)
			must(t, tool.Flush())
			answer, err := r.as("worker").Request("tools.double", nil, patience)
			must(t, err)
			if string(answer.Data) != "42" {
				t.Errorf("the tool answers %s", answer.Data)
			}
			for _, subject := range []string{"agent.task.acme", "_INBOX.worker.x", "tools.double", "$JS.API.INFO"} {
				must(t, tool.Publish(subject, nil))
				must(t, tool.Flush())
				tool.said.wait(t, "Publish to \""+subject)
			}
		})
	}
}

// TestAnotherPrefix: two deployments on one server do not share users' rights.
func TestAnotherPrefix(t *testing.T) {
	config, _, err := print(t, nil, users, "-p", "my-agents", "acme")
	must(t, err)
	at := serve(t, config, func(*server.Options) {})
	r := &rig{t, users, at}
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: r.url("worker"), InboxPrefix: inbox("worker")})
	must(t, err)
	t.Cleanup(nc.Close)
	b := bustest.Open(t, nc, bus.Options{Prefix: "my-agents"})
	_, err = b.Append(bustest.Context(t), loop.Event{RunID: loop.RunID{Tenant: "acme", Run: "r"}, N: 1, Data: loop.Note{}}, 0)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience/10)
	defer cancel()
	if _, err := bus.Open(ctx, nc, bus.Options{}); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("under another prefix: %v", err)
	}
}
