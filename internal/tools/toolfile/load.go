package toolfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/tools"
	"ratchet/internal/tools/filetool"
)

// Env is what tools get from the worker.
type Env struct {
	Conn     *nats.Conn          // for tools on NATS; nil: a file that names some is an error
	Getenv   func(string) string // of ${NAME} in the file; nil: nothing is set
	Builtins []tools.Tool        // by name; what every worker has, see [tools.Builtins]
	Demo     []tools.Tool        // sample tools, demo/NAME in the file
	WithDemo bool                // without a file, offer the sample tools too

	// Result returns a stored result by its name, tenant/run/call, for read_result; nil: there is no such tool.
	Result func(ctx context.Context, name string) ([]byte, error)

	Weather WeatherEnv // where get_weather asks; zero: Open-Meteo

	Start   time.Duration // how long Load waits for MCP servers; those that are not ready by then come later. 30 s
	Refresh time.Duration // between two looks for tools on NATS; 5 s
	Log     *slog.Logger  // slog.Default()
}

// WeatherEnv says where the services behind get_weather are.
type WeatherEnv struct{ Places, Weather string }

// loader gathers tools from the entries of a file.
type loader struct {
	env  Env
	path string
	file file
	vars environment
	log  *slog.Logger

	secrets *tools.Secrets
	fixed   []tools.Tool
	dynamic []*dynamic
	waits   []func(context.Context) error // each until one source has said what it offers
	closers closers
}

// dynamic is a source whose tools come and go. Until the registry is there it keeps what it last heard.
type dynamic struct {
	name  string // group in the registry
	shape func([]tools.Tool) []tools.Tool
	log   *slog.Logger

	mu       sync.Mutex
	registry *tools.Registry
	latest   []tools.Tool
}

// changed takes a source's tools.
func (d *dynamic) changed(list []tools.Tool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = d.shape(list)
	if d.registry != nil {
		_ = d.offer() // it was logged, and nobody waits for it
	}
}

func (d *dynamic) offer() error {
	err := d.registry.Replace(d.name, d.latest)
	if err != nil {
		d.log.Error("tools that can't be offered were left out", "error", err)
	}
	return err
}

// attach offers what the source has and lets it change the registry from now on. The error is a clash of names.
func (d *dynamic) attach(r *tools.Registry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registry = r
	if err := d.offer(); errors.Is(err, tools.ErrClash) {
		return err
	}
	return nil
}

// Load reads the file and returns a registry of what it offers. Sources that come and go change the registry until the
// closer is closed, which also ends child processes. Without a path the registry has the built-in tools, read_result
// where there are stored results, and the sample tools where [Env.WithDemo] says so.
//
// It fails on anything that waiting could not mend: a mistake in the file (with its line), a variable that is not set, two
// sources with a tool of the same name, a program that does not exist. A service or server that is down is a warning in
// the log: its tools are offered once it is there.
func Load(ctx context.Context, path string, env Env) (_ *tools.Registry, _ io.Closer, err error) {
	env.Log = cmp.Or(env.Log, slog.Default())
	env.Start = cmp.Or(env.Start, 30*time.Second)
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	l := &loader{env: env, path: path, vars: environment{getenv: env.Getenv, used: map[string]string{}}}
	defer func() {
		if err != nil {
			_ = l.closers.Close() // the first error counts
		}
	}()
	if path == "" {
		l.secrets, l.log = tools.NewSecrets(nil), env.Log
		l.fixed = slices.Clone(env.Builtins)
		if env.Result != nil {
			l.fixed = append(l.fixed, filetool.Result(env.Result))
		}
		if env.WithDemo {
			l.fixed = append(l.fixed, env.Demo...)
		}
	} else if err := l.gather(ctx); err != nil {
		return nil, nil, err
	}
	r, err := l.registry()
	if err != nil {
		return nil, nil, err
	}
	return r, &l.closers, nil
}

// gather reads the file and brings up all sources in it.
func (l *loader) gather(ctx context.Context) (err error) {
	if l.file, err = read(l.path); err != nil {
		return err
	}
	var problems []error
	for _, o := range l.file.Overrides {
		problems = append(problems, o.check())
	}
	// Every value is read before anything starts, so that all of them are hidden from the first log line on.
	sources := make([]source, len(l.file.Tools))
	for i, e := range l.file.Tools {
		made, err := l.source(e)
		if err = errors.Join(l.vars.err(), err); err != nil {
			problems = append(problems, err)
		}
		sources[i] = made
	}
	l.secrets = tools.NewSecrets(l.vars.used)
	l.log = l.secrets.Logger(l.env.Log)
	if err := errors.Join(problems...); err != nil {
		return l.wrong(err)
	}
	for i, start := range sources {
		if err := start(); err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", l.file.Tools[i].line, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return l.wrong(err)
	}
	return l.await(ctx)
}

// wrong names the file in an error and hides values in it.
func (l *loader) wrong(err error) error {
	return fmt.Errorf("tools file %s: %s", l.path, l.secrets.Hide(err.Error()))
}

func (l *loader) registry() (*tools.Registry, error) {
	all := slices.Clone(l.fixed)
	for i := range all {
		all[i] = l.overridden(all[i])
	}
	r, err := tools.New(tools.Config{
		Tools: all, Timeout: time.Duration(l.file.Defaults.Timeout), MaxResult: int(l.file.Defaults.MaxResult),
		Secrets: l.secrets, Logger: l.log, Open: len(l.dynamic) > 0,
	})
	if err != nil {
		return nil, l.wrong(err)
	}
	var clashes []error
	for _, d := range l.dynamic {
		clashes = append(clashes, d.attach(r))
	}
	if err := errors.Join(clashes...); err != nil {
		return nil, l.wrong(err)
	}
	for _, o := range l.file.Overrides {
		if specs, _ := r.Offer([]string{o.Match}); len(specs) == 0 {
			l.log.Warn("an override matches no tool at the moment", "file", l.path, "line", o.line, "match", o.Match)
		}
	}
	return r, nil
}

// label says where in the file an entry stands.
func (l *loader) label(e entry) string { return fmt.Sprintf("%s:%d", filepath.Base(l.path), e.line) }

// closers closes in reverse order.
type closers struct {
	mu   sync.Mutex
	list []func() error
}

func (c *closers) add(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, f)
}

// Close ends all sources and waits for them.
func (c *closers) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var problems []error
	for _, f := range slices.Backward(c.list) {
		problems = append(problems, f())
	}
	c.list = nil
	return errors.Join(problems...)
}
