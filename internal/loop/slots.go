package loop

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// slots counts who has the worker's slots: by tenant, for the cap on each, and by group of tenants, for fairness among them.
type slots struct {
	mu      *sync.Mutex
	cap     int // runs of a tenant at once; 0: no limit
	tenants map[string]holding
	groups  map[int]int
	owing   int // the group that was asked to give up a slot, or nobody
	turned  map[string]turnedAway
}

// holding is how many slots a tenant has.
type holding struct{ slots, group int }

// nobody is no group.
const nobody = -1

// turnedAway is what is remembered of a tenant whose wake-ups were handed back because it has all the slots it may have.
type turnedAway struct {
	next time.Time // when the next of them comes back
	best Rank      // of those, the rank that goes first
	till time.Time // until then a slot is kept for it
}

// The pace at which wake-ups of a tenant with all its slots come back: one every turnPace, the first after turnDelay. A
// backlog of any length costs no more than that.
const (
	turnPace  = 10 * time.Millisecond
	turnDelay = 100 * time.Millisecond
)

func newSlots(limit int) slots {
	return slots{
		mu: new(sync.Mutex), cap: limit, tenants: map[string]holding{}, groups: map[int]int{}, owing: nobody,
		turned: map[string]turnedAway{},
	}
}

// wakeHandler returns what handles a wake-up, unless its tenant has as many runs in hand as it may.
func (w *Worker) wakeHandler(taking, work context.Context) func(*Delivery) {
	return func(d *Delivery) {
		if w.seated(d) {
			defer w.slots.leave(d)
			w.take(taking, work, d)
		}
	}
}

// seated gives a wake-up its slot, or hands it back.
func (w *Worker) seated(d *Delivery) bool {
	delay, ok := w.slots.take(d, time.Now())
	if !ok {
		w.giveBack(w.Log.Warn, d, delay)
	}
	return ok
}

// take enters a wake-up, or says after what time it is to come back. Jobs of the workers are not capped.
func (s *slots) take(d *Delivery, now time.Time) (delay time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cap > 0 && ValidID(d.Run) {
		t, known := s.turned[d.Tenant]
		kept := known && now.Before(t.till) && t.best.before(d.Rank)
		if s.tenants[d.Tenant].slots >= s.cap || kept {
			return s.turnAway(d, now), false
		}
		if known && !t.best.before(d.Rank) {
			t.till = now // it was kept for this one
			s.turned[d.Tenant] = t
		}
	}
	if ValidID(d.Run) {
		s.tenants[d.Tenant] = holding{s.tenants[d.Tenant].slots + 1, d.Group}
	}
	s.groups[d.Group]++
	return 0, true
}

// turnAway paces the return of what is more than a tenant may have. What goes first comes back soon, and the next free slot
// of the tenant is kept for it.
func (s *slots) turnAway(d *Delivery, now time.Time) time.Duration {
	t := s.turned[d.Tenant]
	if now.After(t.till) || d.Rank.before(t.best) {
		t.best = d.Rank
	}
	delay := turnDelay
	if d.Rank == RankNormal || d.Rank == RankLow {
		if earliest := now.Add(turnDelay); t.next.Before(earliest) {
			t.next = earliest
		}
		t.next = t.next.Add(turnPace)
		delay = t.next.Sub(now)
	}
	if d.Rank == t.best {
		t.till = now.Add(2 * turnDelay)
	}
	s.turned[d.Tenant] = t
	s.forgetPast(now)
	return delay
}

// forgetPast keeps the memory of tenants that were turned away small.
func (s *slots) forgetPast(now time.Time) {
	if len(s.turned) > 2*len(s.tenants)+16 {
		maps.DeleteFunc(s.turned, func(_ string, t turnedAway) bool { return now.After(t.till) && now.After(t.next) })
	}
}

func (s *slots) leave(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ValidID(d.Run) {
		h := s.tenants[d.Tenant]
		if h.slots--; h.slots == 0 {
			delete(s.tenants, d.Tenant)
		} else {
			s.tenants[d.Tenant] = h
		}
	}
	if s.groups[d.Group]--; s.groups[d.Group] == 0 {
		delete(s.groups, d.Group)
	}
}

// most returns the group with the most slots and how many those are.
func (s *slots) most() (group, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	group = nobody
	for g, k := range s.groups {
		if g >= 0 && k > n {
			group, n = g, k
		}
	}
	return group, n
}

func (s *slots) ofGroup(group int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[group]
}

// mostOf returns how many slots the tenant of a group has that has the most.
func (s *slots) mostOf(group int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mostIn(group)
}

func (s *slots) mostIn(group int) (n int) {
	for _, h := range s.tenants {
		if h.group == group {
			n = max(n, h.slots)
		}
	}
	return n
}

// isBehind reports whether the tenant of a wake-up would still have fewer slots than another of its group if it were given
// one of that one's.
func (s *slots) isBehind(d *Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ValidID(d.Run) && s.tenants[d.Tenant].slots+1 < s.mostIn(d.Group)
}

// ask wants a slot of the group back; whichever run of a tenant that has most of them comes to the end of a step first gives
// way. nobody takes the wish back.
func (s *slots) ask(group int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owing = group
}

// owes reports whether a run has to give way. It is true for one of the group that was asked.
func (s *slots) owes(d *Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owing != d.Group || d.Group < 0 || s.tenants[d.Tenant].slots < s.mostIn(d.Group) {
		return false
	}
	s.owing = nobody
	return true
}

// givesWay reports whether the drive is to hand its run over between two steps, for a tenant that has fewer slots. It has
// made a step, so that runs move on however often they give way, and its next would take long.
func (dr *drive) givesWay(duties []Duty) bool {
	if dr.state.N == dr.began || dr.stopping() || !dr.flights.empty() && !dr.flights.only(saveKey) {
		return false
	}
	long := slices.ContainsFunc(duties, func(d Duty) bool {
		switch d.(type) {
		case Recall, AskModel, RunCall, Reconcile:
			return true
		default:
			return false
		}
	})
	return long && dr.w.slots.owes(dr.d)
}

// before reports whether r goes before another rank.
func (r Rank) before(other Rank) bool {
	order := []Rank{RankBegun, RankHigh, RankNormal, RankLow}
	return slices.Index(order, r) < slices.Index(order, other)
}
