package protocol

// Bounds of a state. They are panics where a case outgrows them, never silent cuts.
const (
	maxEvents = 16
	maxInbox  = 3
	maxWakes  = 8
	slots     = 2 // drives at a time, and doors at a time
)

// state is everything that a crash can't take away, plus what every process at work has in its memory. It holds nothing
// but bytes, so that it is compared and hashed as it lies in memory.
type state struct {
	journal [maxEvents]event
	cause   [maxEvents]uint8 // inbox message that the event came from, counted from 1; 0: a driver's
	length  uint8

	head head

	inbox      [maxInbox]message
	wakes      [maxWakes]message
	keyed      [maxInbox]bool // the duplicate window knows the wake-up of this inbox message's event
	keyedClose bool           // and the one for a run that was not closed

	armed  [maxEvents + 1]bool // schedule that was published for event n
	passed [maxEvents + 1]bool // the deadline in event n has passed by everybody's clock

	ahead   ahead
	entered bool // the run is in the queue of its session

	child   childAt
	order   bool // a cancel for the child lies in the inbox
	stopped bool // one was sent

	told bool  // the session and the parent were seen to
	sent uint8 // how often the once tool was sent

	doors  [slots]door
	drives [slots]drive
	left   Budget

	bad violation
}

// event is a kind of journal event. What an event says beyond its kind and place does not matter here.
type event uint8

const (
	noEvent event = iota
	accepted
	turn // a model's reply, or what memory and session say at the beginning
	question
	reply
	note
	control // a cancel
	timeoutQuestion
	timeoutWait
	timeoutRun
	started
	wait
	waitTurn // for the run's turn in its session
	observation
	answer
	cancelled
	handed    // the child run is written down
	childDone // it has ended
)

var eventNames = [...]string{
	"nothing", "accepted", "turn", "question", "reply", "note", "control", "timeout of the question",
	"timeout of the wait", "timeout of the run", "started", "wait", "wait for its turn", "observation", "answer", "cancelled",
	"child", "child that has ended",
}

func (e event) String() string { return eventNames[e] }

func (e event) final() bool { return e == answer || e == cancelled }

func (e event) scheduled() bool { return e == question || e == wait }

// head is the run's stored state. Its revision is not a number: each drive knows whether the one it holds is current.
type head struct {
	exists, owned, closed bool
	n                     uint8
	wake, delivery        uint8 // of the owner
}

// message is one message of a work queue.
type message struct {
	status status
	count  uint8 // deliveries so far
	inline bool  // a wake-up that carries the run's first event
}

// ahead is where the run is that goes first in the session.
type ahead uint8

const (
	nobody ahead = iota
	atWork
	left // it has left the session's queue and is about to wake the next run
)

type status uint8

const (
	gone status = iota
	queued
	held
)

type violation uint8

const (
	fine violation = iota
	afterFinal
	twoFinals
	sentTwice
	hangs
	unclosed
	lostTask
	stuck
	orphan
	unstopped
)

var violationNames = [...]string{
	"nothing wrong", "an event follows the final event", "two final events", "a once tool was sent twice",
	"the run hangs: it has not ended, and nothing will move it any more",
	"the run has ended and is not closed, and nothing will close it any more",
	"the task was taken and no run exists", "nothing can happen, and there is work left",
	"a child run was begun, and nobody will drive it", "the run was cancelled, and its child run was not told",
}

func (v violation) String() string { return violationNames[v] }

// append adds an event, where the journal ends at n, and reports whether it did: the compare-and-append of the stream.
func (s *state) append(n uint8, e event, cause uint8) bool {
	if s.length != n {
		return false
	}
	if n == maxEvents {
		panic("protocol: a run has more events than the model has room for")
	}
	for _, earlier := range s.journal[:n] {
		if !earlier.final() {
			continue
		}
		if s.bad = afterFinal; e.final() {
			s.bad = twoFinals
		}
	}
	s.journal[n], s.cause[n] = e, cause
	s.length++
	return true
}

// publish puts a wake-up into the queue. A place is used again only where nobody remembers the message that lay there.
func (s *state) publish(inline bool) {
	for i := range s.wakes {
		if s.wakes[i].status == gone && !s.remembered(uint8(i)) {
			s.wakes[i] = message{status: queued, inline: inline}
			return
		}
	}
	panic("protocol: more wake-ups lie in the queue than the model has room for")
}

func (s *state) remembered(wake uint8) bool {
	if s.head.owned && s.head.wake == wake {
		return true
	}
	for _, d := range s.drives {
		if d.at != idle && (d.wake == wake || d.at == lookForOwner && d.other == wake) {
			return true
		}
	}
	return false
}

