package protocol

// drive is a process at work on one wake-up. What it has in memory of the run is how many events it has folded.
type drive struct {
	at       driveAt
	wake     uint8
	delivery uint8 // with wake, the owner it claims to be
	other    uint8 // the owner's wake-up, to be looked for
	n        uint8 // events folded: the expected last sequence of its next append
	began    uint8 // n when it began
	hand     event // what it is about to append
	due      uint8 // event that the schedule in hand was published for
	basis    uint8 // start of the call that it has asked the outcome of, or 0: it has seen none
	claimed  bool  // it has claimed the run
	seen     bool  // it has looked at the child run
	current  bool  // the revision it holds is the stored one
	mine     bool  // the append whose answer was lost is in the journal
	oldBeat  bool  // its last confirmed heartbeat is older than the lease
	oldStart bool  // the moment before started was appended is older than the lease
}

// driveAt is the instruction that comes next.
type driveAt uint8

const (
	idle driveAt = iota
	claimFresh
	readHead
	lookForOwner
	readUnknown
	createHead
	claimHead
	readJournal
	enter
	schedule
	appendEvent
	checkOwner
	readOn
	unschedule
	send
	calling
	askOutcome
	rearm
	savePark
	checkPark
	closingSteps
	saveClosed
	checkClosed
	purgeSchedules
	ack
	saveHandOver
	giveBack
	wakeAfterLoss
	lookChild
	storeChild
	wakeChild
	orderChild
)

var driveNames = [...]string{
	"idle", "claim, with the event in the wake-up", "read the state", "look for the owner's wake-up",
	"read the journal of a run without a state", "create the state", "claim", "read the journal", "enter the session",
	"publish the schedule", "append", "check who owns the run", "read on", "remove the schedule",
	"check the clock and send the once call", "the call comes back", "ask what became of the call",
	"publish the schedules again", "store the parked state", "look who wrote the state",
	"tell session and parent", "store the final state", "look who wrote the final state",
	"remove the schedules", "ack", "store that the run is handed over", "give back",
	"publish a wake-up after a lost append", "look at the child run", "store the child's first event",
	"publish the child's wake-up", "cancel the child run",
}

// stepDrive is the next instruction of drive i.
func (m *model) stepDrive(s *state, i int) {
	t := *s
	d := &t.drives[i]
	act := action{who: driveActor, slot: i, what: driveNames[d.at]}
	switch d.at {
	case claimFresh, createHead, claimHead, savePark, saveClosed, saveHandOver:
		m.save(s, i, act)
		return
	case appendEvent:
		m.appendStep(s, i, act)
		return
	case readHead:
		m.meetHead(&t, d)
	case lookForOwner:
		m.meetOwner(&t, d)
	case readUnknown:
		if d.n, d.at = t.length, createHead; d.n == 0 {
			d.at = ack
		}
	case readJournal:
		d.n, d.began = t.length, t.length
		m.begin(&t, d)
	case enter:
		m.enter(&t, d)
	case schedule:
		d.due, d.at = d.n+1, appendEvent
		t.armed[d.due] = true
	case checkOwner:
		m.owns(&t, d)
	case readOn:
		m.moveOn(&t, d)
	case unschedule:
		if m.Broken == RemoveNeeded || !t.journal[d.due-1].scheduled() {
			t.armed[d.due] = false
		}
		m.decide(&t, d)
	case send:
		m.send(&t, d)
	case calling:
		m.observe(&t, d)
	case askOutcome:
		if v := m.fold(&t, d.n); t.sent == 0 {
			d.start(v.begun)
		} else {
			m.observe(&t, d)
		}
	case rearm:
		m.rearm(&t, d)
	case checkPark, checkClosed:
		m.lookAtWrite(&t, d)
	case closingSteps:
		t.told = true
		if d.at = saveClosed; m.Broken == StoreFinalFirst {
			d.at = purgeSchedules
		}
	case purgeSchedules:
		for n, e := range t.journal[:d.n] {
			if e.scheduled() {
				t.armed[n+1] = false
			}
		}
		d.at = ack
	case ack:
		t.wakes[d.wake].status = gone
		*d = drive{}
		m.lostAck(s, i)
	case giveBack:
		if w := &t.wakes[d.wake]; w.status == held { // a late one too: the message is delivered again
			w.status = queued
		}
		*d = drive{}
	case wakeAfterLoss:
		t.publish(false)
		t.aside(d)
	case lookChild:
		m.lookAtChild(&t, d)
	case storeChild:
		m.storeChild(&t, d)
	case wakeChild:
		m.wakeChild(&t, d)
	case orderChild:
		t.order, t.stopped = true, true
		d.hand, d.at = observation, appendEvent
	case idle:
		return
	}
	m.add(act, t)
}

// aside ends a drive that neither acks nor gives back: its message is delivered again when the lease is over.
func (s *state) aside(d *drive) {
	if w := &s.wakes[d.wake]; s.holds(d) {
		w.status = queued
	}
	*d = drive{}
}

// holds reports whether the drive's delivery is the message's newest and its lease has not passed.
func (s *state) holds(d *drive) bool {
	w := s.wakes[d.wake]
	return w.status == held && w.count == d.delivery
}

func (s *state) owner(d *drive) bool {
	return s.head.owned && s.head.wake == d.wake && s.head.delivery == d.delivery
}

// meetHead looks at the stored state and decides whether the run may be claimed.
func (m *model) meetHead(s *state, d *drive) {
	h := s.head
	d.current = true
	switch {
	case !h.exists:
		d.at = readUnknown
	case h.closed:
		d.at = ack
	case !h.owned || h.wake == d.wake && h.delivery < d.delivery:
		d.at = claimHead
	case h.wake == d.wake:
		s.aside(d)
	default:
		d.at, d.other = lookForOwner, h.wake
	}
}

// meetOwner has a wake-up other than the owner's. While that one exists, ours is handed back; to keep deliveries bounded,
// as if it had not been delivered, which nobody can tell from it: it was not claimed with.
func (m *model) meetOwner(s *state, d *drive) {
	w := &s.wakes[d.wake]
	switch {
	case s.wakes[d.other].status == gone:
		d.at = claimHead
	case m.Broken == AckBusy:
		d.at = ack
	case s.holds(d):
		w.status, w.count = queued, max(w.count-1, 1)
		*d = drive{}
	default:
		d.at = giveBack
	}
}

// lostAck is an acknowledgement that never reaches the server.
func (m *model) lostAck(s *state, i int) {
	if s.left.Lost == 0 {
		return
	}
	t := *s
	t.left.Lost--
	t.aside(&t.drives[i])
	m.add(action{who: driveActor, slot: i, what: "ack, which is lost"}, t)
}
