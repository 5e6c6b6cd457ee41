package protocol

// door is a process at work on one inbox message.
type door struct {
	at       doorAt
	message  uint8
	delivery uint8
	n        uint8 // events it has read; the event it appended or found
}

// doorAt is the instruction that comes next.
type doorAt uint8

const (
	doorIdle doorAt = iota
	doorBegin
	doorRead
	doorAppend
	doorWake
	doorWakeUnclosed
	doorAck
)

var doorNames = [...]string{
	"idle", "append the first event", "read state and journal", "append the event", "publish the wake-up for its event",
	"publish a wake-up for a run that is not closed", "ack",
}

// Kind is what an inbox message is.
type Kind uint8

// The kinds of inbox messages. A reply names no question: it answers the open one, or is a note.
const (
	Task Kind = iota
	Reply
	Cancel
)

// doorTries is the delivery from which on a failing message is put aside. The engine's number is greater; a small one
// reaches the same states with fewer faults.
const doorTries = 2

// stepDoor is the next instruction of door i.
func (m *model) stepDoor(s *state, i int) {
	t := *s
	d := &t.doors[i]
	act := action{who: doorActor, slot: i, what: doorNames[d.at]}
	switch d.at {
	case doorBegin:
		if t.append(0, accepted, d.message+1) {
			d.n, d.at = 1, doorWake
			m.loseAnswer(s, &t, i, act)
		} else {
			d.at = doorRead
		}
		m.add(act, t)
	case doorRead:
		m.judge(&t, d)
		m.add(act, t)
	case doorAppend:
		e, _ := m.verdict(&t, d)
		if t.append(d.n, e, d.message+1) {
			d.n++
			m.loseAnswer(s, &t, i, act)
			d.at = m.afterAppend(&t, d)
		} else {
			d.at = doorRead
		}
		m.add(act, t)
	case doorWake:
		m.wake(s, t, i, act)
	case doorWakeUnclosed:
		if !t.keyedClose {
			t.keyedClose = true
			t.publish(false)
		}
		d.at = doorAck
		m.add(act, t)
	case doorAck:
		t.inbox[d.message].status = gone
		*d = door{}
		m.add(act, t)
		m.loseAck(s, i)
	case doorIdle:
	}
}

// judge is what the door does about a message, given the journal: state first, then journal, read in one step here, since
// a state that is not closed yet costs no more than a wake-up.
func (m *model) judge(s *state, d *door) {
	d.n = s.length
	for i := range s.length {
		if s.cause[i] == d.message+1 { // delivered again: it finds its own event
			d.n = i + 1
			d.at = m.afterAppend(s, d)
			return
		}
	}
	e, v := m.verdict(s, d)
	switch {
	case e != noEvent:
		d.at = doorAppend
	case v.ended && !s.head.closed:
		d.at = doorWakeUnclosed
	default:
		d.at = doorAck
	}
}

// verdict is the event that the door makes of its message for the run as it has read it.
func (m *model) verdict(s *state, d *door) (event, view) {
	v := m.fold(s, d.n)
	switch kind := m.Inbox[d.message]; {
	case kind == Task || v.ended:
		return noEvent, v
	case kind == Cancel && !v.ending:
		return control, v
	case kind == Cancel || v.ending || v.n == 0:
		return noEvent, v
	case v.question > 0:
		return reply, v
	default:
		return note, v
	}
}

// afterAppend says whether event n turned a run that owed nothing into one that owes something.
func (m *model) afterAppend(s *state, d *door) doorAt {
	before, after := m.fold(s, d.n-1), m.fold(s, d.n)
	if before.owed() != nothing || after.owed() == nothing {
		return doorAck
	}
	return doorWake
}

// wake publishes the wake-up for the door's event. Under the same key it is stored once.
func (m *model) wake(s *state, t state, i int, act action) {
	d := &t.doors[i]
	if m.Broken == AckBeforeWake && t.inbox[d.message].status != gone {
		t.inbox[d.message].status = gone
		m.add(action{who: doorActor, slot: i, what: "ack before the wake-up"}, t)
		return
	}
	message := d.message
	store := func(t *state) { t.publish(t.journal[t.doors[i].n-1] == accepted) }
	if !t.keyed[message] {
		t.keyed[message] = true
		store(&t)
	} else if t.left.Double > 0 {
		later := t
		later.left.Double--
		store(&later)
		later.doors[i].at = doorAck
		m.add(action{who: doorActor, slot: i, what: "publish the wake-up again, after the duplicate window"}, later)
	}
	d.at = doorAck
	m.add(act, t)
	if s.left.Fail > 0 {
		failed := *s
		failed.left.Fail--
		m.doorFailed(&failed, i, action{who: doorActor, slot: i, what: "can't publish the wake-up"})
	}
}

// doorFailed gives the message back. One that failed too often is put aside, unless its event is stored.
func (m *model) doorFailed(t *state, i int, act action) {
	d := &t.doors[i]
	msg := &t.inbox[d.message]
	switch {
	case m.Broken == BuryStored && d.delivery >= doorTries:
		msg.status, act.then = gone, "and puts the message aside as a dead letter"
	case msg.status == held:
		msg.status, act.then = queued, "and gives the message back"
	}
	*d = door{}
	m.add(act, *t)
}

// loseAnswer is an append that was stored and looks failed to the door, which can't find out either.
func (m *model) loseAnswer(s, stored *state, i int, act action) {
	if s.left.Lost == 0 {
		return
	}
	t := *stored
	t.left.Lost--
	act.then = "whose answer is lost,"
	m.doorFailed(&t, i, act)
}

// loseAck is an acknowledgement that never reaches the server.
func (m *model) loseAck(s *state, i int) {
	if s.left.Lost == 0 {
		return
	}
	t := *s
	t.left.Lost--
	msg := &t.inbox[t.doors[i].message]
	if msg.status == held && msg.count == t.doors[i].delivery {
		msg.status = queued
	}
	t.doors[i] = door{}
	m.add(action{who: doorActor, slot: i, what: "ack, which is lost"}, t)
}