// quiet reports whether nothing is left that could happen.
func (s *state) quiet() bool {
	for _, m := range s.inbox {
		if m.status != gone {
			return false
		}
	}
	for _, m := range s.wakes {
		if m.status != gone {
			return false
		}
	}
	for i := range slots {
		if s.doors[i].at != doorIdle || s.drives[i].at != idle {
			return false
		}
	}
	return s.ahead == nobody && s.child != working && s.child != over && !s.order && s.armed == [maxEvents + 1]bool{}
}

// Step is one thing that the model of the case says, so that the run has to do it.
type Step uint8

// The steps of a script.
const (
	Think   Step = iota // a model turn that changes nothing
	Ask                 // a question to a person, with a deadline after which the run goes on without an answer
	Once                // a call of a once tool that can tell what became of it
	InTurn              // the run's turn in its session has to come; another run goes first
	AskOnce             // both at a time: a call that needs a yes beside one of a once tool
	Hand                // a call that a child run carries out
)

// view is the fold of a run's first n events.
type view struct {
	n             uint8
	step          int
	asked         bool  // the question of this step was put
	question      uint8 // event of the open question, or 0
	open          bool  // the call of this step has no observation
	begun         uint8 // event of its last start, or 0
	waiting       uint8 // event of the wait for its outcome, or 0
	overdue       bool  // that wait is over
	inLine        bool  // the run waits for its turn
	handed, heard bool  // the child run is written down; what became of it is
	ending, ended bool
	script        []Step
}

// fold folds the first n events.
func (m *model) fold(s *state, n uint8) view {
	v := view{script: m.Script, step: -1}
	for i, e := range s.journal[:n] {
		v.n = uint8(i) + 1
		v.apply(e)
	}
	return v
}

func (v *view) apply(e event) {
	switch e {
	case accepted, turn:
		v.advance()
	case question:
		v.asked, v.question = true, v.n
	case reply, timeoutQuestion:
		v.question = 0
		v.advanceIfDone()
	case started:
		v.begun, v.waiting, v.overdue = v.n, 0, false
	case wait:
		v.waiting = v.n
	case waitTurn:
		v.inLine = true
	case timeoutWait:
		v.overdue = true
	case observation:
		v.open = false
		v.advanceIfDone()
	case control, timeoutRun:
		v.ending, v.question, v.inLine = !v.ended, 0, false
	case handed:
		v.handed = true
	case childDone:
		v.heard = true
	case answer, cancelled:
		v.ended = true
	case note, noEvent:
	}
}

func (v *view) advanceIfDone() {
	if !v.ending && v.asked == (v.now() != Once && v.now() != Hand) && v.question == 0 && !v.open {
		v.advance()
	}
}

func (v *view) advance() {
	v.step++
	v.asked, v.begun, v.waiting, v.overdue, v.inLine, v.handed, v.heard = false, 0, 0, false, false, false, false
	v.open = v.step < len(v.script) && (v.now() == Once || v.now() == AskOnce || v.now() == Hand)
}

// now is the step of the script that the run is at; Think where it has none.
func (v *view) now() Step {
	if v.step < 0 || v.step >= len(v.script) {
		return Think
	}
	return v.script[v.step]
}

// duty is what a run owes.
type duty uint8

const (
	nothing duty = iota
	askModel
	enterSession
	putQuestion
	runCall
	awaitOutcome
	reconcile
	closeCall
	giveAnswer
	giveUp
	writeDown
	observeChild
)

// owed is what the run owes first. A question goes before the call beside it.
func (v *view) owed() duty {
	switch {
	case v.n == 0 || v.ended:
		return nothing
	case v.ending && v.open:
		return closeCall
	case v.ending:
		return giveUp
	case v.step == len(v.script):
		return giveAnswer
	case v.now() == Think:
		return askModel
	case v.inLine:
		return nothing
	case v.now() == Hand:
		return v.owedChild()
	case v.now() == InTurn:
		return enterSession
	case v.now() != Once && !v.asked:
		return putQuestion
	case v.open:
		return v.owedCall()
	default:
		return nothing
	}
}

func (v *view) owedCall() duty {
	switch {
	case v.begun == 0:
		return runCall
	case v.waiting == 0:
		return awaitOutcome
	case v.overdue:
		return reconcile
	default:
		return nothing
	}
}

// deadlines are the events whose deadlines are open: of the wait, which is the nearer one, and of the question.
func (v *view) deadlines() (wait, question uint8) {
	if v.ended || v.ending {
		return 0, 0
	}
	if v.open && !v.overdue {
		wait = v.waiting
	}
	return wait, v.question
}
