// Package batch runs the tasks of a file: one JSON object a line, of which so many are handed in at a time, and the result of
// each goes to a [Sink]. It knows of workers what their API says.
//
// What a batch has in hand lives in memory and nowhere else. It can be ended at any moment and begun again: the id of a run
// depends on its line alone, so that what was handed in is found again and nothing runs twice, and results that a [File] holds
// are not asked for. The ends of runs come over one feed of the tenant's events; a run is looked at by itself only where it
// was there before, or has been quiet for long.
package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// Workers is what a batch needs of the workers' API; see [bus.Client].
type Workers interface {
	Submit(ctx context.Context, task []byte) (bus.SubmitAnswer, error)
	Get(ctx context.Context, run string) (loop.Head, error)
	Events(ctx context.Context, r bus.EventsRequest) (bus.EventsAnswer, error)
	Latest(ctx context.Context) (uint64, error)
	Feed(ctx context.Context, after uint64, each func(loop.Event) error, trouble func(error)) error
}

var _ Workers = (*bus.Client)(nil)

// Options say what a batch runs, and where its results go.
type Options struct {
	Workers     Workers
	Input       io.Reader
	Name        string // of the input, part of the ids of tasks that have none
	Total       int    // lines of the input that are not empty; 0: not known
	User        string // of tasks that name none; empty: none
	Concurrency int    // runs in hand at once, those that wait for a person not counted; 32
	Sink        Sink
	Say         func(text string) // takes what a person should know of single lines
	Show        func(Tally)       // called now and then, and at the end
	ShowEvery   time.Duration     // how often; 1s
}

func (o Options) withDefaults() Options {
	if o.Concurrency == 0 {
		o.Concurrency = 32
	}
	if o.ShowEvery == 0 {
		o.ShowEvery = time.Second
	}
	return o
}

// ErrInput says that the rest of the input can't be read, ErrResults that results can't be written.
var (
	ErrInput   = errors.New("the rest of the tasks can't be read")
	ErrResults = errors.New("a result can't be written")
)

// Outcome is what came of a batch.
type Outcome struct {
	Tally
	Asking []Result // of the lines whose runs wait for a person, in the order of lines
}

// Run runs a batch until all of its runs have ended or wait for a person, or ctx ends. The error is that of reading the
// input, of writing results, or of the workers where they don't answer at the beginning; the outcome is good as far as it goes.
func Run(ctx context.Context, opts Options) (Outcome, error) {
	opts = opts.withDefaults()
	after, err := opts.Workers.Latest(ctx)
	if err != nil {
		return Outcome{}, err
	}
	b := &batch{
		Options: opts, runs: map[string]*run{}, results: make(chan func() error),
		tally: Tally{Total: opts.Total, Ended: map[Status]int{}, Usage: map[Status]loop.Usage{}, Began: time.Now()},
	}
	var stop context.CancelFunc
	b.ctx, stop = context.WithCancel(ctx)
	defer b.jobs.Wait()
	defer stop()
	b.follow(after)
	err = b.loop(b.input())
	if err == nil {
		err = context.Cause(ctx)
	}
	return b.finish(err)
}

// batch is a batch that goes on. All of its fields belong to one goroutine; what goes on beside it comes in over results.
type batch struct {
	Options
	ctx     context.Context
	tally   Tally
	pace    pace
	runs    map[string]*run // that were handed in and have not ended
	ended   bool            // the input
	told    int             // failures
	busy    int             // requests about single runs that are under way
	asking  []*run          // that began to wait for a person and were not looked at since
	results chan func() error
	jobs    sync.WaitGroup
}

// run is a run in hand.
type run struct {
	task
	asks   map[string]Question // by the run that asks; empty: it waits for nobody
	known  bool                // a worker has said that it exists
	looked time.Time           // when it was heard of, or looked at, for the last time
	heard  int                 // events
	busy   bool                // it is being handed in or looked at
}

// item is what comes out of the input: a task, or what is wrong with a line, or why there is no more.
type item struct {
	task
	problem error
	end     error
}

