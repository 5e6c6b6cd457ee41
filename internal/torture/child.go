package torture

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/llm"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Child is what a child process does: server or worker, as the first argument says. It returns when the process is asked
// to end or the torturer is gone, which closes input.
func Child(ctx context.Context, args []string, input io.Reader, log io.Writer) error {
	if len(args) == 0 {
		return errors.New("torture child: server or worker?")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		_, _ = io.Copy(io.Discard, input) // it ends when the torturer does
		end(errors.New("the torturer is gone"))
	}()
	logger := slog.New(slog.NewTextHandler(log, nil))
	switch args[0] {
	case "server":
		return serverChild(ctx, args[1:], logger)
	case "worker":
		return workerChild(ctx, args[1:], logger)
	default:
		return fmt.Errorf("torture child: %q is neither server nor worker", args[0])
	}
}

func serverChild(ctx context.Context, args []string, log *slog.Logger) error {
	f := flag.NewFlagSet("server", flag.ContinueOnError)
	dir := f.String("dir", "", "store")
	port := f.Int("port", 0, "port on 127.0.0.1")
	if err := f.Parse(args); err != nil {
		return err
	}
	s, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: *dir, Port: *port, Sync: "always", Log: log})
	if err != nil {
		return err
	}
	log.Info("serving", "url", s.URL())
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// workerChild is a worker like any other, except that its tools are the counting ones.
func workerChild(ctx context.Context, args []string, log *slog.Logger) error {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	name := f.String("name", "", "name of the worker")
	natsURL := f.String("nats", "", "where NATS is")
	url := f.String("url", "", "where the model and the tools are")
	lease := f.Duration("lease", 0, "lease of a run")
	if err := f.Parse(args); err != nil {
		return err
	}
	log = log.With("worker", *name)
	nc, err := bus.Connect(ctx, bus.ConnectOptions{URL: *natsURL, Name: *name, Log: log})
	if err != nil {
		return err
	}
	defer nc.Close()
	b, err := openBus(ctx, func() (*bus.Bus, error) { return bus.Open(ctx, nc, bus.Options{Lease: *lease, Log: log}) })
	if err != nil {
		return err
	}
	defer b.Close()
	model, err := llm.New(llm.Config{BaseURL: *url + "/v1", Model: "scripted", Log: log})
	if err != nil {
		return err
	}
	registry, err := tools.New(tools.Config{Tools: countingTools(*url), Logger: log})
	if err != nil {
		return err
	}
	w, err := loop.NewWorker(loop.Config{
		Name: *name, Journal: b, Heads: b, Wakes: b, Sessions: b, Blobs: b, Graveyard: b, Outcomes: b, Orders: b,
		Inbox: b.Inbox(), WakeQueue: b.Wakes(), Model: model, Tools: registry, Lease: *lease, Grace: grace, Log: log,
	})
	if err != nil {
		return err
	}
	unclaim, err := b.HearClaims(w.HearClaim)
	if err != nil {
		return err
	}
	defer unclaim()
	unhear, err := b.Hear(w.Hear)
	if err != nil {
		return err
	}
	defer unhear()
	log.Info("taking tasks")
	return w.Run(ctx)
}

// openBus repeats what fails while the server is being harmed: a supervisor would start the worker again.
func openBus(ctx context.Context, open func() (*bus.Bus, error)) (*bus.Bus, error) {
	for {
		b, err := open()
		if err == nil {
			return b, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}
