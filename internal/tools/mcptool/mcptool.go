// Package mcptool offers the tools of MCP servers: of a child process that speaks over its standard input and output, or
// of one that is reached over streamable HTTP. It keeps the connection up: a child that crashed is started again, and the
// tools are listed anew whenever they change.
package mcptool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ratchet/internal/tools"
)

// Config says how to reach a server: Command or URL.
type Config struct {
	Label   string   // names the server in Spec.Source, errors and logs
	Command []string // program and arguments
	Env     []string // NAME=value; the child has these and nothing else of the worker's environment but [BaseEnv]
	Dir     string   // working directory of the child; the worker's

	URL     string            // streamable HTTP endpoint
	Headers map[string]string // sent with every request to the URL's own host

	Changed func([]tools.Tool) // gets all tools when they were listed
	Connect time.Duration      // for one try to start, connect and list; 30 s
	Wait    time.Duration      // how long a call waits for a server that is not there at the moment; 5 s
	Secrets *tools.Secrets     // hidden in what the child writes to its standard error, which is logged
	Log     *slog.Logger       // slog.Default()
}

// BaseEnv names the variables that a child gets from the worker: what programs need to run at all, and no secrets.
var BaseEnv = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "TEMP"}

// Server is a connection that is kept up until Close.
type Server struct {
	conf   Config
	stop   context.CancelFunc
	ended  chan struct{}
	first  chan struct{} // closed when the first try is over
	relist chan struct{}
	broken chan struct{} // a call found the connection broken

	mu      sync.Mutex
	session *mcp.ClientSession // nil: there is none at the moment
	change  chan struct{}      // closed when session or err changes
	err     error              // why there is none
}

// Pauses between tries to connect.
const (
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
	// settled is how long a connection must have lasted for the next pause to be the shortest again.
	settled = 10 * time.Second
)

