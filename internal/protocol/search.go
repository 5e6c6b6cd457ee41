package protocol

import (
	"hash/maphash"
	"slices"
)

// Case is one search: a run, what is published for it, and the faults that may happen.
type Case struct {
	Name   string
	Script []Step // what the run's model says; then it answers
	Inbox  []Kind // messages in the inbox, delivered in any order
	Doors  int    // at work at a time, 1 or 2
	Faults Budget
	Broken Rule // the rule that is taken out, if any
	Most   int  // states after which the search ends
}

// Rule is a rule of the protocol, to be taken out in order to see that the search finds out.
type Rule uint8

// Rules. Each constant says what is done where its rule is taken out.
const (
	NoRule          Rule = iota
	AckBusy              // a different wake-up for a driven run is acked
	AckAfterLoss         // whoever loses an append acks
	NoClock              // a once call is sent without a look at the clock
	NoWait               // what became of a started call is asked at once
	AckBeforeWake        // the door acks before it publishes the wake-up
	StoreFinalFirst      // the final state is stored before the closing steps
	NoRearm              // a schedule that fired early is not published again
	RearmNearest         // only that of the nearest deadline is, and only where the run has not moved on
	BuryStored           // a door message that failed too often is put aside though its event is stored
	RemoveNeeded         // who loses an append removes the schedule it published, though the event that won needs it
	ParkStopped          // a worker that stops parks a run whose turn it has not looked for
	StaleOutcome         // a call is started anew on the outcome of an older start
	ReopenClosed         // a hand-over after the final state was stored stores the run as not closed
	NoLook               // a drive that takes a run does not look at its child run
	WakeParentFirst      // a child run wakes the run above before its final event is stored
	NoWakeForOrder       // the door takes it that a child run which owes something has been woken
	NoOrder              // a run that is cancelled closes its calls and leaves its child run alone
	TimeoutAfterEnd      // a timeout in hand is appended without a look whether the run has ended meanwhile
)

// Result is what a search found.
type Result struct {
	States    int
	Complete  bool     // every reachable state was seen
	Violation string   // empty: none
	Trace     []string // the shortest way to it
}

// model makes the successors of a state for one case.
type model struct {
	Case
	sends bool // the script has a once call
	next  []successor
}

type successor struct {
	action
	state
	order
}

// add notes a successor.
func (m *model) add(a action, t state) {
	o := m.normal(&t)
	m.next = append(m.next, successor{a, t, o})
}

func (m *model) successors(s *state) []successor {
	m.next = m.next[:0]
	m.world(s)
	return m.next
}

// judgeEnd says what is wrong with a state in which nothing is left to happen.
func (m *model) judgeEnd(s *state) violation {
	v := m.fold(s, s.length)
	switch {
	case v.n == 0:
		return lostTask
	case !v.ended:
		return hangs
	case !s.head.closed || !s.told:
		return unclosed
	case s.child == stored:
		return orphan
	case v.handed && !v.heard && !s.stopped:
		return unstopped
	default:
		return fine
	}
}

func (m *model) check(s *state) violation {
	switch {
	case s.bad != fine:
		return s.bad
	case s.quiet():
		return m.judgeEnd(s)
	default:
		return fine
	}
}

// Search looks at every state that the case can reach, the nearest first, until it finds a violation or has seen Most.
func Search(c Case) Result {
	m := &model{Case: c, sends: slices.Contains(c.Script, Once) || slices.Contains(c.Script, AskOnce)}
	first := state{left: c.Faults}
	for i := range c.Inbox {
		first.inbox[i].status = queued
	}
	if slices.Contains(c.Script, InTurn) {
		first.ahead = atWork
	}
	seed := maphash.MakeSeed()
	seen := newSet()
	seen.add(maphash.Comparable(seed, first))
	var steps []stepTo // by the number of the state they lead to, from 1
	level, from := []state{first}, []int32{0}
	for len(level) > 0 {
		var nextLevel []state
		var nextFrom []int32
		for k := range level {
			followers := m.successors(&level[k])
			for j := range followers {
				t := &followers[j].state
				if !seen.add(maphash.Comparable(seed, *t)) {
					continue
				}
				steps = append(steps, stepTo{from[k], uint8(j)})
				if v := m.check(t); v != fine {
					return Result{States: seen.size, Violation: v.String(), Trace: m.trace(first, steps)}
				}
				nextLevel, nextFrom = append(nextLevel, *t), append(nextFrom, int32(len(steps)))
			}
			if len(followers) == 0 && !level[k].quiet() {
				return Result{States: seen.size, Violation: stuck.String(), Trace: m.trace(first, steps[:from[k]])}
			}
			if c.Most > 0 && seen.size >= c.Most {
				return Result{States: seen.size}
			}
		}
		level, from = nextLevel, nextFrom
	}
	return Result{States: seen.size, Complete: true}
}

// stepTo says how a state was reached: from which one, by which of its successors.
type stepTo struct {
	from int32
	nth  uint8
}

// set is a hash set of 64-bit fingerprints. Two states in ten million share one with a chance of 1 in 400,000; the search
// then misses one of them.
type set struct {
	table []uint64
	size  int
}

func newSet() *set { return &set{table: make([]uint64, 1<<16)} }

// add reports whether the fingerprint is new.
func (s *set) add(h uint64) bool {
	if h == 0 {
		h = 1
	}
	if !s.put(h) {
		return false
	}
	if s.size++; s.size*4 > len(s.table)*3 {
		old := s.table
		s.table = make([]uint64, 2*len(old))
		for _, h := range old {
			if h != 0 {
				s.put(h)
			}
		}
	}
	return true
}

func (s *set) put(h uint64) bool {
	mask := uint64(len(s.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch s.table[i] {
		case 0:
			s.table[i] = h
			return true
		case h:
			return false
		}
	}
}
