// Package web is the console: pages on which a person watches runs, answers their questions and steers them, in a browser
// that may be a stranger's. It is an adapter to HTTP. It keeps no state of runs that is not in the journal: a list of runs
// in memory (index.go), fed by one feed of events per process (feed.go) however many tabs are open, and nothing else.
//
// Pages are made by html/template on the server, work without JavaScript, and are kept up to date by server-sent events
// that carry pieces of the same pages. What runs contain is hostile: every value is escaped, and the pages allow no script
// but ours.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// Config says what the console shows and who may see it.
type Config struct {
	Store   Store
	Actions Actions
	Dead    DeadLetters
	System  Operations

	Worker string        // name of the worker that serves it
	Keep   time.Duration // how long finished runs are kept; 168h
	Recent *LogTail      // what was logged lately; nil: nothing is shown

	Access Access
	Log    *slog.Logger
	Now    func() time.Time // time.Now
}

// Access says who may use the console. The zero value is for an address on loopback: whoever reaches it may.
type Access struct {
	Address        string // where it listens, as given to the listener
	Token          string // whoever knows it may; empty: nobody needs one
	IdentityHeader string // in which a trusted proxy says who it is; empty: there is no proxy
}

// Check refuses an address that others than this machine can reach where nobody has to say who they are.
func (a Access) Check() error {
	if a.Token != "" || a.IdentityHeader != "" || loopback(a.Address) {
		return nil
	}
	return fmt.Errorf("the console would be open to everybody who reaches %s: give --http-token (or RATCHET_HTTP_TOKEN), or "+
		"--http-identity-header with a proxy in front, or --no-console for the health pages alone, or a loopback address", a.Address)
}

// loopback reports whether an address to listen on can be reached from this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Server is the console. It is safe for concurrent use.
type Server struct {
	Config
	feed    *feed
	pages   pages
	logins  *rate.Limiter
	streams chan struct{} // one element for each open stream of events
	handler http.Handler
}

// New returns a console. It reads the stored states in the background until Close.
func New(c Config) (*Server, error) {
	if err := c.Access.Check(); err != nil {
		return nil, err
	}
	if c.Store == nil || c.Actions == nil || c.Dead == nil || c.System == nil {
		return nil, errors.New("the console needs a store, actions, dead letters and operations")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Keep = cmp.Or(c.Keep, 168*time.Hour)
	s := &Server{
		Config: c, feed: newFeed(c.Store, c.Keep, c.Now, c.Log),
		logins: rate.NewLimiter(rate.Every(time.Second), 10), streams: make(chan struct{}, maxStreams),
	}
	var err error
	if s.pages, err = parsePages(); err != nil {
		return nil, err
	}
	s.handler = s.guard(s.routes())
	s.feed.warm()
	return s, nil
}

// Close ends the feed and all streams of events.
func (s *Server) Close() { s.feed.close() }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /static/", s.assets())
	mux.HandleFunc("GET /login", s.loginPage)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /{$}", s.runsPage)
	mux.HandleFunc("GET /runs/{tenant}/{run}", s.runPage)
	mux.HandleFunc("GET /runs/{tenant}/{run}/events/{n}", s.eventJSON)
	mux.HandleFunc("POST /runs/{tenant}/{run}/control", s.control)
	mux.HandleFunc("POST /runs/{tenant}/{run}/reply", s.reply)
	mux.HandleFunc("GET /inbox", s.inboxPage)
	mux.HandleFunc("GET /new", s.newPage)
	mux.HandleFunc("POST /new", s.submit)
	mux.HandleFunc("GET /dead", s.deadPage)
	mux.HandleFunc("GET /dead/{seq}", s.deadLetterPage)
	mux.HandleFunc("POST /dead/{seq}/{op}", s.deadAction)
	mux.HandleFunc("GET /system", s.systemPage)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, http.StatusNotFound, "There is no such page", "The address may be mistyped, or belong to another version.")
	})
	return mux
}

// bounded is how long a page may wait for the store.
func bounded(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), 10*time.Second)
}
