package toolfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"ratchet/internal/tools"
	"ratchet/internal/tools/filetool"
	"ratchet/internal/tools/httptool"
	"ratchet/internal/tools/mailtool"
	"ratchet/internal/tools/mcptool"
	"ratchet/internal/tools/natstool"
)

// source brings one entry up: it adds its tools to the loader.
type source func() error

// source reads an entry. The result runs when all entries were read.
func (l *loader) source(e entry) (source, error) {
	kinds := 0
	for _, there := range []bool{e.Builtin != "", e.NATS.text != "", e.MCP != nil, e.HTTP != nil} {
		if there {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, fmt.Errorf("line %d: an entry is one of builtin, nats, mcp and http", e.line)
	}
	if err := e.misplaced(); err != nil {
		return nil, err
	}
	switch {
	case e.NATS.text != "":
		return l.nats(e)
	case e.MCP != nil:
		return l.mcp(e)
	case e.HTTP != nil:
		return l.http(e)
	}
	return l.builtin(e)
}

// misplaced refuses options that an entry of this kind has no use for: whoever wrote them expects something of them.
func (e entry) misplaced() error {
	dynamic := e.NATS.text != "" || e.MCP != nil
	for _, option := range []struct {
		name      string
		there, ok bool
	}{
		{"allow", e.Allow != nil, dynamic || e.HTTP != nil || e.Builtin == "http_get" || e.Builtin == "send_email"},
		{"prefix", e.Prefix != "", dynamic},
		{"dir", e.Dir.text != "", e.Builtin == "read_file" || e.Builtin == "write_file"},
		{"smtp", e.SMTP != nil, e.Builtin == "send_email"},
	} {
		if option.there && !option.ok {
			return fmt.Errorf("line %d: %s means nothing here", e.line, option.name)
		}
	}
	return nil
}

// builtin adds built-in tools. Names and globs choose among those that need no settings; the others are named one by one.
func (l *loader) builtin(e entry) (source, error) {
	allow, dir := l.vars.expandAll(e.Allow), l.vars.expand(e.Dir)
	var conf mailtool.Config
	if e.SMTP != nil {
		conf = mailtool.Config{
			Host: l.vars.expand(e.SMTP.Host), Username: l.vars.expand(e.SMTP.Username), Password: l.vars.expand(e.SMTP.Password),
			From: l.vars.expand(e.SMTP.From), TLS: e.SMTP.TLS, Allow: allow,
		}
	}
	add := func(t tools.Tool, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", e.Builtin, err)
		}
		t.Spec.Source = "builtin, " + l.label(e)
		l.fixed = append(l.fixed, t)
		return nil
	}
	switch e.Builtin {
	case "http_get":
		return func() error {
			if len(allow) == 0 {
				return errors.New(`http_get needs allow, such as ["https://api.open-meteo.com/*"]`)
			}
			list, err := httptool.ParseAllow(allow)
			return add(httptool.Get(l.client(httptool.NewClient(list))), err)
		}, nil
	case "get_weather":
		return func() error {
			t, client, err := httptool.Weather(httptool.WeatherURLs(l.env.Weather))
			if err == nil {
				l.client(client)
			}
			return add(t, err)
		}, nil
	case "send_email":
		return func() error {
			if e.SMTP == nil {
				return errors.New("send_email needs smtp with host and from")
			}
			return add(mailtool.Send(conf))
		}, nil
	case "read_file", "write_file":
		return func() error { return l.files(e, dir, add) }, nil
	}
	return func() error { return l.plain(e) }, nil
}

// client closes a client's idle connections at the end.
func (l *loader) client(c *httptool.Client) *httptool.Client {
	l.closers.add(func() error { c.Close(); return nil })
	return c
}

func (l *loader) files(e entry, dir string, add func(tools.Tool, error) error) error {
	if dir == "" {
		return fmt.Errorf("%s needs dir, the folder it may use", e.Builtin)
	}
	opened, err := filetool.Open(dir)
	if err != nil {
		return err
	}
	l.closers.add(opened.Close)
	if e.Builtin == "read_file" {
		return add(opened.Read(), nil)
	}
	return add(opened.Write(), nil)
}

// plain adds built-in tools that need no settings.
func (l *loader) plain(e entry) error {
	choice := map[string]tools.Tool{}
	for _, t := range l.env.Builtins {
		choice[t.Spec.Name] = t
	}
	for _, t := range l.env.Demo {
		choice["demo/"+t.Spec.Name] = t
	}
	if l.env.Result != nil {
		choice["read_result"] = filetool.Result(l.env.Result)
	}
	found := false
	for _, name := range slices.Sorted(maps.Keys(choice)) {
		matches, err := path.Match(e.Builtin, name)
		if err != nil {
			return fmt.Errorf("builtin %q is no name and no glob", e.Builtin)
		}
		if matches {
			found = true
			t := choice[name]
			t.Spec.Source = "builtin, " + l.label(e)
			if strings.HasPrefix(name, "demo/") {
				t.Spec.Source = "demo, " + l.label(e)
			}
			l.fixed = append(l.fixed, t)
		}
	}
	if !found {
		names := append(slices.Collect(maps.Keys(choice)), "http_get", "get_weather", "read_file", "write_file", "send_email")
		slices.Sort(names)
		return fmt.Errorf("builtin %q is none of %s", e.Builtin, strings.Join(names, ", "))
	}
	return nil
}

