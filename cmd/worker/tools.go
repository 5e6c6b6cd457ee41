package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/node"
	"ratchet/internal/tools"
)

// toolsFlags are those of worker tools.
type toolsFlags struct {
	List listTools `cmd:"" default:"withargs" help:"List what a worker with this tools file would offer, and check the file."`
	Call callTool  `cmd:"" help:"Call one tool and print what comes back. Nobody is asked for an approval."`
}

// toolSource says which tools are meant.
type toolSource struct {
	Tools   string        `help:"Tools file; without it the built-ins." placeholder:"FILE"`
	Demo    bool          `help:"The sample tools too, as with --model demo."`
	Data    string        `default:"data" placeholder:"DIR" help:"Directory that sample tools write to (data)."`
	NATS    string        `name:"nats" help:"NATS server, for files that name tools on NATS." placeholder:"URL"`
	Context string        `env:"NATS_CONTEXT" placeholder:"NAME" help:"Context of the nats command line tool, instead of --nats."`
	Timeout time.Duration `default:"1m" help:"How long the whole command may take."`
}

type listTools struct {
	toolSource
	JSON bool `help:"One JSON object a line, with digests and limits."`
}

type callTool struct {
	toolSource
	Name      string `arg:"" help:"The tool."`
	Arguments string `arg:"" optional:"" default:"{}" help:"Its arguments, a JSON object."`
}

// Help is what --help says below the one line of the command.
func (listTools) Help() string {
	return `Examples:

    worker tools list --demo
    worker tools list --tools tools.yaml --nats nats://127.0.0.1:4222
    worker tools list --tools tools.yaml --json | jq -r .name

The exit status is 1 where the file is wrong or a source that it names can't be reached.`
}

// Help is what --help says below the one line of the command.
func (callTool) Help() string {
	return `Examples:

    worker tools call calculate '{"expression": "17 * 25"}'
    worker tools call get_temperature '{"city": "Paris"}' --demo

The result is printed; the exit status is 1 where the call was refused or failed.`
}

// open loads the registry. done ends what it started.
func (s toolSource) open(ctx context.Context, stderr io.Writer) (registry *tools.Registry, done func(), err error) {
	var conn *nats.Conn
	log := flags{LogFormat: "text", LogLevel: "warn"}.logger(stderr)
	if s.NATS != "" || s.Context != "" {
		if conn, err = bus.Connect(ctx, bus.ConnectOptions{URL: s.NATS, Context: s.Context, Name: "ratchet worker tools"}); err != nil {
			return nil, nil, err
		}
	}
	closeConn := func() {
		if conn != nil {
			conn.Close()
		}
	}
	options := node.Options{Tools: s.Tools, Demo: s.Demo, Files: s.Data, Getenv: os.Getenv}
	registry, closer, err := node.LoadTools(ctx, options, conn, nil, nil, log)
	if err != nil {
		closeConn()
		return nil, nil, err
	}
	return registry, func() { _ = closer.Close(); closeConn() }, nil
}

func (l listTools) run(ctx context.Context, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	registry, done, err := l.open(ctx, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "worker tools:", err)
		return exitError
	}
	defer done()
	if l.JSON {
		encoder := json.NewEncoder(stdout)
		for _, t := range registry.List() {
			if err := encoder.Encode(t); err != nil {
				fmt.Fprintln(stderr, "worker tools:", err)
				return exitError
			}
		}
		return exitOK
	}
	table := tabwriter.NewWriter(stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tFROM\tEFFECT\tAPPROVAL\tTIMEOUT\tLIMITS\t")
	for _, t := range registry.List() {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", t.Name, t.Source, t.Effect, yesNo(t.Approve), time.Duration(t.Timeout), limits(t))
	}
	if err := table.Flush(); err != nil {
		fmt.Fprintln(stderr, "worker tools:", err)
		return exitError
	}
	return exitOK
}

func yesNo(b bool) string {
	if b {
		return "a person's yes"
	}
	return "-"
}

func limits(t tools.Listing) string {
	parts := []string{fmt.Sprintf("%d bytes", t.MaxResult)}
	if t.MaxParallel > 0 {
		parts = append(parts, fmt.Sprintf("%d at once", t.MaxParallel))
	}
	if t.Rate != "" {
		parts = append(parts, t.Rate)
	}
	if t.Guard != "" {
		parts = append(parts, "guard "+t.Guard)
	}
	if t.Reconcile != "" {
		parts = append(parts, "reconcile "+t.Reconcile)
	}
	if t.Internal {
		parts = append(parts, "not offered to models")
	}
	return strings.Join(parts, ", ")
}

func (c callTool) run(ctx context.Context, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	registry, done, err := c.open(ctx, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "worker tools:", err)
		return exitError
	}
	defer done()
	out := registry.Try(ctx, c.Name, json.RawMessage(c.Arguments))
	var text string
	if json.Unmarshal(out.Result, &text) != nil {
		text = string(out.Result)
	}
	if out.Status != loop.ObservedOK {
		fmt.Fprintf(stderr, "worker tools: %s ended with status %s: %s\n", c.Name, out.Status, text)
		return exitError
	}
	fmt.Fprintln(stdout, text)
	return exitOK
}
