package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"ratchet/internal/bus"
	"ratchet/internal/completion"
	"ratchet/internal/garbage"
	"ratchet/internal/llm"
	"ratchet/internal/node"
	"ratchet/internal/telemetry"
	"ratchet/internal/web"
)

// leastWindow is the smallest --window with which a run can get anywhere.
const leastWindow = 2000

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// cli is what the program can be told to do.
type cli struct {
	Work    flags        `cmd:"" default:"withargs" help:"Take tasks and drive runs (the word work may be left out)."`
	Tools   toolsFlags   `cmd:"" help:"List, check and try the tools that a worker would offer."`
	Ready   readyFlags   `cmd:"" help:"Ask a worker that runs whether it can take work; for health checks."`
	Torture tortureFlags `cmd:"" help:"Watch it survive: run thousands of runs while processes and connections are broken."`

	Completion completionFlags `cmd:"" help:"Print the script by which bash, zsh or fish completes this program's words."`

	Child childFlags `cmd:"" name:"torture-child" hidden:"" passthrough:""`
}

// flags are the worker's; kong fills them from arguments and environment.
type flags struct {
	NATS        string `name:"nats" env:"NATS_URL" default:"nats://127.0.0.1:4222" help:"URL of the NATS server, or several, comma separated."`
	Context     string `env:"NATS_CONTEXT" placeholder:"NAME" help:"Context of the nats command line tool to connect with."`
	InboxPrefix string `placeholder:"SUBJECT" help:"Prefix of reply subjects, where the user's permissions want one."`
	Creds       string `placeholder:"FILE" help:"Credentials file of the NATS user." type:"existingfile"`
	TLSCA       string `name:"tls-ca" placeholder:"FILE" help:"Certificates to trust." type:"existingfile"`
	TLSCert     string `name:"tls-cert" placeholder:"FILE" help:"Client certificate." type:"existingfile"`
	TLSKey      string `name:"tls-key" placeholder:"FILE" help:"Key of the client certificate." type:"existingfile"`

	Embedded bool   `help:"Run nats-server with JetStream in this process, instead of connecting to one."`
	Listen   string `default:"127.0.0.1:4222" help:"Address that the embedded server listens on."`
	Data     string `env:"RATCHET_DATA" default:"data" placeholder:"DIR" help:"Directory of the embedded server's store and of what sample tools write (data)."`
	Sync     string `default:"always" help:"When the embedded server syncs to disk: always, or an interval such as 2m, which can lose acknowledged messages in a power failure."`

	Prefix   string `default:"agent" help:"Prefix of all subjects, streams and buckets."`
	Replicas int    `default:"0" help:"Replicas of streams and buckets: 1, 3 or 5. 0 leaves existing ones as they are and makes new ones with 1."`

	Concurrency int           `default:"64" help:"Runs driven at once."`
	MaxRunning  int           `default:"0" help:"Runs of one tenant that this worker drives at once; those that wait for a person or a time are not counted. 0: no limit of their own."`
	MaxWaiting  int           `default:"0" help:"Runs of a tenant that may wait for a worker or be in hand before further tasks of it are refused. 0: no limit."`
	Lease       time.Duration `default:"10s" help:"How long a run stays with a worker that gives no sign of life."`
	Grace       time.Duration `default:"20s" help:"Time that steps in hand get after SIGTERM before the runs are handed over."`
	Keep        time.Duration `default:"168h" help:"How long a finished run is kept."`

	Model         string   `env:"RATCHET_MODEL" default:"gpt-4o-mini" help:"Model for tasks that name none; demo is the built-in offline model, with sample tools."`
	FallbackModel []string `placeholder:"MODEL" help:"Models to try in this order when a model fails for good."`
	NoLLMHeaders  bool     `name:"no-llm-headers" help:"Do not send the headers X-Ratchet-Run, X-Ratchet-Purpose and traceparent to the model."`

	Window       int    `default:"24000" help:"Tokens that a prompt may have before the oldest of it is compacted."`
	SummaryModel string `help:"Model that sums up what a prompt has no room for; none: a list of the calls stands for it. It sums up sessions too (--summarize-sessions); none: --model does." placeholder:"MODEL"`

	Stream bool `help:"Publish the model's replies piece by piece, as they come."`

	RequestsPerMinute int      `placeholder:"N" help:"This worker's share of the account's requests a minute; 0: no limit."`
	TokensPerMinute   int      `placeholder:"N" help:"This worker's share of the account's tokens a minute; 0: no limit."`
	Price             []string `help:"Price of a model in USD for a million tokens, to count costs: MODEL=PROMPT,COMPLETION. May be given more than once." sep:"none" placeholder:"MODEL=PROMPT,COMPLETION"`

	Weaviate           string `env:"WEAVIATE_URL" help:"Weaviate for long-term facts (its key is WEAVIATE_API_KEY); without it they lie in a bucket of NATS." placeholder:"URL"`
	WeaviateVectorizer string `help:"Module of Weaviate that makes vectors, such as text2vec-ollama; none: by --embedding-model, or by words." placeholder:"MODULE"`
	EmbeddingModel     string `help:"Model of the model's endpoint that makes vectors for Weaviate; none: facts are found by words." placeholder:"MODEL"`
	Learn              bool   `default:"true" negatable:"" help:"Learn durable facts from answered runs."`
	SummarizeSessions  bool   `help:"Keep a summary of what was said in a session before the messages that a run is shown; it costs a model call for every ten messages."`

	Tools string `help:"Tools file (YAML); without it calculate, current_time, add_numbers, delegate, read_result, recall_facts and remember_fact, and with --model demo the sample tools." placeholder:"FILE"`

	HTTP         string `name:"http" default:"127.0.0.1:8080" help:"Address of the console, /healthz, /readyz and /metrics; empty turns it off. Beyond loopback the console needs --http-token or --http-identity-header."`
	HTTPToken    string `name:"http-token" env:"RATCHET_HTTP_TOKEN" help:"Token that the console asks for. Better given in the environment, where other users can't read it." placeholder:"TOKEN"`
	HTTPIdentity string `name:"http-identity-header" help:"Header in which a trusted proxy in front of the console says who somebody is, such as X-Forwarded-User. The proxy must remove it from what it receives, and nobody must reach the address past it." placeholder:"NAME"`
	Console      bool   `default:"true" negatable:"" help:"Serve the console at the --http address."`
	TraceContent bool   `help:"Put what was said to the model and to tools, and what they answered, into traces. These go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names; without it none are made."`

	LogFormat string `enum:"auto,text,json" default:"auto" help:"text, json, or auto: text on a terminal, else json."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

const description = `Takes tasks from NATS JetStream and drives agent runs, one validated step at a time.

Any number of workers share the queues; kill one at any moment and another goes on. The model is any OpenAI-compatible
endpoint: OPENAI_API_KEY is its key and OPENAI_BASE_URL its address, up to and including the version (default
https://api.openai.com/v1).

Examples:

    worker --embedded --model demo                    everything in one process, offline, nothing to set up
    OPENAI_API_KEY=… worker --nats nats://nats:4222   with your server and the default model
    worker --nats nats://nats:4222 --tools tools.yaml --max-running 20 --log-format json
    worker tools list --tools tools.yaml              what it would offer; the file is checked
    worker ready                                      whether the worker on this machine takes work

SIGTERM and Ctrl-C let the steps in hand end (--grace) and hand the runs over to other workers. A second signal ends it at once.

Environment: OPENAI_API_KEY, OPENAI_BASE_URL; WEAVIATE_API_KEY for --weaviate; OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of OpenTelemetry for traces; GOGC, in place of the worker's own rule (garbage up to a heap of 32 MB; where more is in use, half as much as that). Those that stand for a flag are named beside it.

Exit status: 0 stopped by a signal; 1 an error; 2 wrong usage.`

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("worker"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.UsageOnError(), kong.Help(printHelp), kong.Exit(func(code int) { exited = code }))
	if err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return exitUsage
	}
	if status, asked := completion.Answer(parser, args, proposals, stdout); asked {
		return status
	}
	command, err := parser.Parse(args)
	switch {
	case exited >= 0:
		return exited
	case err != nil:
		fmt.Fprintf(stderr, "worker: %v\nworker --help lists what can be set.\n", err)
		return exitUsage
	}
	switch command.Selected().Name {
	case "list":
		return c.Tools.List.run(ctx, stdout, stderr)
	case "call":
		return c.Tools.Call.run(ctx, stdout, stderr)
	case "ready":
		return c.Ready.run(ctx, stdout, stderr)
	case "completion":
		return c.Completion.run(stdout, stderr)
	case "torture":
		return c.Torture.run(ctx, stdout, stderr)
	case "torture-child":
		return c.Child.run(ctx, stderr)
	}
	opts, err := c.Work.options(getenv("OPENAI_BASE_URL"), getenv("OPENAI_API_KEY"), stderr)
	if err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return exitUsage
	}
	if opts.Exporter, err = telemetry.OTLP(ctx, getenv); err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return exitUsage
	}
	return work(ctx, opts, stderr)
}

// printHelp prints the help that was asked for. That of the program as a whole ends with the flags of its default command.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || ctx.Selected() != nil {
		return err
	}
	work, err := kong.Trace(ctx.Kong, []string{ctx.Model.DefaultCmd.Name})
	if err != nil {
		return err
	}
	fmt.Fprintln(ctx.Stdout)
	return kong.DefaultHelpPrinter(options, work)
}

// work runs a node until a signal. A second signal ends the process at once.
func work(ctx context.Context, opts node.Options, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if os.Getenv("GOGC") == "" {
		defer garbage.Bound()()
	}
	n, err := node.Start(ctx, opts)
	if err != nil {
		if ctx.Err() != nil {
			return exitOK
		}
		fmt.Fprintln(stderr, "worker: can't start:", err)
		return exitError
	}
	defer n.Close()
	opts.Log.Info("taking tasks", "prefix", n.Bus().Prefix(), "concurrency", opts.Concurrency, "nats", n.URL())
	go func() {
		<-ctx.Done()
		stop() // the default handling: the next signal ends the process
	}()
	err = n.Run(ctx)
	if err != nil {
		opts.Log.Error("the worker has ended", "error", err)
		return exitError
	}
	opts.Log.Info("stopped; runs that were in hand go on elsewhere, or here at the next start")
	return exitOK
}

func (f flags) options(baseURL, apiKey string, stderr io.Writer) (node.Options, error) {
	log := f.logger(stderr)
	o := node.Options{
		Connect: bus.ConnectOptions{
			URL: f.NATS, Context: f.Context, InboxPrefix: f.InboxPrefix, Creds: f.Creds, CA: f.TLSCA, Cert: f.TLSCert, Key: f.TLSKey,
		},
		Prefix: f.Prefix, Replicas: f.Replicas, Concurrency: f.Concurrency, MaxRunning: f.MaxRunning, MaxWaiting: f.MaxWaiting, Lease: f.Lease, Grace: f.Grace, Keep: f.Keep,
		Model: llm.Config{
			BaseURL: baseURL, APIKey: apiKey, Model: f.Model, Fallback: f.FallbackModel, NoHeaders: f.NoLLMHeaders,
		},
		Window: f.Window, SummaryModel: f.SummaryModel, Stream: f.Stream, Demo: f.Model == "demo", Files: f.Data, Tools: f.Tools,
		Getenv: os.Getenv, HTTP: f.HTTP, NoConsole: !f.Console,
		Access: web.Access{Token: f.HTTPToken, IdentityHeader: f.HTTPIdentity}, TraceContent: f.TraceContent, Log: log,
	}
	if access := (web.Access{Address: f.HTTP, Token: f.HTTPToken, IdentityHeader: f.HTTPIdentity}); f.HTTP != "" && f.Console {
		if err := access.Check(); err != nil {
			return o, err
		}
	}
	o.Memory = node.MemoryOptions{
		Off: !f.Learn, Summaries: f.SummarizeSessions, Weaviate: f.Weaviate, WeaviateKey: os.Getenv("WEAVIATE_API_KEY"), Vectorizer: f.WeaviateVectorizer,
		EmbeddingModel: f.EmbeddingModel,
	}
	prices, err := parsePrices(f.Price)
	if err != nil {
		return o, err
	}
	o.Model.Prices, o.Model.RequestsPerMinute, o.Model.TokensPerMinute = prices, f.RequestsPerMinute, f.TokensPerMinute
	if !o.Demo && apiKey == "" && baseURL == "" {
		return o, errors.New("no model: set OPENAI_API_KEY (and OPENAI_BASE_URL for an endpoint other than OpenAI's), or use " +
			"--model demo for the built-in offline model")
	}
	if f.Window < leastWindow {
		return o, fmt.Errorf("--window %d: at least %d tokens are needed for the rules, the tools and the goal", f.Window, leastWindow)
	}
	if f.Concurrency < 1 {
		return o, fmt.Errorf("--concurrency %d: at least one run must be driven at once", f.Concurrency)
	}
	if f.MaxRunning < 0 {
		return o, fmt.Errorf("--max-running %d: give a number of runs, or 0 for no limit", f.MaxRunning)
	}
	if f.MaxWaiting < 0 {
		return o, fmt.Errorf("--max-waiting %d: give a number of runs, or 0 for no limit", f.MaxWaiting)
	}
	if !f.Embedded {
		return o, nil
	}
	host, port, err := net.SplitHostPort(f.Listen)
	if err != nil {
		return o, fmt.Errorf("--listen %s: give a host and a port, such as 127.0.0.1:4222", f.Listen)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < -1 || number > 65535 {
		return o, fmt.Errorf("--listen %s: the port is no number from 0 to 65535", f.Listen)
	}
	if number == 0 {
		number = -1 // as elsewhere: any free port
	}
	o.Embedded = &bus.EmbeddedOptions{Dir: filepath.Join(f.Data, "nats"), Host: host, Port: number, Sync: f.Sync, Log: log}
	return o, nil
}

// parsePrices reads MODEL=PROMPT,COMPLETION.
func parsePrices(values []string) (map[string]llm.Price, error) {
	prices := map[string]llm.Price{}
	for _, v := range values {
		model, amounts, _ := strings.Cut(v, "=")
		prompt, completion, ok := strings.Cut(amounts, ",")
		p, err1 := strconv.ParseFloat(prompt, 64)
		c, err2 := strconv.ParseFloat(completion, 64)
		if !ok || model == "" || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("--price %s: give MODEL=PROMPT,COMPLETION in USD for a million tokens, such as gpt-4o-mini=0.15,0.60", v)
		}
		prices[model] = llm.Price{PromptPerMillion: p, CompletionPerMillion: c}
	}
	return prices, nil
}

func (f flags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		level = slog.LevelInfo // kong has checked the value
	}
	options := &slog.HandlerOptions{Level: level}
	file, isFile := w.(*os.File)
	text := f.LogFormat == "text" || (f.LogFormat == "auto" && isFile && term.IsTerminal(int(file.Fd())))
	if text {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