// Start begins to connect and returns at once. It fails where no try could ever succeed: there is no such program.
func Start(conf Config) (*Server, error) {
	conf.Connect = cmp.Or(conf.Connect, 30*time.Second)
	conf.Wait = cmp.Or(conf.Wait, 5*time.Second)
	conf.Log = cmp.Or(conf.Log, slog.Default()).With("mcp", conf.Label)
	if (len(conf.Command) == 0) == (conf.URL == "") {
		return nil, fmt.Errorf("MCP server %s: give a command or a url", conf.Label)
	}
	if len(conf.Command) > 0 {
		if _, err := exec.LookPath(conf.Command[0]); err != nil {
			return nil, fmt.Errorf("MCP server %s: %w", conf.Label, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		conf: conf, stop: cancel, ended: make(chan struct{}), first: make(chan struct{}),
		relist: make(chan struct{}, 1), broken: make(chan struct{}, 1), change: make(chan struct{}),
	}
	go s.run(ctx)
	return s, nil
}

// First waits for the end of the first try and returns why it failed, if it did. The server goes on trying.
func (s *Server) First(ctx context.Context) error {
	select {
	case <-s.first:
	case <-ctx.Done():
		return fmt.Errorf("MCP server %s is not ready: %w", s.conf.Label, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the connection and the child.
func (s *Server) Close() error {
	s.stop()
	<-s.ended
	return nil
}

// run connects, serves until the connection ends, and connects again.
func (s *Server) run(ctx context.Context) {
	defer close(s.ended)
	pause := minPause
	for tries := 0; ctx.Err() == nil; tries++ {
		began := time.Now()
		err := s.live(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > settled {
			pause = minPause
		}
		s.conf.Log.Warn("no connection to an MCP server; trying again", "error", err, "after", pause)
		s.set(nil, err)
		if tries == 0 {
			s.begun()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
	}
	s.set(nil, errors.New("the worker is stopping"))
	s.begun()
}

// begun says that the first try is over; only run and live, which it calls, use it.
func (s *Server) begun() {
	select {
	case <-s.first:
	default:
		close(s.first)
	}
}

// live is one connection from beginning to end. It returns why it ended.
func (s *Server) live(ctx context.Context) error {
	session, end, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		s.set(nil, errors.New("it is being started again"))
		end()
	}()
	select {
	case <-s.broken: // that was the one before
	default:
	}
	if err := s.list(ctx, session); err != nil {
		return err
	}
	s.set(session, nil)
	s.begun()
	gone := make(chan error, 1)
	go func() { gone <- session.Wait() }()
	for {
		select {
		case <-s.relist:
			if err := s.list(ctx, session); err != nil {
				return err
			}
		case <-s.broken:
			return errors.New("the connection broke")
		case err := <-gone:
			if err == nil {
				err = errors.New("the server closed the connection")
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect starts the child or opens the connection. end takes it down and waits for it.
func (s *Server) connect(ctx context.Context) (_ *mcp.ClientSession, end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Connect)
	defer cancel()
	opts := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case s.relist <- struct{}{}:
			default: // the list will be read anyway
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			s.conf.Log.Debug("progress of a call", "call", r.Params.ProgressToken, "progress", r.Params.Progress,
				"total", r.Params.Total, "message", r.Params.Message)
		},
	}
	var transport mcp.Transport
	var after func()
	if len(s.conf.Command) > 0 {
		child := s.child()
		transport = &mcp.CommandTransport{Command: child, TerminateDuration: 2 * time.Second}
		after = func() { killGroup(child) }
	} else {
		// A server that vanishes without a word is found out by pings; a child's end is seen by itself.
		opts.KeepAlive, opts.KeepAliveFailureThreshold = 20*time.Second, 3
		client := s.client()
		transport = &mcp.StreamableClientTransport{Endpoint: s.conf.URL, HTTPClient: client, MaxRetries: 3}
		after = client.CloseIdleConnections
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "ratchet", Version: "1"}, opts)
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		after()
		return nil, nil, fmt.Errorf("connect to MCP server %s: %w", s.conf.Label, err)
	}
	return session, func() {
		// What Close returns is how a process ended that is done with.
		if err := session.Close(); err != nil {
			s.conf.Log.Debug("closing the connection to an MCP server", "error", err)
		}
		after()
	}, nil
}

// list reads all tools and passes them on.
func (s *Server) list(ctx context.Context, session *mcp.ClientSession) error {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Connect)
	defer cancel()
	var list []tools.Tool
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("list the tools of MCP server %s: %w", s.conf.Label, err)
		}
		made, err := s.tool(t)
		if err != nil {
			s.conf.Log.Warn("a tool of an MCP server can't be offered", "tool", t.Name, "error", err)
			continue
		}
		list = append(list, made)
	}
	if s.conf.Changed != nil {
		s.conf.Changed(list)
	}
	return nil
}

func (s *Server) set(session *mcp.ClientSession, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session, s.err = session, err
	close(s.change)
	s.change = make(chan struct{})
}

// current returns the session, and waits a little for one where there is none.
func (s *Server) current(ctx context.Context) (*mcp.ClientSession, error) {
	patience := time.NewTimer(s.conf.Wait)
	defer patience.Stop()
	for {
		s.mu.Lock()
		session, change, err := s.session, s.change, s.err
		s.mu.Unlock()
		if session != nil {
			return session, nil
		}
		select {
		case <-change:
		case <-patience.C:
			return nil, &tools.Fault{Err: fmt.Errorf("MCP server %s is not there, so nothing was done: %w", s.conf.Label, cmp.Or(err, errors.New("it has not answered yet"))), Final: true}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// client returns an HTTP client that sends the headers to the server's own host and follows no redirect to another.
func (s *Server) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &http.Client{
		Transport: headers{transport, s.conf.Headers},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme || len(via) > 5 {
				return fmt.Errorf("it redirects to %s://%s, which is not followed", r.URL.Scheme, r.URL.Host)
			}
			return nil
		},
	}
}

type headers struct {
	*http.Transport
	values map[string]string
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.values {
		r.Header.Set(name, value)
	}
	return h.Transport.RoundTrip(r)
}
