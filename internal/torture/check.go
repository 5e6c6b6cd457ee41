package torture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// Violation is one promise that was not kept.
type Violation struct {
	Rule string // a stable name
	Run  string // empty where it is no run's
	Text string
}

// String is the violation on one line.
func (v Violation) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", v.Rule, v.Run, v.Text))
}

// The rules.
const (
	RuleEnded      = "ended"       // every submitted run has exactly one final event, which is the last
	RuleGap        = "gap"         // n counts from 1 without gaps, and all of the journal can be read
	RuleStranger   = "stranger"    // every journal belongs to a submitted run
	RuleOutcome    = "outcome"     // the run ended as its script says
	RuleCause      = "cause"       // a queue message caused one event at most
	RuleReply      = "reply"       // questions are closed once; accepted replies are in the journal
	RuleOnce       = "once"        // no once tool ran twice for one key
	RuleStarted    = "started"     // a once tool runs only after its started event, and after the yes it needs
	RuleObserved   = "observed"    // every call has one observation, and it is what the tool said
	RuleUnasked    = "unasked"     // no tool ran that the journal does not ask for
	RuleRepeat     = "repeat"      // read and idempotent tools ran again only around a fault
	RulePaidTwice  = "paid twice"  // model calls were repeated at most once per fault and run in flight
	RuleState      = "state"       // the stored state agrees with the journal
	RuleSession    = "session"     // conversations hold all messages once, and one run at a time
	RuleAPI        = "api"         // what the API says of runs is what is stored, and it refuses nothing that is right
	RuleMemory     = "memory"      // what was learned from a run is known once, and to its user alone
	RuleQueue      = "queue"       // the queues are drained; no schedule is left
	RuleDeadLetter = "dead letter" // the planted ones, and no others
	RuleRecovery   = "recovery"    // a run goes on in time after kill -9 and SIGTERM, where nothing else was harmed
	RuleProcess    = "process"     // no process ended that nobody harmed
)

// Check compares what is stored with what the torturer saw, and returns all that is wrong, the worst rules first.
func Check(e Evidence) []Violation {
	c := &checker{Evidence: e, folded: map[string]*folded{}}
	for run, records := range e.Journals {
		c.folded[run] = c.fold(run, records)
	}
	c.runs()
	c.replies()
	c.effects()
	c.model()
	c.states()
	c.sessions()
	c.said()
	c.learned()
	c.queues()
	c.deadLetters()
	c.recovered()
	for _, d := range e.Deaths {
		c.report(RuleProcess, "", "%s", d)
	}
	slices.SortStableFunc(c.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Run, b.Run))
	})
	return c.found
}

type checker struct {
	Evidence
	folded map[string]*folded
	found  []Violation
}

func (c *checker) report(rule, run, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: rule, Run: run, Text: fmt.Sprintf(format, args...)})
}

// folded is a journal, sorted by what the checks need. It is made without the engine's own fold.
type folded struct {
	events    []loop.Event
	final     *loop.Event
	calls     map[string]loop.ToolCall
	started   map[string][]loop.Event
	observed  map[string][]loop.Observation
	questions map[string]loop.Event
	closed    map[string][]loop.Event // replies and timeouts by question
	approved  map[string]loop.Event   // the yes, by call
	gaveUp    bool
}

func (c *checker) fold(run string, records []Record) *folded {
	f := &folded{
		calls: map[string]loop.ToolCall{}, started: map[string][]loop.Event{}, observed: map[string][]loop.Observation{},
		questions: map[string]loop.Event{}, closed: map[string][]loop.Event{}, approved: map[string]loop.Event{},
	}
	for i, r := range records {
		if r.Problem != "" {
			c.report(RuleGap, run, "message %d of its journal: %s", i+1, r.Problem)
			continue
		}
		if want := uint64(i + 1); r.Event.N != want {
			c.report(RuleGap, run, "event %d lies where event %d belongs", r.Event.N, want)
		}
		f.add(r.Event)
	}
	return f
}

func (f *folded) add(e loop.Event) {
	f.events = append(f.events, e)
	if e.Final() {
		f.final = &e
	}
	switch d := e.Data.(type) {
	case loop.Call:
		for _, call := range d.Calls {
			f.calls[call.Call] = call
		}
	case loop.Started:
		f.started[d.Call] = append(f.started[d.Call], e)
	case loop.Observation:
		f.observed[d.Call] = append(f.observed[d.Call], d)
	case loop.Question:
		f.questions[d.Question] = e
	case loop.Reply:
		f.closed[d.Question] = append(f.closed[d.Question], e)
		q, _ := f.questions[d.Question].Data.(loop.Question)
		if d.Approve != nil && *d.Approve {
			f.approved[q.Call] = e
		}
		if q.Kind == loop.KindEscalation && strings.Contains(string(d.Value), "give_up") {
			f.gaveUp = true
		}
	case loop.Timeout:
		if d.What == loop.TimeoutQuestion {
			f.closed[d.Question] = append(f.closed[d.Question], e)
		}
	default:
	}
}

