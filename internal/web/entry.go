package web

import (
	"html/template"
	"strings"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// clipped lengths of what the list keeps of a run, in bytes. A person who wants more opens the run.
const (
	maxGoal = 240
	maxText = 400
)

// entry is what the list knows of a run. It follows the run's events; the stored state, which is exact and comes a little
// later, overrules it.
type entry struct {
	id       loop.RunID
	status   loop.Status
	n, seq   uint64
	first    uint64 // sequence of its first event: runs are listed by it, newest first
	goal     string
	strategy string
	model    string
	user     string
	session  string
	parent   string
	worker   string
	done     int // steps of the plan that are closed
	steps    int
	usage    loop.Usage
	asked    *asked
	outcome  string // the answer's, failure's or cancellation's first words
	reason   loop.FailReason
	started  time.Time
	updated  time.Time

	paused  bool
	version uint64        // of the list when this changed last
	row     template.HTML // its line as HTML, made when it is shown; empty after a change
}

// asked is an open question.
type asked struct {
	id       string
	kind     loop.QuestionKind
	deadline time.Time
}

// key is an id for HTML, unique among runs: tenants and runs are letters, digits, - and _, so a dot separates them.
func key(id loop.RunID) string { return id.Tenant + "." + id.Run }

// adopt takes over a stored state.
func (e *entry) adopt(h loop.Head) {
	e.status, e.n, e.seq, e.first = h.Status, h.N, h.Seq, h.First
	e.goal, e.strategy, e.model, e.user, e.session = clip(h.Goal, maxGoal), h.Strategy, h.Model, h.User, h.Session
	e.usage, e.started, e.updated, e.reason = h.Usage, h.Started, h.Updated, h.Reason
	e.countPlan(h.Plan)
	e.asked = nil
	if q := h.Question; q != nil {
		e.asked = &asked{q.Question, q.Kind, q.Deadline}
	}
	e.paused = h.Status == loop.StatusPaused
	e.outcome = clip(h.Answer+h.Message, maxText)
	if h.Owner != nil {
		e.worker = h.Owner.Worker
	}
}

// apply follows an event.
func (e *entry) apply(ev loop.Event) {
	e.n, e.seq, e.updated = ev.N, ev.Seq, ev.Time
	if w := workerOf(ev.Source); w != "" {
		e.worker = w
	}
	if ev.N == 1 {
		e.first, e.started, e.status = ev.Seq, ev.Time, loop.StatusRunning
	}
	e.count(ev.Data)
	switch d := ev.Data.(type) {
	case loop.Accepted:
		e.goal, e.strategy, e.model = clip(d.Task.Goal, maxGoal), d.Task.Strategy, d.Task.Model
		e.user, e.session, e.parent = d.Task.User, d.Task.Session, d.Parent
	case loop.Plan:
		e.countPlan(d.Plan)
	case loop.Thought:
		e.countPlan(d.Plan)
	case loop.Call:
		e.countPlan(d.Plan)
	case loop.Observation:
		e.status = loop.StatusRunning
	case loop.Question:
		e.asked, e.status = &asked{d.Question, d.Kind, d.Deadline}, loop.StatusWaiting
	case loop.Reply:
		e.asked, e.status = nil, loop.StatusRunning
	case loop.Timeout:
		if d.What == loop.TimeoutQuestion {
			e.asked = nil
		}
		e.status = loop.StatusRunning
	case loop.Wait:
		e.status = loop.StatusWaiting
	case loop.Control:
		e.steer(d.Op)
	case loop.Answer:
		e.end(loop.StatusDone, d.Answer, d.Usage)
	case loop.Failed:
		e.reason = d.Reason
		e.end(loop.StatusFailed, d.Message, d.Usage)
	case loop.Cancelled:
		e.end(loop.StatusCancelled, d.Reason, e.usage)
	case loop.Facts, loop.Rejection, loop.Reflection, loop.Started, loop.Note, loop.Child, loop.Summary:
	}
	if e.paused && !e.status.Final() {
		e.status = loop.StatusPaused
	}
}

func (e *entry) steer(op loop.ControlOp) {
	e.paused = op == loop.OpPause
	switch {
	case op == loop.OpCancel:
		e.asked, e.status = nil, loop.StatusRunning
	case e.paused:
		e.status = loop.StatusPaused
	case e.asked != nil:
		e.status = loop.StatusWaiting
	default:
		e.status = loop.StatusRunning
	}
}

func (e *entry) end(status loop.Status, words string, usage loop.Usage) {
	e.status, e.outcome, e.asked, e.paused = status, clip(words, maxText), nil, false
	if usage.Total() > 0 {
		e.usage = usage
	}
}

func (e *entry) countPlan(p plan.Plan) {
	if len(p) == 0 {
		return
	}
	e.steps, e.done = len(p), 0
	for _, s := range p {
		if s.Status.Closed() {
			e.done++
		}
	}
}

// count adds up what model calls cost.
func (e *entry) count(d loop.Data) {
	if made, ok := madeBy(d); ok {
		if made.Usage != nil {
			e.usage = e.usage.Add(*made.Usage)
		}
		if made.Model != "" {
			e.model = made.Model
		}
	}
}

// madeBy returns what a model-made event says of its call.
func madeBy(d loop.Data) (loop.Made, bool) {
	switch d := d.(type) {
	case loop.Plan:
		return d.Made, true
	case loop.Thought:
		return d.Made, true
	case loop.Call:
		return d.Made, true
	case loop.Rejection:
		return d.Made, true
	case loop.Reflection:
		return d.Made, true
	case loop.Accepted, loop.Facts, loop.Started, loop.Observation, loop.Question, loop.Reply, loop.Note, loop.Control,
		loop.Timeout, loop.Wait, loop.Child, loop.Summary, loop.Answer, loop.Failed, loop.Cancelled:
	}
	return loop.Made{}, false
}

// workerOf returns the worker's name in an event's source.
func workerOf(source string) string {
	if i := strings.LastIndexByte(source, '/'); i >= 0 {
		return source[i+1:]
	}
	return source
}

// clip cuts a text at a number of bytes, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
