package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ratchet/internal/torture"
)

// tortureFlags are those of worker torture.
type tortureFlags struct {
	Time     time.Duration `default:"60s" help:"How long runs are submitted and processes are harmed; the rest is waiting for the runs to end, and checking."`
	Seed     uint64        `placeholder:"N" help:"Of all that is drawn (one from the clock)."`
	Workers  int           `default:"4" help:"Worker processes."`
	InFlight int           `name:"in-flight" default:"100" help:"Runs that are open at once."`
	Lease    time.Duration `default:"3s" help:"Lease of the workers."`
	Data     string        `placeholder:"DIR" help:"Directory for store and logs (a temporary one, which is kept where something is wrong)."`
	Known    []string      `placeholder:"RULE" help:"Rules whose violations are reported and do not fail the command."`
}

// Help is what worker torture --help says beside the flags.
func (tortureFlags) Help() string {
	return `Starts a server and workers as processes of their own, on loopback, with a scripted model and tools that count. It
kills, stops, continues, partitions and restarts them by a seed while runs go on. Then it compares what is stored with what
it saw. The exit status is 1 where anything was lost, doubled or left behind.`
}

// childFlags are those of the processes that worker torture starts.
type childFlags struct {
	Args []string `arg:"" optional:""`
}

// run tortures and prints the table.
func (f tortureFlags) run(ctx context.Context, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, "worker: torture: find this program, to start it again:", err)
		return exitError
	}
	err = torture.Run(ctx, torture.Options{
		Time: f.Time, Seed: f.Seed, Workers: f.Workers, InFlight: f.InFlight, Lease: f.Lease, Data: f.Data, Known: f.Known,
		Command: []string{self, "torture-child"}, Out: stdout,
	})
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, torture.ErrViolated):
	default:
		fmt.Fprintln(stderr, "worker:", err)
	}
	return exitError
}

// run is a child of worker torture.
func (f childFlags) run(ctx context.Context, stderr io.Writer) int {
	err := torture.Child(ctx, f.Args, os.Stdin, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "worker: torture child:", err)
	}
	return torture.ExitStatus(err)
}
