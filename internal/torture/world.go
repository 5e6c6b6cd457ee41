package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/freeport"
)

// tenant is the one all runs belong to.
const tenant = "default"

// world is all that is tortured, and the torturer's own way to the server, which is never harmed.
type world struct {
	opts   Options
	ledger *Ledger
	port   int    // of the server, the same for ever
	url    string // of the model and the tools
	tools  string // the workers' tools file
	http   *http.Server
	model  *scriptedModel
	nc     *nats.Conn
	js     jetstream.JetStream
	client *bus.Client // of the API
	seats  []*seat

	mu      sync.Mutex
	server  *process
	closing bool
	deaths  []string
	starts  int            // of workers that had failed to start
	over    chan struct{}  // closed when closing is set
	wg      sync.WaitGroup // supervisors that wait
}

func startWorld(ctx context.Context, opts Options, ledger *Ledger) (w *world, err error) {
	w = &world{opts: opts, ledger: ledger, over: make(chan struct{}), tools: filepath.Join(opts.Data, "tools.yaml")}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := os.MkdirAll(filepath.Join(opts.Data, "logs"), 0o750); err != nil {
		return w, err
	}
	if err := os.WriteFile(w.tools, []byte(toolsFile()), 0o600); err != nil {
		return w, err
	}
	if err := w.serve(); err != nil {
		return w, err
	}
	ports, err := freeport.Take(1)
	if err != nil {
		return w, err
	}
	w.port = ports[0]
	if err := w.startServer(); err != nil {
		return w, err
	}
	if err := w.connect(ctx); err != nil {
		return w, err
	}
	for i := range opts.Workers {
		p, err := newProxy(net.JoinHostPort("127.0.0.1", strconv.Itoa(w.port)))
		if err != nil {
			return w, err
		}
		s := &seat{world: w, index: i + 1, proxy: p}
		w.seats = append(w.seats, s)
		if err := s.spawn(); err != nil {
			return w, err
		}
	}
	return w, w.awaitStreams(ctx)
}

// serve starts the model and the tools.
func (w *world) serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.url = "http://" + l.Addr().String()
	w.model = &scriptedModel{ledger: w.ledger, refused: map[string]int{}}
	handler := routes(w.model, &counter{ledger: w.ledger, seed: w.opts.Seed})
	w.http = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = w.http.Serve(l) }() // ends with close
	return nil
}

func (w *world) connect(ctx context.Context) (err error) {
	w.nc, err = nats.Connect("nats://127.0.0.1:"+strconv.Itoa(w.port), nats.Name("torturer"), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	if w.js, err = jetstream.New(w.nc); err != nil {
		return err
	}
	w.client, err = bus.NewClient(w.nc, "", tenant)
	return err
}

// awaitStreams waits until the workers have set everything up.
func (w *world) awaitStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, 50*time.Millisecond, "the workers to set up the streams", func() bool {
		_, err := w.js.Consumer(ctx, streamWake, "wakes")
		return err == nil
	})
}

// poll calls done until it reports true or ctx ends.
func poll(ctx context.Context, every time.Duration, what string, done func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

func (w *world) startServer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return errors.New("it is all over")
	}
	p, err := startProcess(w.opts, serverName, []string{
		"server", "-dir", filepath.Join(w.opts.Data, "nats"), "-port", strconv.Itoa(w.port),
	}, func(p *process) { w.died(p, "ended by itself") })
	w.server = p
	return err
}

func (w *world) killServer() {
	w.mu.Lock()
	p := w.server
	w.mu.Unlock()
	p.kill()
}

// died notes that a process is gone that nobody harmed.
func (w *world) died(p *process, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.deaths = append(w.deaths, fmt.Sprintf("%s %s: %v", p.name, how, p.err))
	}
}

// heal makes sure that everything runs; whatever was still harmed has been mended by then.
func (w *world) heal(ctx context.Context) error {
	w.model.well.Store(true)
	for _, s := range w.seats {
		s.proxy.heal()
		if err := s.spawn(); err != nil {
			return err
		}
	}
	w.mu.Lock()
	gone := !w.server.alive()
	w.mu.Unlock()
	if gone {
		if err := w.startServer(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, 20*time.Millisecond, "the server", w.nc.IsConnected)
}

// close ends all processes and connections.
func (w *world) close() {
	w.mu.Lock()
	w.closing = true
	close(w.over)
	server := w.server
	w.mu.Unlock()
	for _, s := range w.seats {
		if p := s.now(); p != nil {
			p.kill()
		}
		s.proxy.close()
	}
	w.wg.Wait()
	if w.nc != nil {
		w.nc.Close()
	}
	if server != nil {
		server.terminate(10 * time.Second)
	}
	if w.http != nil {
		_ = w.http.Close() // what is still open belongs to workers that are gone
	}
}