// runs checks that each run is there and ended once, as it should.
func (c *checker) runs() {
	for _, run := range c.planned() {
		p, f := c.Planned[run], c.folded[run]
		if f == nil {
			if p.Stored > 0 {
				c.report(RuleEnded, run, "the task was acknowledged and has no journal")
			}
			continue
		}
		c.ending(run, f)
		c.outcome(run, p, f)
	}
	for _, run := range slices.Sorted(maps.Keys(c.folded)) {
		if _, planned := c.Planned[run]; !planned && !c.isPlanted(run) {
			c.report(RuleStranger, run, "nobody submitted it")
		}
	}
	c.causes()
}

func (c *checker) planned() []string { return slices.Sorted(maps.Keys(c.Planned)) }

func (c *checker) isPlanted(run string) bool {
	return slices.ContainsFunc(c.Planted, func(p Plant) bool { return strings.TrimSuffix(p.Mark, "-task") == run })
}

func (c *checker) ending(run string, f *folded) {
	finals := 0
	for i, e := range f.events {
		if e.Final() {
			finals++
			if i < len(f.events)-1 {
				c.report(RuleEnded, run, "event %d is final, and %d follow", e.N, len(f.events)-1-i)
			}
		}
	}
	if finals != 1 {
		c.report(RuleEnded, run, "it has %d final events", finals)
	}
}

func (c *checker) outcome(run string, p Planned, f *folded) {
	if f.final == nil {
		return
	}
	switch d := f.final.Data.(type) {
	case loop.Cancelled:
		if p.Shape != ShapeCancel && !f.gaveUp {
			c.report(RuleOutcome, run, "it was cancelled, and nobody wanted that: %s", d.Reason)
		}
	case loop.Failed:
		if d.Reason != loop.FailReplansExhausted || !f.gaveUp {
			c.report(RuleOutcome, run, "it failed: %s: %s", d.Reason, d.Message)
		}
	case loop.Answer:
		if f.gaveUp {
			c.report(RuleOutcome, run, "a person gave it up, and it answered")
		}
		if d.Answer != "done: "+run {
			c.report(RuleOutcome, run, "it answers %q", d.Answer)
		}
	default:
	}
}

// causes checks that no queue message caused two events, of whatever runs.
func (c *checker) causes() {
	seen := map[string]string{}
	for _, run := range slices.Sorted(maps.Keys(c.folded)) {
		for _, e := range c.folded[run].events {
			if e.Cause == "" {
				continue
			}
			if first, twice := seen[e.Cause]; twice {
				c.report(RuleCause, run, "event %d and %s came from one queue message, %s", e.N, first, e.Cause)
			}
			seen[e.Cause] = e.ID()
		}
	}
}

// replies checks questions and what became of what was sent.
func (c *checker) replies() {
	for _, run := range c.planned() {
		f := c.folded[run]
		if f == nil {
			continue
		}
		_, cancelled := endOf(f).(loop.Cancelled)
		for q, asked := range f.questions {
			closed := f.closed[q]
			switch {
			case len(closed) > 1:
				c.report(RuleReply, run, "question %s was closed %d times", q, len(closed))
			case len(closed) == 0 && !cancelled:
				c.report(RuleReply, run, "question %s was never closed", q)
			case len(closed) == 1 && closed[0].N <= asked.N:
				c.report(RuleReply, run, "question %s was closed before it was put", q)
			}
		}
		for q, closed := range f.closed {
			if _, asked := f.questions[q]; !asked {
				c.report(RuleReply, run, "event %d closes question %s, which was never put", closed[0].N, q)
			}
			if c.Planned[run].Shape != ShapeSilent {
				continue
			}
			if _, timeout := closed[0].Data.(loop.Timeout); !timeout {
				c.report(RuleReply, run, "question %s was answered, and nobody did", q)
			}
		}
	}
	c.acceptedOnes()
}

// acceptedOnes checks that what a worker told to be accepted is stored.
func (c *checker) acceptedOnes() {
	for _, t := range c.Told {
		f := c.folded[t.Run]
		if t.Kind != "reply" || t.Status != loop.OutcomeAccepted || f == nil {
			continue
		}
		found := slices.ContainsFunc(f.events, func(e loop.Event) bool {
			switch d := e.Data.(type) {
			case loop.Reply:
				return d.By == t.By
			case loop.Note:
				return d.By == t.By
			default:
				return false
			}
		})
		if !found {
			c.report(RuleReply, t.Run, "reply %s was accepted and is not in the journal", t.By)
		}
	}
}

func endOf(f *folded) loop.Data {
	if f == nil || f.final == nil {
		return nil
	}
	return f.final.Data
}
