// Package node assembles one working process: a server or a connection to one, the streams, a model, tools, the engine
// and the API. The worker program is a node and little more; submit --local runs one beside itself.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"ratchet/internal/bus"
	"ratchet/internal/demo"
	"ratchet/internal/llm"
	"ratchet/internal/loop"
	"ratchet/internal/memory"
	"ratchet/internal/telemetry"
	"ratchet/internal/tools"
	demotools "ratchet/internal/tools/demo"
	"ratchet/internal/tools/toolfile"
	"ratchet/internal/web"
)

// Options say what a node is made of.
type Options struct {
	Name     string               // of the worker; host name and a random part
	Embedded *bus.EmbeddedOptions // run a server in this process; nil: connect to one
	Connect  bus.ConnectOptions   // where to, without Embedded
	Prefix   string               // agent
	Replicas int                  // 1

	Concurrency int           // runs driven at once; 64
	MaxWaiting  int           // wake-ups that a tenant may have before its tasks are refused; 0: no limit
	MaxRunning  int           // those of one tenant; 0: no limit of their own
	Lease       time.Duration // 10s
	Grace       time.Duration // 20s
	Keep        time.Duration // 168h

	Model  llm.Config
	Window int // tokens that a prompt may have; 24000
	// SummaryModel sums up turns that a prompt has no room for; empty: their calls are listed. It sums up sessions too, see
	// MemoryOptions; empty: the worker's own model does.
	SummaryModel string
	Stream       bool   // publish the model's replies piece by piece, as they come
	Demo         bool   // use the built-in offline model, and offer the sample tools
	Files        string // directory that sample tools write to; "data"
	Memory       MemoryOptions
	Tools        string              // tools file; empty: the built-ins, and with Demo the sample tools
	Getenv       func(string) string // for ${NAME} in the tools file; nil: nothing is set

	HTTP      string     // address of the console, /healthz, /readyz and /metrics; empty: none
	NoConsole bool       // the health pages alone
	Access    web.Access // who may use the console; its address is HTTP

	Exporter     sdktrace.SpanExporter // of traces; nil: none are made
	TraceContent bool                  // traces hold what was said to the model and to tools, and what they answered

	Log *slog.Logger
}

// Node is one working process. Start makes it, Run works, Close ends it.
type Node struct {
	opts     Options
	log      *slog.Logger
	embedded *bus.Embedded
	conn     *nats.Conn
	bus      *bus.Bus
	worker   *loop.Worker
	memory   *memory.Guarded
	service  *bus.Service
	recent   *web.LogTail // what the console shows of the log; nil without one
	http     string       // address that is listened on
	closers  []func()

	endpoint  endpoint
	telemetry *telemetry.Telemetry // nil where nobody asks for it
	stage     stage
}

// Start brings everything up and returns when tasks can be taken. It takes none before Run.
func Start(ctx context.Context, opts Options) (n *Node, err error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Name = cmp.Or(opts.Name, workerName())
	var recent *web.LogTail
	if opts.HTTP != "" && !opts.NoConsole {
		recent = web.NewLogTail(opts.Log.Handler())
		opts.Log = slog.New(recent)
	}
	n = &Node{opts: opts, log: opts.Log.With("worker", opts.Name), recent: recent}
	defer func() {
		if err != nil {
			n.Close()
			n = nil
		}
	}()
	for _, start := range []func(context.Context) error{n.startTelemetry, n.startBus, n.startWorker, n.startAPI, n.startHTTP} {
		if err := start(ctx); err != nil {
			return n, err
		}
	}
	return n, nil
}

// workerName tells processes apart, also those of one host that follow each other.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return host + "-" + uuid.NewString()[:8]
}

func (n *Node) later(f func()) { n.closers = append(n.closers, f) }

func (n *Node) startBus(ctx context.Context) (err error) {
	connect := n.opts.Connect
	connect.Name = cmp.Or(connect.Name, "ratchet worker "+n.opts.Name)
	connect.Log = n.log
	if n.opts.Embedded != nil {
		if n.embedded, err = bus.StartEmbedded(*n.opts.Embedded); err != nil {
			return err
		}
		n.later(n.embedded.Shutdown)
		connect.Server = n.embedded
	}
	if n.conn, err = bus.Connect(ctx, connect); err != nil {
		return err
	}
	n.later(n.conn.Close)
	n.bus, err = bus.Open(ctx, n.conn, bus.Options{
		Prefix: n.opts.Prefix, Replicas: n.opts.Replicas, Lease: n.opts.Lease, Log: n.log,
	})
	if err != nil {
		return err
	}
	n.later(n.bus.Close)
	return nil
}

