package bus

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTimeout bounds the start of the embedded server, the recovery of its streams included.
const startTimeout = time.Minute

// EmbeddedOptions configure the nats-server inside the process.
type EmbeddedOptions struct {
	Dir  string       // where it keeps its data; created if it is missing
	Host string       // to listen on; 127.0.0.1
	Port int          // to listen on; 4222, and -1 for a free one
	Sync string       // "always", or an interval such as 2m; always
	Log  *slog.Logger // for what the server has to say; default: nowhere
}

// Embedded is a nats-server with JetStream inside this process. It has no authentication and is meant for loopback.
type Embedded struct {
	server *server.Server
	unlock func()
	once   sync.Once
}

// StartEmbedded starts a server and returns when it takes connections. Messages may have 1 MiB, the default of
// nats-server. JetStream may use what the disk has.
func StartEmbedded(opts EmbeddedOptions) (*Embedded, error) {
	config, err := opts.config()
	if err != nil {
		return nil, fmt.Errorf("start embedded server: %w", err)
	}
	if err := os.MkdirAll(opts.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("start embedded server: %w", err)
	}
	unlock, err := lockFile(filepath.Join(opts.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("start embedded server: %w; another process uses the data in %s: stop it, or choose another "+
			"directory with --data", err, opts.Dir)
	}
	s, err := server.NewServer(config)
	if err != nil {
		unlock()
		return nil, fmt.Errorf("start embedded server: %w", err)
	}
	log := &serverLog{log: opts.Log}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	ready := false
	for deadline := time.Now().Add(startTimeout); !ready && log.fatal() == "" && time.Now().Before(deadline); {
		ready = s.ReadyForConnections(time.Second)
	}
	if reason := log.fatal(); !ready || reason != "" {
		reason = cmp.Or(reason, "it was not ready within "+startTimeout.String())
		s.Shutdown()
		s.WaitForShutdown()
		unlock()
		return nil, fmt.Errorf("start embedded server on %s:%d: %s", config.Host, config.Port, reason)
	}
	return &Embedded{server: s, unlock: unlock}, nil
}

func (o EmbeddedOptions) config() (*server.Options, error) {
	config := &server.Options{
		ServerName: "ratchet",
		Host:       cmp.Or(o.Host, "127.0.0.1"),
		Port:       cmp.Or(o.Port, server.DEFAULT_PORT),
		JetStream:  true,
		StoreDir:   o.Dir,
		NoSigs:     true,
	}
	if sync := cmp.Or(o.Sync, "always"); sync == "always" {
		config.SyncAlways = true
	} else {
		every, err := time.ParseDuration(sync)
		if err != nil || every <= 0 {
			return nil, fmt.Errorf("sync %q is not valid: use always, or an interval such as 2m", sync)
		}
		config.SyncInterval = every
	}
	if o.Dir == "" {
		return nil, fmt.Errorf("no directory for its data: name one with --data")
	}
	return config, nil
}

// URL is where clients connect.
func (e *Embedded) URL() string { return e.server.ClientURL() }

// Shutdown stops the server and waits until its data are on disk. It may be called more than once.
func (e *Embedded) Shutdown() {
	e.once.Do(func() {
		e.server.Shutdown()
		e.server.WaitForShutdown()
		e.unlock()
	})
}

// serverLog passes on what the server has to say and remembers why it could not start: where it would end the process,
// it calls Fatalf and goes on.
type serverLog struct {
	log   *slog.Logger
	mu    sync.Mutex
	cause string
}

func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

func (l *serverLog) print(level func(string, ...any), format string, v []any) {
	if l.log != nil {
		level(strings.TrimSpace(fmt.Sprintf(format, v...)), "from", "nats-server")
	}
}

func (l *serverLog) Noticef(format string, v ...any) { l.print(l.log.Debug, format, v) }
func (l *serverLog) Warnf(format string, v ...any)   { l.print(l.log.Warn, format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.print(l.log.Error, format, v) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.print(l.log.Error, format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cause = cmp.Or(l.cause, fmt.Sprintf(format, v...))
}
