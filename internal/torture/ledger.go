package torture

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"ratchet/internal/loop"
)

// Ledger is what the torturer saw and did itself. It is never killed, so what it says is the truth that the journals are
// held against. It is safe for concurrent use.
type Ledger struct {
	mu         sync.Mutex
	planned    map[string]*Planned
	calls      []*ModelCall
	executions []*Execution
	byKey      map[string][]*Execution
	guards     []Guarded
	told       []Told
	blamed     []string // what the API refused
	faults     []*Fault
	busy       []Span
	planted    []Plant
	ended      map[string]bool // submitted runs whose final event was seen
}

// Planned is a run that was submitted.
type Planned struct {
	Run      string
	Shape    Shape
	Strategy Strategy
	Session  string
	At       time.Time // of the first attempt to publish it
	Stored   int       // how many publications of it were acknowledged
}

// ModelCall is one request that the model got.
type ModelCall struct {
	Run    string
	Prompt string // digest of the messages: the same prompt is the same turn
	Worker string // who asked
	From   time.Time
	To     time.Time // zero while it is in hand
	Paid   bool      // false: it was refused with an error status
	Gone   bool      // the worker went away before it had the reply
}

// Execution is one request that a counting tool got.
type Execution struct {
	Key    string // idempotency key, tenant/run/call
	Tool   string
	Worker string
	From   time.Time
	To     time.Time // zero while it is in hand
	Failed bool      // the tool said no
	Result json.RawMessage
	Gone   bool
}

// Guarded is what the guard said of a call.
type Guarded struct {
	Key string
	OK  bool
	At  time.Time
}

// Told is what became of a reply or order, as workers told it.
type Told struct {
	Run    string
	Kind   string // reply or control
	By     string // who it was published by: unique to the publication
	Status string // accepted, duplicate, stale …
}

// FaultKind says what was done to a process.
type FaultKind string

// What is done.
const (
	FaultKill   FaultKind = "kill -9"
	FaultStop   FaultKind = "SIGSTOP" // for longer than the lease, then SIGCONT
	FaultTerm   FaultKind = "SIGTERM"
	FaultCut    FaultKind = "cut off" // all connections of the worker are closed and refused
	FaultStall  FaultKind = "stalled" // they stay open and carry nothing
	FaultServer FaultKind = "server kill -9"
	FaultSlow   FaultKind = "slow machine" // nobody's doing, see probe.go
)

// serverName is the server's in [Fault.Worker].
const serverName = "server"

// Fault is one thing that was done to a process, from its beginning until the process was well again.
type Fault struct {
	Kind   FaultKind
	Worker string // name of the process, serverName for the server
	From   time.Time
	To     time.Time // zero while it lasts
	Hands  []Hand    // what was in hand when it began
}

// Span is a time from a moment to another.
type Span struct{ From, To time.Time }

// Hand is a run of which a worker had a model or tool call in hand.
type Hand struct{ Run, Worker string }

// Plant is a message that can only become a dead letter.
type Plant struct {
	Mark   string // a text in its body
	Reason string // of the dead letter
	Stored int    // publications of it that were acknowledged
	Tried  int
}

func newLedger() *Ledger {
	return &Ledger{planned: map[string]*Planned{}, ended: map[string]bool{}, byKey: map[string][]*Execution{}}
}

func (l *Ledger) plan(p Planned) *Planned {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planned[p.Run] = &p
	return &p
}

// stored counts an acknowledged publication.
func (l *Ledger) stored(p *Planned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Stored++
}

func (l *Ledger) plant(p Plant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planted = append(l.planted, p)
}