func (n *Node) startWorker(ctx context.Context) error {
	model, err := n.model(ctx)
	if err != nil {
		return err
	}
	if err := n.startMemory(ctx); err != nil {
		return err
	}
	registry, closer, err := LoadTools(ctx, n.opts, n.conn, n.bus.GetBlob, n.memory, n.log)
	if err != nil {
		return err
	}
	n.later(func() { _ = closer.Close() }) // child processes are ended; their last words do not matter
	var stream func(loop.RunID, int, string)
	if n.opts.Stream {
		stream = n.bus.StreamTokens
	}
	conf := loop.Config{
		Name: n.opts.Name, Prefix: n.bus.Prefix(),
		Journal: n.bus, Heads: n.bus, Wakes: n.bus, Sessions: n.bus, Blobs: n.bus, Graveyard: n.bus, Outcomes: n.bus, Orders: n.bus,
		Inbox: source{n.bus.Inbox(), n.bus, n.log}, WakeQueue: source{n.bus.Wakes(), n.bus, n.log},
		Model: model, Tools: registry, Catalogues: n.bus, Memory: memory.Runs{Store: n.memory}, Learn: !n.opts.Memory.Off,
		Summaries:   n.opts.Memory.Summaries,
		Concurrency: n.opts.Concurrency, MaxRunning: n.opts.MaxRunning, MaxWaiting: n.opts.MaxWaiting, Lease: n.opts.Lease, Grace: n.opts.Grace, Keep: n.opts.Keep, Log: n.log,
		Stream: stream, Window: n.opts.Window, SummaryModel: n.opts.SummaryModel,
	}
	if n.telemetry != nil {
		conf = n.telemetry.Watch(conf)
	}
	if n.worker, err = loop.NewWorker(conf); err != nil {
		return err
	}
	if err := n.report(); err != nil {
		return err
	}
	stop, err := n.bus.Hear(n.worker.Hear)
	if err != nil {
		return err
	}
	n.later(stop)
	stop, err = n.bus.HearClaims(n.worker.HearClaim)
	if err != nil {
		return err
	}
	n.later(stop)
	return nil
}

func (n *Node) model(ctx context.Context) (loop.Model, error) {
	conf := n.opts.Model
	if n.opts.Demo {
		url, err := n.serve(ctx, "127.0.0.1:0", demo.Handler())
		if err != nil {
			return nil, fmt.Errorf("start the demo model: %w", err)
		}
		conf.BaseURL, conf.APIKey, conf.Model, conf.Fallback = "http://"+url+"/v1", "", demo.Model, nil
	}
	pace, err := n.bus.Pace(ctx)
	if err != nil {
		return nil, err
	}
	n.later(pace.Close)
	conf.Log, conf.Pace, conf.Ended = n.log, pace, n.endpoint.heard
	return llm.New(conf)
}

// LoadTools makes the registry that a node with these options has. conn may be nil where the file names no tools on NATS,
// results where none are stored, facts where there is no memory.
func LoadTools(
	ctx context.Context, opts Options, conn *nats.Conn, results func(context.Context, string) ([]byte, error),
	facts memory.Store, log *slog.Logger,
) (*tools.Registry, io.Closer, error) {
	return toolfile.Load(ctx, opts.Tools, toolfile.Env{
		Conn: conn, Getenv: opts.Getenv, Builtins: append(tools.Builtins(time.Now), memoryTools(facts)...), WithDemo: opts.Demo, Result: results, Log: log,
		Demo: demotools.Tools(demotools.Options{Outbox: filepath.Join(cmp.Or(opts.Files, "data"), "outbox")}),
	})
}

// serve answers HTTP requests until Close, and returns the address it listens on.
func (n *Node) serve(ctx context.Context, address string, handler http.Handler) (string, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("an HTTP listener ended", "address", address, "error", err)
		}
	})
	n.later(func() {
		_ = server.Close() // what is still open is cut off: the process ends
		served.Wait()
	})
	return listener.Addr().String(), nil
}

func (n *Node) startHTTP(ctx context.Context) error {
	if n.opts.HTTP == "" {
		return nil
	}
	mux, paths := n.health(), "/healthz /readyz /metrics"
	if !n.opts.NoConsole {
		console, err := n.console()
		if err != nil {
			return err
		}
		mux.Handle("/", console)
		paths = "/ (the console) " + paths
	}
	address, err := n.serve(ctx, n.opts.HTTP, mux)
	if err != nil {
		return fmt.Errorf("listen on %s (--http; empty turns it off): %w", n.opts.HTTP, err)
	}
	n.http = "http://" + address
	n.log.Info("serving HTTP", "address", n.http, "paths", paths)
	return nil
}

// HTTP is where the console and the health pages are; empty where there are none.
func (n *Node) HTTP() string { return n.http }

// Conn is the node's connection, for others in the same process.
func (n *Node) Conn() *nats.Conn { return n.conn }

// URL is where the node's server listens: the embedded one's, or the one it is connected to.
func (n *Node) URL() string {
	if n.embedded != nil {
		return n.embedded.URL()
	}
	return n.conn.ConnectedUrlRedacted()
}

// Bus is the node's adapter to NATS.
func (n *Node) Bus() *bus.Bus { return n.bus }

// Run takes work until ctx ends, then hands over what is in hand. It returns when the engine has stopped, or with an
// error when the connection is closed for good.
func (n *Node) Run(ctx context.Context) error {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.stage.set(working)
	defer context.AfterFunc(work, func() { n.stage.set(stopping) })()
	n.conn.SetClosedHandler(func(*nats.Conn) {
		cancel(errors.New("the connection to NATS is closed for good; restart the worker"))
	})
	if err := n.worker.Run(work); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return context.Cause(work)
	}
	return nil
}

// Close ends everything that Start began, in reverse order.
func (n *Node) Close() {
	if n.service != nil {
		n.service.Stop()
	}
	if n.conn != nil {
		n.conn.SetClosedHandler(nil)
	}
	for i := len(n.closers) - 1; i >= 0; i-- {
		n.closers[i]()
	}
	n.closers = nil
}