// input reads the input, never further than one task ahead.
func (b *batch) input() <-chan item {
	items := make(chan item)
	b.jobs.Go(func() {
		from := newLines(b.Input)
		t := tasks{name: b.Name, user: b.User, taken: map[key]int{}, odd: map[string]bool{}, say: func(text string) {
			b.tell(func() error { b.Say(text); return nil })
		}}
		for {
			l, err := from.next()
			it := item{end: err}
			if err == nil {
				it.task, it.problem = t.read(l)
				it.line = l.n
			}
			select {
			case items <- it:
			case <-b.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return items
}

// follow has the events of all runs handed to the loop.
func (b *batch) follow(after uint64) {
	b.jobs.Go(func() {
		err := b.Workers.Feed(b.ctx, after, func(e loop.Event) error {
			b.tell(func() error { return b.event(e) })
			return b.ctx.Err()
		}, b.trouble)
		if b.ctx.Err() == nil {
			b.tell(func() error { return err })
		}
	})
}

// tell hands something to the loop to do.
func (b *batch) tell(do func() error) {
	select {
	case b.results <- do:
	case <-b.ctx.Done():
	}
}

// trouble shows an error that may pass; nil: it has.
func (b *batch) trouble(err error) {
	b.tell(func() error {
		b.tally.Trouble = ""
		if err != nil {
			b.tally.Trouble = err.Error()
		}
		return nil
	})
}

func (b *batch) loop(items <-chan item) error {
	show := time.NewTicker(b.ShowEvery)
	defer show.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	b.show()
	for {
		if b.ended && b.tally.Working == 0 && !b.lookAtAsking() {
			return nil
		}
		next := items
		if b.ended || b.tally.Working >= b.Concurrency || !b.Sink.Room() {
			next = nil
		}
		var err error
		select {
		case it := <-next:
			err = b.take(it)
		case do := <-b.results:
			err = do()
		case <-show.C:
			b.show()
		case <-look.C:
			b.lookAtQuiet()
		case <-b.ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *batch) show() {
	t := b.tally
	t.Ended, t.Usage = maps.Clone(t.Ended), maps.Clone(t.Usage)
	t.Rate = b.pace.rate(time.Now(), t.Over()-t.Before)
	b.tally.Rate = t.Rate
	b.Show(t)
}

// take begins with a line.
func (b *batch) take(it item) error {
	switch {
	case errors.Is(it.end, io.EOF):
		b.ended = true
		return nil
	case it.end != nil:
		return fmt.Errorf("%w: %w", ErrInput, it.end)
	}
	b.tally.Read++
	if it.problem != nil {
		return b.refuse(it.line, "", it.problem.Error())
	}
	if before, known := b.Sink.Known(it.id, it.line); known && before.Status.final() {
		b.tally.Before++
		b.count(before)
		return nil
	}
	r := &run{task: it.task, asks: map[string]Question{}, looked: time.Now()}
	b.runs[r.id] = r
	b.tally.Working++
	b.Sink.Expect(r.line)
	b.submit(r)
	return nil
}

// refuse notes a line that is no task.
func (b *batch) refuse(line int, run, problem string) error {
	b.fail(fmt.Sprintf("Line %d is no task that can be run: %s.", line, problem))
	r := Result{Line: line, Run: run, Status: Invalid, Message: problem}
	b.count(r)
	if before, known := b.Sink.Known("", line); known && before.Status == Invalid {
		return nil // an earlier batch has noted it
	}
	if run == "" {
		b.Sink.Expect(line)
	}
	r.Run = ""
	return b.put(r)
}

// maxTold is how many failures are told one by one.
const maxTold = 20

func (b *batch) fail(text string) {
	switch b.told++; {
	case b.told <= maxTold:
		b.Say(text)
	case b.told == maxTold+1:
		b.Say("Further failures are counted and not told one by one; the results have them all.")
	}
}

func (b *batch) count(r Result) {
	b.tally.Ended[r.Status]++
	if r.Usage != nil {
		b.tally.Usage[r.Status] = b.tally.Usage[r.Status].Add(*r.Usage)
	}
}

// event takes an event of the feed. Those of runs that are not of this batch are none of its business.
func (b *batch) event(e loop.Event) error {
	if q, asked := e.Data.(loop.Question); asked {
		id := e.Run
		if len(q.Chain) > 0 {
			id = q.Chain[0]
		}
		if r := b.runs[id]; r != nil {
			r.heard++
			return b.ask(r, questionOf(e.Run, q))
		}
		return nil
	}
	r := b.runs[e.Run]
	if r == nil {
		return nil
	}
	if result, final := resultOf(r.line, e); final {
		return b.over(r, result)
	}
	return nil
}

// ask notes that a run waits for a person. It takes no place among those in hand any more.
func (b *batch) ask(r *run, q Question) error {
	r.known, r.looked = true, time.Now()
	first := len(r.asks) == 0
	r.asks[q.Run] = q
	if !first {
		return nil
	}
	b.asking = append(b.asking, r)
	b.tally.Working--
	b.tally.Waiting++
	if err := b.Sink.Pass(r.line); err != nil {
		return fmt.Errorf("%w: %w", ErrResults, err)
	}
	return nil
}

// over notes the end of a run.
func (b *batch) over(r *run, result Result) error {
	b.drop(r)
	b.count(result)
	switch result.Status {
	case Failed:
		b.fail(fmt.Sprintf("Line %d: run %s failed (%s): %s", r.line, r.id, result.Reason, result.Message))
	case Cancelled:
		b.fail(fmt.Sprintf("Line %d: run %s was cancelled.", r.line, r.id))
	case Done, Waiting, Invalid:
	}
	return b.put(result)
}

func (b *batch) put(r Result) error {
	if err := b.Sink.Put(r); err != nil {
		return fmt.Errorf("%w: %w", ErrResults, err)
	}
	return nil
}

// drop takes a run out of hand.
func (b *batch) drop(r *run) {
	delete(b.runs, r.id)
	if len(r.asks) > 0 {
		b.tally.Waiting--
	} else {
		b.tally.Working--
	}
}

// finish writes down which runs wait for a person, and says what came of the batch.
func (b *batch) finish(err error) (Outcome, error) {
	b.tally.Complete = err == nil
	b.tally.Trouble = ""
	b.show()
	out := Outcome{Tally: b.tally}
	lines := func(x, y *run) int { return x.line - y.line }
	for _, r := range slices.SortedFunc(maps.Values(b.runs), lines) {
		if len(r.asks) == 0 {
			continue
		}
		result := Result{Line: r.line, Run: r.id, Status: Waiting}
		for _, name := range slices.Sorted(maps.Keys(r.asks)) {
			result.Questions = append(result.Questions, r.asks[name])
		}
		out.Asking = append(out.Asking, result)
		if failed := b.put(result); failed != nil && !errors.Is(err, ErrResults) {
			err = errors.Join(err, failed)
		}
	}
	return out, err
}