// asked records a model call; the function that is returned ends it.
func (l *Ledger) asked(run, prompt, worker string) (end func(paid, gone bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &ModelCall{Run: run, Prompt: prompt, Worker: worker, From: time.Now(), Paid: true}
	l.calls = append(l.calls, c)
	return func(paid, gone bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.To, c.Paid, c.Gone = time.Now(), paid, gone
	}
}

// executing records the beginning of a tool call and returns what the key's earlier executions had as results. take is
// called with the result, before it is returned to the worker.
func (l *Ledger) executing(e Execution) (earlier []Execution, take func(result json.RawMessage, failed bool), end func(gone bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.byKey[e.Key] {
		earlier = append(earlier, *x)
	}
	e.From = time.Now()
	x := &e
	l.executions = append(l.executions, x)
	l.byKey[e.Key] = append(l.byKey[e.Key], x)
	take = func(result json.RawMessage, failed bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		x.Result, x.Failed = result, failed
	}
	end = func(gone bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		x.To, x.Gone = time.Now(), gone
	}
	return earlier, take, end
}

func (l *Ledger) guarded(g Guarded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guards = append(l.guards, g)
}

// refused notes that the API refused what it should not.
func (l *Ledger) refused(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blamed = append(l.blamed, text)
}

// executed returns the first execution of a tool under a key.
func (l *Ledger) executed(key string) (Execution, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.byKey[key]; len(list) > 0 {
		return *list[0], true
	}
	return Execution{}, false
}

// begin records a fault and which runs it hits; the function that is returned ends it.
func (l *Ledger) begin(kind FaultKind, worker string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &Fault{Kind: kind, Worker: worker, From: time.Now()}
	seen := map[Hand]bool{}
	hand := func(h Hand) {
		if !seen[h] {
			seen[h] = true
			f.Hands = append(f.Hands, h)
		}
	}
	for _, c := range l.calls {
		if c.To.IsZero() && (c.Worker == worker || worker == serverName) {
			hand(Hand{c.Run, c.Worker})
		}
	}
	for _, x := range l.executions {
		if x.To.IsZero() && (x.Worker == worker || worker == serverName) {
			hand(Hand{runOfKey(x.Key), x.Worker})
		}
	}
	l.faults = append(l.faults, f)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.To = time.Now()
	}
}

// slow records that the machine was too slow for its leases. It hits everybody.
func (l *Ledger) slow(from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, &Fault{Kind: FaultSlow, Worker: serverName, From: from, To: to})
}

// slowish records that the machine was too slow to judge how quick others are.
func (l *Ledger) slowish(from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = append(l.busy, Span{from, to})
}

// end notes that a run's final event was seen.
func (l *Ledger) end(run string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.planned[run] != nil {
		l.ended[run] = true
	}
}

func (l *Ledger) progress() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d runs submitted, %d ended; %d model calls, %d tool calls; %d faults",
		len(l.planned), len(l.ended), len(l.calls), len(l.executions), len(l.faults))
}

// copyTo puts copies of all records into the evidence.
func (l *Ledger) copyTo(e *Evidence) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for run, p := range l.planned {
		e.Planned[run] = *p
	}
	for _, c := range l.calls {
		e.ModelCalls = append(e.ModelCalls, *c)
	}
	for _, x := range l.executions {
		e.Executions = append(e.Executions, *x)
	}
	for _, f := range l.faults {
		e.Faults = append(e.Faults, *f)
	}
	e.Guards = append(e.Guards, l.guards...)
	e.Busy = append(e.Busy, l.busy...)
	e.Told = append(e.Told, l.told...)
	e.Refused = append(e.Refused, l.blamed...)
	e.Planted = append(e.Planted, l.planted...)
}

// open is the number of runs that were submitted and have not ended.
func (l *Ledger) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.planned) - len(l.ended)
}

// unended lists the runs that were stored in the queue and have not been seen to end.
func (l *Ledger) unended() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for run, p := range l.planned {
		if p.Stored > 0 && !l.ended[run] {
			list = append(list, run)
		}
	}
	return list
}

func (l *Ledger) shape(run string) Shape {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.planned[run]; p != nil {
		return p.Shape
	}
	return ""
}

// expect makes the name under which one reply or order is published, which is also the token of its outcome.
func (l *Ledger) expect(run, kind string) (by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by = fmt.Sprintf("p%d", len(l.told)+1)
	l.told = append(l.told, Told{Run: run, Kind: kind, By: by})
	return by
}

// hear notes what a worker said about a publication. A message that is delivered again may be told again: the first
// word that it was accepted stays.
func (l *Ledger) hear(by, status string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(by, "p%d", &n); err != nil || n < 1 || n > len(l.told) {
		return
	}
	if l.told[n-1].Status != loop.OutcomeAccepted {
		l.told[n-1].Status = status
	}
}
