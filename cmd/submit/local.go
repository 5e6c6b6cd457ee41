package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/llm"
	"ratchet/internal/node"
)

// localGrace is how long a step in hand may go on when the program ends.
const localGrace = 2 * time.Second

// local is a server and a worker inside this process.
type local struct {
	node    *node.Node
	dir     string
	stop    context.CancelFunc
	stopped chan struct{}
	err     error // why the worker stopped; read after stopped is closed
	cleanup []func()
}

// startLocal starts a server and a worker on a free port of loopback. Close it. Should the worker stop by itself, the
// program's context ends.
func (p *program) startLocal(starting context.Context, c *runCommand) (_ *local, err error) {
	model := llm.Config{BaseURL: p.getenv("OPENAI_BASE_URL"), APIKey: p.getenv("OPENAI_API_KEY"), Model: c.Model}
	if model.Model == "" {
		model.Model = p.getenv("RATCHET_MODEL")
	}
	demo, err := p.wantsDemo(c, model)
	if err != nil {
		return nil, err
	}
	l := &local{dir: c.Data, stopped: make(chan struct{})}
	defer func() {
		if err != nil {
			l.clean()
		}
	}()
	log, err := l.prepare()
	if err != nil {
		return nil, err
	}
	sync := "always"
	if c.Data == "" {
		sync = "2m" // nobody will read it again
	}
	l.node, err = node.Start(starting, node.Options{
		Embedded: &bus.EmbeddedOptions{Dir: l.dir, Port: -1, Sync: sync, Log: log}, Prefix: p.link.Prefix,
		Demo: demo, Model: model, Files: l.dir, Grace: localGrace, Log: log,
	})
	switch {
	case starting.Err() != nil:
		if err == nil {
			l.node.Close()
		}
		err = problem{codeInterrupted, "Interrupted before the task was handed in."}
		return nil, err
	case err != nil:
		err = failed("--local can't start: %v.", err)
		return nil, err
	}
	work, stop := context.WithCancel(p.ctx)
	following, over := context.WithCancel(p.ctx)
	p.ctx, l.stop = following, stop
	go func() {
		defer close(l.stopped)
		defer over()
		l.err = l.node.Run(work)
	}()
	return l, nil
}

// wantsDemo decides whether the built-in model is asked, and says so.
func (p *program) wantsDemo(c *runCommand, model llm.Config) (bool, error) {
	const demo = "demo"
	none := model.BaseURL == "" && model.APIKey == ""
	switch {
	case c.Model == demo, c.Model == "" && none:
	case none:
		return false, usage("--model %s needs an endpoint: set OPENAI_API_KEY, or OPENAI_BASE_URL to another one than OpenAI's. "+
			"--model demo needs none.", c.Model)
	default:
		return false, nil
	}
	why := "as asked for"
	if c.Model == "" {
		why = "OPENAI_API_KEY and OPENAI_BASE_URL are not set"
	}
	p.say("Using the built-in demo model (" + why + "): it knows only a few examples, and its tools hold sample data.")
	return true, nil
}

// prepare makes the directory. What is kept also gets the worker's log.
func (l *local) prepare() (*slog.Logger, error) {
	if l.dir == "" {
		dir, err := os.MkdirTemp("", "submit-")
		if err != nil {
			return nil, failed("--local needs a temporary directory: %v. Or keep the data with --data DIR.", err)
		}
		l.dir = dir
		l.cleanup = append(l.cleanup, func() { _ = os.RemoveAll(dir) }) // what can't be removed is the system's to clear
		return slog.New(slog.DiscardHandler), nil
	}
	if err := os.MkdirAll(l.dir, 0o750); err != nil {
		return nil, failed("--data: %v.", err)
	}
	file, err := os.OpenFile(filepath.Join(l.dir, "worker.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, failed("--data: %v.", err)
	}
	l.cleanup = append(l.cleanup, func() { _ = file.Close() })
	return slog.New(slog.NewTextHandler(io.Writer(file), nil)), nil
}

// close ends the worker, which hands over what it has in hand, and the server.
func (l *local) close() error {
	l.stop()
	<-l.stopped
	l.node.Close()
	l.clean()
	if l.err != nil && !errors.Is(l.err, context.Canceled) {
		return failed("The worker inside this process stopped: %v.", l.err)
	}
	return nil
}

func (l *local) clean() {
	for i := len(l.cleanup) - 1; i >= 0; i-- {
		l.cleanup[i]()
	}
}
