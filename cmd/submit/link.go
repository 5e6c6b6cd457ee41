package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
)

// connectTimeout bounds how long a person waits to hear that NATS is not there.
const connectTimeout = 4 * time.Second

// dial connects to the workers' NATS and speaks for the tenant. Close the connection.
func (p *program) dial() (*bus.Client, *nats.Conn, error) {
	conn, err := p.connect()
	if err != nil {
		return nil, nil, err
	}
	client, err := bus.NewClient(conn, p.link.Prefix, p.link.Tenant)
	if err != nil {
		conn.Close()
		return nil, nil, usage("%v", err)
	}
	return client, conn, nil
}

// connect connects to the workers' NATS.
func (p *program) connect() (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, connectTimeout)
	defer cancel()
	conn, err := bus.Connect(ctx, bus.ConnectOptions{
		URL: p.link.NATS, Context: p.link.Context, InboxPrefix: p.link.InboxPrefix, Name: "ratchet submit",
		Creds: p.link.Creds, CA: p.link.TLSCA, Cert: p.link.TLSCert, Key: p.link.TLSKey,
	})
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, problem{codeUnreachable, "NATS can't be reached at " + p.link.where() + ".\nStart a worker with its own " +
			"server (worker --embedded), name another server with --nats, or use --local, which needs nothing running."}
	default:
		return nil, problem{codeUnreachable, err.Error()}
	}
}

// where names the server without the password that its URL may hold.
func (l link) where() string {
	if l.Context != "" {
		return "the servers of context " + l.Context
	}
	urls := strings.Split(l.NATS, ",")
	for i, url := range urls {
		if scheme, rest, ok := strings.Cut(url, "://"); ok {
			urls[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
		} else {
			urls[i] = url[strings.LastIndexByte(url, '@')+1:]
		}
	}
	return strings.Join(urls, ",")
}

// explain turns an error of the API into words for a person, with the exit code that fits.
func (p *program) explain(err error) error {
	var api *bus.APIError
	switch {
	case errors.As(err, &api) && api.Code == 404:
		return failed("%s (tenant %s). submit list shows the runs there are.", sentence(api.Message), p.link.Tenant)
	case errors.As(err, &api) && api.Code == 400:
		return usage("%s", sentence(api.Message))
	case errors.As(err, &api):
		return failed("The worker says: %s", sentence(api.Message))
	case errors.Is(err, bus.ErrNoWorker):
		return problem{codeUnreachable, "No worker is running under prefix " + p.link.Prefix + " at " + p.link.where() +
			".\nStart one: worker --nats " + p.link.where() + ". Or use --local, which needs none."}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return problem{codeUnreachable, "No worker answered in time at " + p.link.where() + ". Is one overloaded, or the " +
			"connection gone? What was sent may have been taken: look with submit list before you send it again.\n" + err.Error()}
	default:
		return problem{codeUnreachable, err.Error()}
	}
}

// sentence makes a message begin and end like a sentence.
func sentence(s string) string {
	s = strings.TrimRight(strings.TrimSpace(s), ".")
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// command writes a command line of this program that reaches the same workers, for a person to copy.
func (p *program) command(name string, args ...string) string {
	usual := p.getenv("NATS_URL")
	if usual == "" {
		usual = "nats://127.0.0.1:4222"
	}
	words := []string{"submit", name}
	words = flag(words, "--nats", p.link.NATS, usual)
	words = flag(words, "--context", p.link.Context, p.getenv("NATS_CONTEXT"))
	for _, f := range [][2]string{
		{"--inbox-prefix", p.link.InboxPrefix},
		{"--creds", p.link.Creds},
		{"--tls-ca", p.link.TLSCA},
		{"--tls-cert", p.link.TLSCert},
		{"--tls-key", p.link.TLSKey},
	} {
		words = flag(words, f[0], f[1], "")
	}
	return strings.Join(append(p.speaker(words), args...), " ")
}

// again writes the command line that goes on with a run whose data --local has kept.
func (p *program) again(c *runCommand) string {
	const long = 200 // a goal that is not worth copying: the id alone says which run it is
	goal := c.Goal
	if len(goal) > long {
		goal = "go on"
	}
	words := p.speaker([]string{"submit", "--local", "--data", quote(c.Data), "--id", c.ID})
	return strings.Join(append(words, quote(goal)), " ")
}

// speaker adds the flags that say for whom and under which prefix.
func (p *program) speaker(words []string) []string {
	return flag(flag(words, "--prefix", p.link.Prefix, "agent"), "--tenant", p.link.Tenant, "default")
}

// flag adds a flag to a command line where its value is not the usual one.
func flag(words []string, name, value, usual string) []string {
	if value == usual {
		return words
	}
	return append(words, name, quote(value))
}

// quote puts a word into quotes where a shell needs them.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,+=", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
