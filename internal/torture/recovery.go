package torture

import (
	"slices"
	"strings"
	"time"

	"ratchet/internal/loop"
)

// recovery is how long it took until a run went on that was in hand of a worker when that was killed or asked to end.
type recovery struct {
	run        string
	took       time.Duration
	overlapped bool // something else was harmed meanwhile, or shortly before
	busy       bool // the machine was too slow to judge it
}

// handOver is the most that the hand-over of a run may take after SIGTERM, and slack what a recovery may take beyond the
// lease after kill -9.
const (
	handOver = time.Second
	slack    = time.Second
)

// bound is the most that a recovery may take that nothing else disturbs.
func bound(kind FaultKind, lease time.Duration) time.Duration {
	if kind == FaultTerm {
		return handOver
	}
	return lease + slack
}

// signs are all that runs did, by run, as it shows when a worker goes on with one.
type signs map[string][]sign

// sign is a call of the model or of a tool, or an event that a driver appended.
type sign struct {
	worker   string
	from, to time.Time
}

// signsOf collects what runs did. What doors append at any moment is none of it.
func signsOf(e Evidence) signs {
	s := signs{}
	for _, m := range e.ModelCalls {
		s[m.Run] = append(s[m.Run], sign{m.Worker, m.From, m.To})
	}
	for _, x := range e.Executions {
		run := runOfKey(x.Key)
		s[run] = append(s[run], sign{x.Worker, x.From, x.To})
	}
	for run, records := range e.Journals {
		for _, r := range records {
			if r.Problem == "" && r.Event.Cause == "" {
				worker := r.Event.Source[strings.LastIndexByte(r.Event.Source, '/')+1:]
				s[run] = append(s[run], sign{worker, r.Event.Time, r.Event.Time})
			}
		}
	}
	return s
}

// wentOn says how long a run stood still: from the fault, or from the last thing that the harmed worker still did with it,
// until another worker did something. ok is false where the run had no need of another worker.
func (s signs) wentOn(f Fault, run string) (took time.Duration, until time.Time, ok bool) {
	last, next := f.From, time.Time{}
	for _, x := range s[run] {
		switch {
		case x.worker == f.Worker && x.to.After(last):
			if f.Kind == FaultKill && x.from.After(f.From) {
				return 0, next, false // it had moved on in the instant before the end: what it had in hand is not known
			}
			if f.Kind != FaultKill { // the grace period is the worker's to use
				last = x.to
			}
		case x.worker != f.Worker && x.from.After(f.From) && (next.IsZero() || x.from.Before(next)):
			next = x.from
		}
	}
	return max(next.Sub(last), 0), next, !next.IsZero()
}

// waits reports whether runs of a shape may stand still on purpose: a person pauses them, or their model wants patience.
func (s Shape) waits() bool { return s == ShapePause || s == ShapeRough }

// recoveries are those of all runs that were in hand at faults of a kind, sorted by what they took.
func recoveries(e Evidence, kind FaultKind) (all []recovery) {
	s := signsOf(e)
	for _, f := range e.Faults {
		if f.Kind != kind {
			continue
		}
		for _, h := range f.Hands {
			if e.Planned[h.Run].Shape.waits() {
				continue
			}
			if took, until, ok := s.wentOn(f, h.Run); ok && (kind == FaultKill || !parked(e, h.Run, until)) {
				all = append(all, recovery{h.Run, took, overlapped(e, f, until), wasBusy(e, f, until)})
			}
		}
	}
	slices.SortFunc(all, func(a, b recovery) int { return int(a.took - b.took) })
	return all
}

// parked reports whether a run owed nothing before a moment in which it went on: somebody or some deadline woke it.
func parked(e Evidence, run string, until time.Time) bool {
	var last loop.Event
	for _, r := range e.Journals[run] {
		if _, deadline := r.Event.Data.(loop.Timeout); deadline && r.Event.Time.Equal(until) {
			return true
		}
		if r.Problem == "" && r.Event.Time.Before(until) {
			last = r.Event
		}
	}
	switch last.Data.(type) {
	case loop.Question, loop.Wait:
		return true
	default:
		return last.Cause != ""
	}
}

// overlapped reports whether another fault had effect between the beginning of one and a moment.
func overlapped(e Evidence, f Fault, until time.Time) bool {
	return slices.ContainsFunc(e.Faults, func(o Fault) bool {
		same := o.Worker == f.Worker && o.From.Equal(f.From)
		return !same && o.Kind != FaultSlow && o.From.Before(until) && o.To.Add(e.Lease).After(f.From)
	})
}

// wasBusy reports whether the machine was slow between the beginning of a fault and a moment, or in the lease before it, in
// which the signs of life were given that the recovery counts from.
func wasBusy(e Evidence, f Fault, until time.Time) bool {
	return slices.ContainsFunc(e.Busy, func(b Span) bool { return b.From.Before(until) && b.To.After(f.From.Add(-e.Lease)) })
}

// judged are the recoveries that have to keep the bound.
func judged(all []recovery) []recovery {
	return slices.DeleteFunc(slices.Clone(all), func(r recovery) bool { return r.overlapped || r.busy })
}

// rank is a percentile by nearest rank, so that of a few the 99th is the most; sorted must not be empty.
func rank(sorted []recovery, percent int) recovery {
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}

// recovered checks that runs went on in time where nothing else was harmed and the machine had time to spare.
func (c *checker) recovered() {
	for _, kind := range []FaultKind{FaultKill, FaultTerm} {
		list := judged(recoveries(c.Evidence, kind))
		if len(list) == 0 {
			continue
		}
		if worst, most := rank(list, 99), bound(kind, c.Lease); worst.took > most {
			c.report(RuleRecovery, worst.run, "it went on %s after %s, and %s is the most; of %d runs, half had gone on after %s", worst.took,
				kind, most, len(list), rank(list, 50).took)
		}
	}
}
