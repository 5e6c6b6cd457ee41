package web

import (
	"cmp"
	"html/template"
	"slices"
	"strings"
	"sync"
	"time"

	"ratchet/internal/loop"
)

const (
	// maxRuns is how many runs the list holds: about a kilobyte each. Beyond it the oldest that have ended leave.
	maxRuns = 20_000
	// dropAtOnce is how many of them leave together.
	dropAtOnce = maxRuns / 20
	// maxWorkers is how many names of workers are remembered.
	maxWorkers = 500
)

// filter says which runs are wanted. Empty fields want all.
type filter struct {
	Tenant, Status, Strategy, Text string
}

// open is the status that stands for all that have not ended.
const statusOpen = "open"

// statusAsked stands for those with an open question.
const statusAsked = "asked"

func (f filter) matches(e *entry) bool {
	return (f.Tenant == "" || f.Tenant == e.id.Tenant) && (f.Strategy == "" || f.Strategy == e.strategy) &&
		statusMatches(f.Status, e) && f.textMatches(e)
}

func statusMatches(status string, e *entry) bool {
	switch status {
	case "":
		return true
	case statusOpen:
		return !e.status.Final()
	case statusAsked:
		return e.asked != nil
	default:
		return status == string(e.status)
	}
}

func (f filter) textMatches(e *entry) bool {
	if f.Text == "" {
		return true
	}
	text := strings.ToLower(f.Text)
	for _, field := range []string{e.id.Run, e.user, e.session, e.outcome} {
		if strings.Contains(strings.ToLower(field), text) {
			return true
		}
	}
	return strings.Contains(strings.ToLower(e.goal), text)
}

// seenWorker is a worker that made events while this process looked.
type seenWorker struct {
	Name   string
	Last   time.Time
	Events int
	Runs   int // in hand now
}

// index is the list of runs. It is safe for concurrent use.
type index struct {
	mu      sync.RWMutex
	runs    map[loop.RunID]*entry
	order   []*entry // by first, oldest first
	version uint64   // counts changes
	seq     uint64   // of the newest event it contains
	counts  map[loop.Status]int
	asks    int // runs with an open question
	left    int // runs that had to leave for want of room
	workers map[string]*seenWorker
}

func newIndex() *index {
	x := &index{workers: map[string]*seenWorker{}}
	x.clear()
	return x
}

// clear forgets all runs.
func (x *index) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.runs, x.order, x.counts = map[loop.RunID]*entry{}, nil, map[loop.Status]int{}
	x.seq, x.asks, x.left = 0, 0, 0
	x.version++
}

// apply takes an event in. known is false where the run's beginning is not known: its state should be looked up.
func (x *index) apply(ev loop.Event) (known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seq = max(x.seq, ev.Seq)
	x.sawWorker(ev)
	e := x.runs[ev.RunID]
	if e == nil {
		e = x.add(ev.RunID, ev.Seq)
	} else if ev.Seq <= e.seq {
		return true
	}
	x.change(e, func() { e.apply(ev) })
	return ev.N == 1 || e.strategy != ""
}

// adopt takes stored states in, where they are not older than what is known.
func (x *index) adopt(heads []loop.Head) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range heads {
		if h.Unreadable {
			continue
		}
		id := loop.RunID{Tenant: h.Tenant, Run: h.Run}
		e := x.runs[id]
		switch {
		case e == nil:
			e = x.add(id, h.First)
		case h.Seq < e.seq:
			continue
		case e.first != h.First:
			x.take(e)
			e.first = h.First
			x.place(e)
		}
		x.change(e, func() { e.adopt(h) })
	}
}

func (x *index) add(id loop.RunID, first uint64) *entry {
	if len(x.runs) >= maxRuns {
		x.makeRoom()
	}
	e := &entry{id: id, first: first}
	x.runs[id] = e
	x.counts[""]++
	x.place(e)
	return e
}

// change counts a run where it was, changes it, and counts it where it is now.
func (x *index) change(e *entry, f func()) {
	x.count(e, -1)
	f()
	x.count(e, 1)
	x.version++
	e.version, e.row = x.version, ""
}

func (x *index) count(e *entry, by int) {
	x.counts[e.status] += by
	if e.asked != nil {
		x.asks += by
	}
}

func byFirst(e *entry, first uint64) int { return cmp.Compare(e.first, first) }

