// Package torture proves by force that nothing is lost and nothing happens twice. It starts a nats-server process and
// worker processes, lets them drive many runs against a scripted model and counting tools that live in its own process,
// and meanwhile kills, stops, partitions and restarts all of them by a seed. In the end it reads what is stored in NATS
// with plain JetStream calls and compares it with its own records.
//
// Who is who:
//
//	ledger.go     what the torturer saw itself: model calls, executions of tools, replies, faults. These are the truth
//	model.go      the scripted model, over HTTP; script.go is what each run does, say.go how it is said in each strategy
//	tools.go      the counting tools, over HTTP; toolsfile.go is how the workers know them
//	load.go       submits tasks, some of them twice; person.go answers questions, cancels, pauses, resumes; ways.go is how
//	              they get to the workers: by the queue, or by the API
//	chaos.go      what is done to the processes (process.go, child.go) and connections (proxy.go); seat.go starts them anew
//	evidence.go   reads all streams and buckets from the outside; check.go and checks_*.go find what is wrong with them
//	report.go     the table
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Options say how long and how hard. The zero value of a field means its default.
type Options struct {
	Time     time.Duration // for which runs are submitted and processes are harmed; 60s
	Seed     uint64        // of all that is drawn; one from the clock
	Workers  int           // processes; 4
	InFlight int           // runs that are open at once; 100
	Lease    time.Duration // of the workers; 3s
	Drain    time.Duration // that the runs get to end after everything has healed; 2m
	Data     string        // directory for the store and the logs; a temporary one, removed when all is well
	Known    []string      // rules whose violations are reported without failing; none
	// Command starts this program again as a child: [Child] is to be called with the arguments that are added to it.
	Command []string
	Out     io.Writer // gets progress, violations and the table; nowhere
}

func (o Options) withDefaults() Options {
	o.Time = cmp.Or(o.Time, time.Minute)
	o.Workers = cmp.Or(o.Workers, 4)
	o.InFlight = cmp.Or(o.InFlight, 100)
	o.Lease = cmp.Or(o.Lease, 3*time.Second)
	o.Drain = cmp.Or(o.Drain, 2*time.Minute)
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Time < time.Second || o.Drain <= 0:
		return fmt.Errorf("time %s, drain %s: they must be at least a second", o.Time, o.Drain)
	case o.Workers < 2:
		return fmt.Errorf("workers %d: it takes two, so that one can go on for the other", o.Workers)
	case o.InFlight < 1:
		return fmt.Errorf("in flight %d: at least one run must be open", o.InFlight)
	case o.Lease < time.Second:
		return fmt.Errorf("lease %s: the least is 1s", o.Lease)
	case len(o.Command) == 0:
		return errors.New("no command to start the children with")
	}
	return nil
}

// grace is the workers' --grace. toolTimeout bounds a call of a counting tool.
const (
	grace       = time.Second
	toolTimeout = 2 * time.Second
)

// ErrViolated says that something was lost, doubled or left behind; the report has been written to Options.Out.
var ErrViolated = errors.New("the promises were not kept")

// Run tortures, heals, waits until everything is drained, checks, and writes the report. Its error is ErrViolated, or
// says why the torture itself could not be carried out. The data directory is kept where there is an error.
func Run(ctx context.Context, opts Options) (err error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	if err := canSignal(); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	temporary := opts.Data == ""
	if temporary {
		if opts.Data, err = os.MkdirTemp("", "ratchet-torture-"); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
	}
	defer func() {
		if err == nil && temporary {
			_ = os.RemoveAll(opts.Data) // it is in the system's directory for temporary files anyway
		} else {
			fmt.Fprintf(opts.Out, "store and logs are kept in %s\n", opts.Data)
		}
	}()
	fmt.Fprintf(opts.Out, "seed %d, %d workers, lease %s: torturing for %s\n", opts.Seed, opts.Workers, opts.Lease, opts.Time)
	ledger := newLedger()
	evidence, err := inflict(ctx, opts, ledger)
	if err != nil {
		return fmt.Errorf("torture with seed %d: %w", opts.Seed, err)
	}
	violations := Check(evidence)
	writeReport(opts, evidence, violations)
	for _, v := range violations {
		if !slices.Contains(opts.Known, v.Rule) {
			return ErrViolated
		}
	}
	return nil
}

// inflict does everything up to the reading of what is stored.
func inflict(ctx context.Context, opts Options, ledger *Ledger) (Evidence, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	world, err := startWorld(ctx, opts, ledger)
	if err != nil {
		return Evidence{}, err
	}
	defer world.close()
	load := newLoad(world, ledger, rand.New(rand.NewPCG(opts.Seed, 1)))
	person := newPerson(world, ledger, opts.Seed)
	watching, stopWatching := context.WithCancel(ctx)
	watched := start(func() { person.watch(watching) })
	defer func() { stopWatching(); <-watched }()

	probing, stopProbing := context.WithCancel(ctx)
	probed := start(func() { world.probe(probing) })
	defer func() { stopProbing(); <-probed }()

	harming, stopHarming := context.WithTimeout(ctx, opts.Time)
	defer stopHarming()
	submitted := start(func() { load.submit(harming, person.open) })
	harmed := start(func() { newChaos(world, ledger, rand.New(rand.NewPCG(opts.Seed, 2))).harm(harming) })
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	for begun := time.Now(); harming.Err() == nil; {
		select {
		case <-progress.C:
			fmt.Fprintf(opts.Out, "%4.0fs  %s\n", time.Since(begun).Seconds(), ledger.progress())
		case <-harming.Done():
		}
	}
	<-submitted
	<-harmed
	if err := ctx.Err(); err != nil {
		return Evidence{}, err
	}
	if err := world.heal(ctx); err != nil {
		return Evidence{}, err
	}
	fmt.Fprintf(opts.Out, "all is healed: waiting for the runs to end\n")
	healed := time.Now()
	drained := person.drain(ctx, opts.Drain)
	draining := time.Since(healed)
	stopWatching()
	<-watched
	stopProbing()
	<-probed
	evidence, err := collect(ctx, filepath.Join(opts.Data, "logs"), world, ledger)
	evidence.Drained, evidence.Draining = drained, draining
	return evidence, err
}

// start runs f and returns a channel that is closed when it has returned.
func start(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}
