package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

const (
	dialTimeout = 2 * time.Second
	// Between attempts to connect for the first time: from, doubled up to.
	retryFrom = 100 * time.Millisecond
	retryTo   = 2 * time.Second
)

// ConnectOptions say how to reach NATS.
type ConnectOptions struct {
	URL         string       // one or several, comma separated; nats://127.0.0.1:4222
	Context     string       // of the nats command line tool; where it is set, the context's URL is used
	Creds       string       // file with a user's JWT and key; none
	CA          string       // file with the certificates to trust; the system's
	Cert, Key   string       // files of a client certificate; none
	InboxPrefix string       // of reply subjects; _INBOX
	Name        string       // of the connection, as operators see it; ratchet
	Server      *Embedded    // connect to this one inside the process; URL and Context are then ignored
	Log         *slog.Logger // default: nowhere
}

// ErrDenied says that the server is there and does not let us in.
var ErrDenied = errors.New("the server refused the credentials")

// Connect connects to NATS and keeps reconnecting for ever once it did. The first attempt is repeated until ctx ends,
// unless the server refuses the credentials ([ErrDenied]) or an option can't be used. Nothing is buffered while the
// connection is down: what the caller gave up must not be sent later.
func Connect(ctx context.Context, opts ConnectOptions) (*nats.Conn, error) {
	opts.URL = cmp.Or(opts.URL, nats.DefaultURL)
	opts.Name = cmp.Or(opts.Name, "ratchet")
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	where := opts.where()
	for wait := retryFrom; ; wait = min(2*wait, retryTo) {
		nc, err := opts.dial()
		if err == nil {
			return nc, nil
		}
		if !worthRetrying(err) {
			return nil, fmt.Errorf("connect to NATS at %s: %w", where, err)
		}
		if wait == retryFrom {
			opts.Log.Warn("NATS can't be reached yet; trying again", "server", where, "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to NATS at %s: %w (%w); is nats-server running there with JetStream (-js)? "+
				"Start one, name another with --nats, or use --embedded", where, err, context.Cause(ctx))
		}
	}
}

func (o ConnectOptions) where() string {
	switch {
	case o.Server != nil:
		return "the embedded server"
	case o.Context != "":
		return "context " + o.Context
	default:
		return redact(o.URL)
	}
}

// redact removes user names and passwords from server URLs.
func redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, url := range list {
		scheme, rest, found := strings.Cut(url, "://")
		if !found {
			scheme, rest = "nats", url
		}
		list[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(list, ",")
}

// worthRetrying tells a server that is not there yet from what will not get better by itself.
func worthRetrying(err error) bool {
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrConnectionClosed) ||
		strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "no such host") ||
		strings.Contains(err.Error(), "i/o timeout") || strings.Contains(err.Error(), "EOF") ||
		strings.Contains(err.Error(), "connection reset")
}

func (o ConnectOptions) dial() (*nats.Conn, error) {
	options := o.options()
	var nc *nats.Conn
	var err error
	switch {
	case o.Server != nil:
		nc, err = nats.Connect("", append(options, nats.InProcessServer(o.Server.server))...)
	case o.Context != "":
		var settings natscontext.Settings
		nc, settings, err = natscontext.Connect(o.Context, options...)
		if err == nil && (settings.JSDomain != "" || settings.JSAPIPrefix != "") {
			nc.Close()
			return nil, fmt.Errorf("context %s names a JetStream domain or API prefix, which is not supported; connect to "+
				"the servers of that domain directly", o.Context)
		}
	default:
		nc, err = nats.Connect(o.URL, options...)
	}
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
		return nil, fmt.Errorf("%w (%w); give a user that may connect: --context, --creds, or user:password in the URL",
			ErrDenied, err)
	}
	return nc, err
}

func (o ConnectOptions) options() []nats.Option {
	log := o.Log
	var said repeats
	options := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.IgnoreAuthErrorAbort(), // credentials may be put right while the worker runs
		nats.ReconnectBufSize(-1),
		nats.SyncQueueLen(2 * scanBatch), // made anew for each request of more than one answer; 64 Ki by default
		nats.PingInterval(20 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection to NATS lost; reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connected to NATS again", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if !said.lately(err) {
				logAsync(log, sub, err)
			}
		}),
	}
	if o.Creds != "" {
		options = append(options, nats.UserCredentials(o.Creds))
	}
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if o.Cert != "" || o.Key != "" {
		options = append(options, nats.ClientCert(o.Cert, o.Key))
	}
	if o.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	return options
}

// repeatEvery is how often the same trouble with a connection is logged.
const repeatEvery = 10 * time.Second

// repeats knows what was logged lately: every attempt of every run meets the same missing permission.
type repeats struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// lately reports whether such an error was logged a moment ago, and notes that it is now if not. Subjects of the same
// kind are the same trouble.
func (r *repeats) lately(err error) bool {
	kind := err.Error()
	if before, subject, named := strings.Cut(kind, `"`); named {
		kind = before + area(strings.TrimSuffix(subject, `"`))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last[kind]) < repeatEvery {
		return true
	}
	if r.last == nil || len(r.last) > 100 {
		r.last = map[string]time.Time{}
	}
	r.last[kind] = time.Now()
	return false
}

// logAsync logs what the server or client says outside of any call.
func logAsync(log *slog.Logger, sub *nats.Subscription, err error) {
	args := []any{"error", err}
	if sub != nil {
		args = append(args, "subject", sub.Subject)
	}
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		log.Error("NATS permission denied; grant this subject to the user we connect with", args...)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		log.Error("NATS refused the credentials; trying again", args...)
	default:
		log.Warn("NATS reported an error", args...)
	}
}