func (x *index) place(e *entry) {
	i := len(x.order)
	if i > 0 && x.order[i-1].first > e.first {
		i, _ = slices.BinarySearchFunc(x.order, e.first, byFirst)
	}
	x.order = slices.Insert(x.order, i, e)
}

func (x *index) take(e *entry) {
	for i, _ := slices.BinarySearchFunc(x.order, e.first, byFirst); i < len(x.order); i++ {
		if x.order[i] == e {
			x.order = slices.Delete(x.order, i, i+1)
			return
		}
	}
}

// drop forgets a run that does not exist any more.
func (x *index) drop(id loop.RunID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.runs[id]; e != nil {
		x.forget(e)
		x.take(e)
	}
}

func (x *index) forget(e *entry) {
	x.count(e, -1)
	delete(x.runs, e.id)
	x.version++
}

// makeRoom forgets the oldest runs that have ended, and where that is not enough the oldest of all.
func (x *index) makeRoom() {
	room := dropAtOnce
	for _, ended := range []bool{true, false} {
		x.order = slices.DeleteFunc(x.order, func(e *entry) bool {
			if room == 0 || ended && !e.status.Final() {
				return false
			}
			room--
			x.left++
			x.forget(e)
			return true
		})
	}
}

// expire forgets runs that ended before a time: their journals are gone.
func (x *index) expire(before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.order = slices.DeleteFunc(x.order, func(e *entry) bool {
		gone := e.status.Final() && e.updated.Before(before)
		if gone {
			x.forget(e)
		}
		return gone
	})
}

func (x *index) sawWorker(ev loop.Event) {
	name := workerOf(ev.Source)
	w := x.workers[name]
	if w == nil {
		if len(x.workers) >= maxWorkers {
			return
		}
		w = &seenWorker{Name: name}
		x.workers[name] = w
	}
	w.Events++
	if ev.Time.After(w.Last) {
		w.Last = ev.Time
	}
}

// page returns up to limit runs that match, newest first, that began before a sequence (0: from the newest on). next is
// where the following page begins; 0: there is none.
func (x *index) page(f filter, before uint64, limit int) (runs []entry, next uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	end := len(x.order)
	if before > 0 {
		end, _ = slices.BinarySearchFunc(x.order, before, byFirst)
	}
	for i := end - 1; i >= 0; i-- {
		if !f.matches(x.order[i]) {
			continue
		}
		if len(runs) == limit {
			return runs, runs[limit-1].first
		}
		runs = append(runs, *x.order[i])
	}
	return runs, 0
}

// facets counts the runs that match but for their status, by status, and lists the tenants and strategies there are.
type facets struct {
	Total      int
	Statuses   map[string]int
	Tenants    []string
	Strategies []string
}

func (x *index) facets(f filter) facets {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := facets{Statuses: map[string]int{}}
	tenants, strategies := map[string]bool{}, map[string]bool{}
	anyStatus := f
	anyStatus.Status = ""
	for _, e := range x.order {
		tenants[e.id.Tenant], strategies[e.strategy] = true, true
		if !anyStatus.matches(e) {
			continue
		}
		out.Statuses[string(e.status)]++
		out.Statuses[""]++
		if !e.status.Final() {
			out.Statuses[statusOpen]++
		}
		if e.asked != nil {
			out.Statuses[statusAsked]++
		}
	}
	out.Total = out.Statuses[f.Status]
	delete(strategies, "")
	out.Tenants, out.Strategies = sortedKeys(tenants), sortedKeys(strategies)
	return out
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// keepRow remembers how a run's line looks, if it has not changed since.
func (x *index) keepRow(id loop.RunID, version uint64, row template.HTML) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.runs[id]; e != nil && e.version == version {
		e.row = row
	}
}

// state is how far the list has come.
type state struct {
	version, seq uint64
	asks, runs   int
	left         int
}

func (x *index) state() state {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return state{x.version, x.seq, x.asks, len(x.runs), x.left}
}

// seenWorkers lists workers by name, with the runs that each has in hand.
func (x *index) seenWorkers() []seenWorker {
	x.mu.RLock()
	defer x.mu.RUnlock()
	inHand := map[string]int{}
	for _, e := range x.order {
		if e.status == loop.StatusRunning {
			inHand[e.worker]++
		}
	}
	out := make([]seenWorker, 0, len(x.workers))
	for _, w := range x.workers {
		seen := *w
		seen.Runs = inHand[w.Name]
		out = append(out, seen)
	}
	slices.SortFunc(out, func(a, b seenWorker) int { return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Name, b.Name)) })
	return out
}
