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

	"ratchet/internal/bus"
	"ratchet/internal/llm"
	"ratchet/internal/node"
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

// workerChild is the worker program: a node with a tools file, the API and memory, whose model and tools are the torturer's.
func workerChild(ctx context.Context, args []string, log *slog.Logger) error {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	name := f.String("name", "", "name of the worker")
	natsURL := f.String("nats", "", "where NATS is")
	url := f.String("url", "", "where the model and the tools are")
	tools := f.String("tools", "", "tools file")
	lease := f.Duration("lease", 0, "lease of a run")
	if err := f.Parse(args); err != nil {
		return err
	}
	n, err := node.Start(ctx, node.Options{
		Name: *name, Connect: bus.ConnectOptions{URL: *natsURL}, Lease: *lease, Grace: grace,
		Model: llm.Config{BaseURL: *url + "/v1", Model: "scripted"},
		Tools: *tools, Getenv: func(string) string { return *url }, HTTP: "127.0.0.1:0", Log: log,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to end while it was starting
	case err != nil:
		return fmt.Errorf("%w: %w", errCantStart, err)
	}
	defer n.Close()
	log.Info("taking tasks", "worker", *name)
	return n.Run(ctx)
}

// errCantStart is the end of a worker that found no server to start with. A supervisor starts it again, as one does
// everywhere.
var errCantStart = errors.New("can't start")

// statusCantStart is the exit status for it: EX_TEMPFAIL of sysexits.h, try again later.
const statusCantStart = 75

// ExitStatus is the exit status of a child that ended with this error of [Child].
func ExitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errCantStart):
		return statusCantStart
	default:
		return 1
	}
}
