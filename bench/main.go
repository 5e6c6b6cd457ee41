// Command bench measures the engine as it is deployed: a server process, worker processes, and a model that speaks HTTP from
// a script. In the same run it measures what nothing can beat, bare appends of the same sizes and bare requests to the same
// model, so that a figure of a noisy machine still says something: the ratio.
//
//	go run ./bench                                   the short form, under five minutes on two cores
//	go run ./bench --form full --scenario parked     10,000 runs that wait for an answer
//	go run ./bench --count 6 --json new.json --compare old.json
//
// The process itself is the model, the submitter and the clock; it starts itself again as servers and workers (child.go) and
// reads from /proc what they use. docs/performance.md explains the figures.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// options are what can be set.
type options struct {
	Form       form     `default:"short" enum:"tiny,short,full" help:"How much: tiny (half a minute), short (five minutes) or full (an hour)."`
	Scenario   []string `help:"Scenarios to run, by name; all that the form has by default." placeholder:"NAME"`
	List       bool     `help:"List the scenarios and end."`
	Count      int      `default:"1" help:"Run each this often; comparisons want six or more."`
	Sync       string   `default:"2m" help:"How often servers sync to the disk, where a scenario does not say: always or an interval."`
	Latency    *latency `help:"How long the model takes, such as 1s-3s, in place of what the scenarios say." placeholder:"FROM-TO"`
	Kept       int      `help:"How many ended runs the scenario kept writes; by the form: 500, 20000 or 1000000." placeholder:"N"`
	JSON       string   `name:"json" help:"Write the figures to a file." placeholder:"FILE"`
	Compare    string   `help:"Compare with the figures in a file that --json wrote." placeholder:"FILE"`
	CPUProfile string   `name:"cpuprofile" help:"Write CPU profiles of each server and worker here." placeholder:"DIR"`
	MemProfile string   `name:"memprofile" help:"Write profiles of the heap and the goroutines of workers with many runs in flight here." placeholder:"DIR"`
	Data       string   `help:"Where the servers keep their data; a temporary directory by default." placeholder:"DIR"`

	progress io.Writer
}

// run is the program. Exit status: 0 measured, 1 something failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 && args[0] == childCommand {
		if err := child(ctx, args[1:], stdin, stdout, stderr); err != nil {
			fmt.Fprintln(stderr, "bench child:", err)
			return 1
		}
		return 0
	}
	opts := options{progress: stderr}
	exited := -1
	parser, err := kong.New(&opts, kong.Name("bench"), kong.Writers(stdout, stderr), kong.Exit(func(code int) { exited = code }),
		kong.Description("Measures the engine: server and workers as processes, a scripted model, and the floor beside them."))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if exited >= 0 {
		return exited
	}
	var chosen []scenario
	if err == nil {
		chosen, err = opts.chosen()
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\nbench --help lists what can be set.\n", err)
		return 2
	}
	if opts.List {
		for _, s := range chosen {
			fmt.Fprintf(stdout, "%-11s %s\n", s.name, s.about)
		}
		return 0
	}
	if err := opts.measure(ctx, chosen, stdout); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// chosen returns the scenarios that were asked for, in their usual order.
func (o options) chosen() (all []scenario, err error) {
	if o.Count < 1 {
		return nil, fmt.Errorf("--count %d is not valid: use 1 or more", o.Count)
	}
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
		if slices.Contains(o.Scenario, s.name) || len(o.Scenario) == 0 && (s.tiny || o.Form != tiny || o.List) {
			all = append(all, s)
		}
	}
	for _, name := range o.Scenario {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return all, nil
}

// measure runs the scenarios and prints what came of them. What was measured before one failed is printed all the same.
func (o options) measure(ctx context.Context, chosen []scenario, stdout io.Writer) error {
	for _, dir := range []string{o.Data, o.CPUProfile, o.MemProfile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	now := &report{Machine: thisMachine(), Form: o.Form}
	var before *report
	if o.Compare != "" {
		var err error
		if before, err = readReport(o.Compare); err != nil {
			return err
		}
	}
	var failed error
	for range o.Count {
		for _, s := range chosen {
			if err := o.one(ctx, s, now); err != nil {
				failed = errors.Join(failed, fmt.Errorf("scenario %s: %w", s.name, err))
			}
			if ctx.Err() != nil {
				break
			}
		}
	}
	now.print(stdout)
	if before != nil {
		compare(stdout, before, now)
	}
	if o.JSON != "" {
		failed = errors.Join(failed, now.write(o.JSON))
	}
	return failed
}
