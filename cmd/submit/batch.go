package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"ratchet/internal/batch"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

const (
	// maxConcurrency is far more than workers drive at once.
	maxConcurrency = 10_000
	// plainEvery is how often progress is told where nothing can be rewritten.
	plainEvery = 5 * time.Second
)

// Run runs the tasks of a file.
func (c *batchCommand) Run(p *program) (err error) {
	switch {
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return usage("--concurrency %d is not valid: use 1 to %d.", c.Concurrency, maxConcurrency)
	case c.Data != "" && !c.Local:
		return usage("--data belongs to --local.")
	case c.Model != "" && !c.Local:
		return usage("--model belongs to --local. A task says by itself which model it wants.")
	}
	input, total, err := c.open(p)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }() // it was only read
	v := newBatchView(p, c)
	sink, closing, err := c.sink(p, v)
	if err != nil {
		return err
	}
	defer func() {
		if closed := closing(); closed != nil && err == nil {
			err = failed("%s", sentence(closed.Error()))
		}
	}()
	starting, stop := signal.NotifyContext(p.ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	client, done, err := (&runCommand{Local: c.Local, Data: c.Data, Model: c.Model}).reach(starting, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(done(), err) }() // the first one is told
	ctx, release := p.untilSignal()
	defer release()
	stop()
	v.open()
	out, err := batch.Run(ctx, batch.Options{
		Workers: client, Input: input, Name: filepath.Base(c.File), Total: total, User: p.link.User, Concurrency: c.Concurrency,
		Sink: sink, Say: v.tell, Show: v.show, ShowEvery: v.every(),
	})
	v.close()
	return c.ended(ctx, p, out, err)
}

// open opens the file, and counts its lines where it can be read twice.
func (c *batchCommand) open(p *program) (io.ReadCloser, int, error) {
	if c.File == "-" {
		return io.NopCloser(p.stdin), 0, nil
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, 0, usage("The tasks can't be read: %v.", err)
	}
	info, err := f.Stat()
	switch {
	case err == nil && info.IsDir():
		err = errors.New("it is a directory")
	case err == nil && !info.Mode().IsRegular():
		return f, 0, nil
	}
	total := 0
	if err == nil {
		total, err = batch.Count(f)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close() // the other error is told
		return nil, 0, usage("The tasks in %s can't be read: %v.", c.File, err)
	}
	return f, total, nil
}

// sink is where the results go. closing ends it.
func (c *batchCommand) sink(p *program, v *batchView) (_ batch.Sink, closing func() error, err error) {
	inOrder := c.Order == "input"
	if c.Out == "" {
		return batch.NewStream(v.results(), inOrder, func(text []byte) []byte { return []byte(p.json(text)) }), func() error { return nil }, nil
	}
	out, err := os.Stat(c.Out)
	if err == nil && out.IsDir() {
		return nil, nil, usage("--out %s is a directory: name a file.", c.Out)
	}
	if in, inErr := os.Stat(c.File); err == nil && inErr == nil && os.SameFile(in, out) {
		return nil, nil, usage("--out %s is the file of the tasks: name another one.", c.Out)
	}
	if err == nil && !out.Mode().IsRegular() { // a pipe or a device
		f, err := os.OpenFile(c.Out, os.O_WRONLY, 0)
		if err != nil {
			return nil, nil, usage("--out: %v.", err)
		}
		return batch.NewStream(f, inOrder, nil), f.Close, nil
	}
	file, err := batch.OpenFile(c.Out, inOrder)
	switch {
	case errors.Is(err, batch.ErrNoResults):
		return nil, nil, usage("--out %s holds something else than results of a batch, and was left alone: name another file.", c.Out)
	case err != nil:
		return nil, nil, usage("--out: %v.", err)
	}
	return file, file.Close, nil
}

// signalled is the cause of a context that a signal has ended.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return "ended by the signal " + s.Signal.String() }

// untilSignal is a context that the next signal which ends programs ends, with the signal as its cause.
func (p *program) untilSignal() (_ context.Context, release func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(p.ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			cancel(signalled{number})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-gone
	}
}