// dynamicSource registers a source whose tools come and go.
func (l *loader) dynamicSource(e entry, kind string, allow []string) (*dynamic, error) {
	for _, glob := range allow {
		if _, err := path.Match(glob, ""); err != nil {
			return nil, fmt.Errorf("allow %q is no name and no glob such as get_*", glob)
		}
	}
	d := &dynamic{
		name:  fmt.Sprintf("%s %s", kind, l.label(e)),
		shape: func(list []tools.Tool) []tools.Tool { return l.shape(list, e.Prefix, allow) },
		log:   l.log.With("source", fmt.Sprintf("%s %s", kind, l.label(e))),
	}
	l.dynamic = append(l.dynamic, d)
	return d, nil
}

func (l *loader) nats(e entry) (source, error) {
	subject, allow := l.vars.expand(e.NATS), l.vars.expandAll(e.Allow)
	return func() error {
		if l.env.Conn == nil {
			return errors.New("tools on NATS need a connection")
		}
		d, err := l.dynamicSource(e, "nats", allow)
		if err != nil {
			return err
		}
		s := natstool.Source{Conn: l.env.Conn, Subject: subject, Label: l.label(e), Refresh: l.env.Refresh, Log: l.log}
		ctx, cancel := context.WithCancel(context.Background())
		first := make(chan struct{})
		var once sync.Once
		var watching sync.WaitGroup
		watching.Go(func() {
			s.Watch(ctx, func(list []tools.Tool) {
				d.changed(list)
				once.Do(func() { close(first) })
			})
		})
		l.closers.add(func() error { cancel(); watching.Wait(); return nil })
		l.waits = append(l.waits, func(ctx context.Context) error {
			select {
			case <-first:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("no answer to the question for tools on NATS: %w", context.Cause(ctx))
			}
		})
		return nil
	}, nil
}

func (l *loader) mcp(e entry) (source, error) {
	m := e.MCP
	allow := l.vars.expandAll(e.Allow)
	conf := mcptool.Config{
		Label: l.label(e), Command: l.vars.expandAll(m.Command), Dir: l.vars.expand(m.Dir), URL: l.vars.expand(m.URL),
		Headers: l.vars.expandMap(m.Headers),
	}
	env := l.vars.expandMap(m.Env)
	return func() error {
		d, err := l.dynamicSource(e, "mcp", allow)
		if err != nil {
			return err
		}
		for _, name := range mcptool.BaseEnv {
			if _, given := env[name]; !given && l.env.Getenv(name) != "" {
				env[name] = l.env.Getenv(name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			conf.Env = append(conf.Env, name+"="+env[name])
		}
		conf.Changed, conf.Secrets, conf.Log = d.changed, l.secrets, l.log
		server, err := mcptool.Start(conf)
		if err != nil {
			return err
		}
		l.closers.add(server.Close)
		l.waits = append(l.waits, server.First)
		return nil
	}, nil
}

func (l *loader) http(e entry) (source, error) {
	h := e.HTTP
	allow := l.vars.expandAll(e.Allow)
	made := httptool.Endpoint{
		Name: h.Name, Description: h.Description, Method: h.Method, URL: l.vars.expand(h.URL), Query: l.vars.expandMap(h.Query),
		Headers: l.vars.expandMap(h.Headers), Effect: h.Effect, Source: "http, " + l.label(e),
	}
	var err error
	if made.Schema, err = toJSON(h.Schema, `{"type":"object","properties":{},"additionalProperties":false}`); err != nil {
		return nil, fmt.Errorf("line %d: schema of %s: %w", e.line, h.Name, err)
	}
	if made.Example, err = toJSON(h.Example, ""); err != nil {
		return nil, fmt.Errorf("line %d: example of %s: %w", e.line, h.Name, err)
	}
	return func() error {
		list, err := httptool.ParseAllow(allow)
		if err != nil {
			return err
		}
		made.Allow = list
		t, client, err := httptool.New(made)
		if err != nil {
			return fmt.Errorf("http tool %s: %w", h.Name, err)
		}
		l.client(client)
		l.fixed = append(l.fixed, t)
		return nil
	}, nil
}

// toJSON writes what YAML holds as JSON.
func toJSON(v any, otherwise string) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage(otherwise), nil
	}
	return json.Marshal(v)
}

// await gives all sources time to say what they offer. Those that don't are a warning.
func (l *loader) await(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, l.env.Start)
	defer cancel()
	var waiting sync.WaitGroup
	for _, wait := range l.waits {
		waiting.Go(func() {
			if err := wait(within); err != nil && ctx.Err() == nil {
				l.log.Warn("tools of a source are not there yet; they are offered once it is", "error", err)
			}
		})
	}
	waiting.Wait()
	return context.Cause(ctx)
}