// ended says what came of the batch, and makes it the exit code.
func (c *batchCommand) ended(ctx context.Context, p *program, out batch.Outcome, err error) error {
	if !c.Quiet && !out.Began.IsZero() {
		p.say(batchSummary(out, p.stderr)...)
	}
	var by signalled
	switch {
	case errors.As(context.Cause(ctx), &by):
		return problem{128 + int(by.Signal), c.left(p, out)}
	case errors.Is(err, batch.ErrInput):
		return failed("%s", sentence(err.Error()))
	case errors.Is(err, batch.ErrResults):
		return failed("%s Runs that were handed in go on. Once that is mended, the same command goes on.", sentence(err.Error()))
	case err != nil:
		return p.explain(err)
	case len(out.Asking) > 0:
		return problem{codeWaiting, c.waiting(p, out)}
	case out.Over() == 0:
		p.say("There is no task in " + terminal.Clean(c.File) + ".")
	case out.Over() > out.Ended[batch.Done]:
		return failed("%s of %s lines have no answer; the results say why.",
			terminal.Thousands(out.Over()-out.Ended[batch.Done]), terminal.Thousands(out.Over()))
	}
	return nil
}

// left says what becomes of runs that were handed in.
func (c *batchCommand) left(p *program, out batch.Outcome) string {
	what, goOn, stay := "1 run that was handed in", "goes on", "stays in "
	if n := out.Working + out.Waiting; n != 1 {
		what, goOn, stay = terminal.Thousands(n)+" runs that were handed in", "go on", "stay in "
	}
	going := "Left the batch; " + what + " " + goOn + "."
	switch {
	case c.Local && c.Data == "":
		return "Left the batch; of the runs in hand nothing was kept."
	case c.Local:
		going = "Left the batch; " + what + " " + stay + c.Data + "."
	}
	if c.File == "-" {
		return going + " The same lines from standard input again are the same runs."
	}
	return going + " Go on with it:\n  " + c.again(p)
}

// again is the command line that goes on with the batch.
func (c *batchCommand) again(p *program) string {
	var args []string
	if c.Local {
		args = append(flag([]string{"--local"}, "--data", c.Data, ""), flag(nil, "--model", c.Model, "")...)
	}
	args = append(flag(args, "--out", c.Out, ""), flag(nil, "--order", c.Order, "input")...)
	args = flag(args, "--concurrency", fmt.Sprint(c.Concurrency), "32")
	args = flag(args, "--user", p.link.User, "")
	return p.command("batch", append(args, quote(c.File))...)
}

// asked is how many questions are told with the ways to answer them.
const asked = 10

// waiting says which runs wait for a person, and how to answer.
func (c *batchCommand) waiting(p *program, out batch.Outcome) string {
	text := fmt.Sprintf("%s runs wait for an answer.", terminal.Thousands(len(out.Asking)))
	if len(out.Asking) == 1 {
		text = "A run waits for an answer."
	}
	if c.Local && c.Data == "" {
		return text + " Nothing of it is kept: give --data DIR to keep the data, or leave --local out."
	}
	for i, r := range out.Asking {
		if i == asked {
			text += fmt.Sprintf("\n… and %d more:\n  %s", len(out.Asking)-asked, p.command("list", "--status", "waiting"))
			break
		}
		for _, q := range r.Questions {
			text += fmt.Sprintf("\nLine %d: %s", r.Line, terminal.Clean(q.Text))
			text += "\n  " + c.way(p, r, q)
		}
	}
	return text + "\nThen collect what comes of it:\n  " + c.again(p)
}

// way is the command that answers a question. Where the server is inside this process, that goes on with the run.
func (c *batchCommand) way(p *program, r batch.Result, q batch.Question) string {
	switch {
	case c.Local:
		return p.again(&runCommand{Data: c.Data, ID: r.Run, Goal: "go on"})
	case q.Kind == loop.KindApproval:
		return p.command("approve", q.Run)
	default:
		return p.command("reply", q.Run, `"TEXT"`)
	}
}
