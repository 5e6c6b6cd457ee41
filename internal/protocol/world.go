package protocol

// What happens to the processes rather than by them: deliveries, time, schedules, and faults as far as the budget goes.

// Budget is how often each kind of fault may happen in a case.
type Budget struct {
	Crash    uint8 // a drive or door ends between two instructions
	Freeze   uint8 // one stops for longer than its lease, and goes on later
	Lost     uint8 // the answer to an append or a write of the state is lost, or an ack does not reach the server
	Early    uint8 // a schedule fires before its time
	Double   uint8 // a schedule fires and stays; or a wake-up is published again after the duplicate window
	HandOver uint8 // a worker shuts down and hands a run over
	Fail     uint8 // the wake-up of a door's event can't be published
	TimeUp   uint8 // the run's own timeout passes while something is in flight
}

// spend takes one from a budget and reports whether there was one.
func spend(left *uint8) bool {
	if *left == 0 {
		return false
	}
	*left--
	return true
}

func (m *model) world(s *state) {
	m.deliver(s)
	m.timePasses(s)
	m.fire(s)
	m.leave(s)
	m.stepChild(s)
	for i := range slots {
		if s.doors[i].at != doorIdle {
			m.stepDoor(s, i)
			m.doorFaults(s, i)
		}
		if s.drives[i].at != idle {
			m.stepDrive(s, i)
			m.driveFaults(s, i)
		}
	}
}

func (m *model) deliver(s *state) {
	for i := range max(m.Doors, 1) {
		if s.doors[i].at != doorIdle {
			continue
		}
		for j, msg := range s.inbox {
			if msg.status != queued {
				continue
			}
			t := *s
			t.inbox[j].status, t.inbox[j].count = held, min(msg.count+1, 2*doorTries)
			t.doors[i] = door{at: doorRead, message: uint8(j), delivery: t.inbox[j].count}
			if m.Inbox[j] == Task {
				t.doors[i].at = doorBegin
			}
			m.add(action{who: doorActor, slot: i, what: "takes inbox message", number: uint8(j) + 1}, t)
		}
		break // doors that have nothing in hand are alike
	}
	for i := range s.drives {
		if s.drives[i].at != idle {
			continue
		}
		for j, msg := range s.wakes {
			if msg.status != queued {
				continue
			}
			t := *s
			t.wakes[j].status, t.wakes[j].count = held, msg.count+1
			t.drives[i] = drive{at: readHead, wake: uint8(j), delivery: msg.count + 1}
			if msg.inline && msg.count == 0 {
				t.drives[i].at = claimFresh
			}
			m.add(action{who: driveActor, slot: i, what: takesWake, number: uint8(j) + 1}, t)
		}
		break
	}
}

// timePasses lets an open deadline pass. A wait for an outcome is longer than the lease, so whatever moment a drive has
// noted before it is too old now.
func (m *model) timePasses(s *state) {
	v := m.fold(s, s.length)
	w, q := v.deadlines()
	for _, n := range [...]uint8{w, q} {
		if n == 0 || s.passed[n] || q == n && w > 0 && !s.passed[w] {
			continue
		}
		t := *s
		t.pass(n)
		m.add(action{who: worldActor, what: "the deadline passes that is in event", number: n}, t)
	}
}

func (s *state) pass(n uint8) {
	s.passed[n] = true
	for i := range s.drives {
		if s.drives[i].at != idle {
			s.drives[i].oldStart = true
		}
	}
}

// leave lets the run that goes first leave the session, and then wake the one that is in line.
func (m *model) leave(s *state) {
	t := *s
	switch s.ahead {
	case atWork:
		t.ahead = left
		m.add(action{what: "the run before it leaves the session"}, t)
	case left:
		if t.ahead = nobody; t.entered {
			t.publish(false)
		}
		m.add(action{what: "the run before it wakes the next one in line"}, t)
	case nobody:
	}
}

// fire turns armed schedules into wake-ups.
func (m *model) fire(s *state) {
	v := m.fold(s, s.length)
	w, q := v.deadlines()
	for n := range uint8(len(s.armed)) {
		if s.armed[n] {
			m.fireOne(s, n, (n == w || n == q) && !s.passed[n])
		}
	}
}

func (m *model) fireOne(s *state, n uint8, early bool) {
	t := *s
	act := action{who: worldActor, what: "the schedule fires of event", number: n}
	if early {
		if act.then = "before its time"; !spend(&t.left.Early) {
			return
		}
	}
	t.publish(false)
	if u := t; spend(&u.left.Double) {
		again := act
		again.then = "and stays armed"
		m.add(again, u)
	}
	t.armed[n] = false
	if n > t.length { // it was published, its event is not stored yet
		t.pass(n)
	}
	m.add(act, t)
}

func (m *model) doorFaults(s *state, i int) {
	d := &s.doors[i]
	mine := s.inbox[d.message].status == held && s.inbox[d.message].count == d.delivery
	if t := *s; spend(&t.left.Crash) {
		if mine {
			t.inbox[d.message].status = queued
		}
		t.doors[i] = door{}
		m.add(action{who: doorActor, slot: i, what: "crashes"}, t)
	}
	if t := *s; mine && spend(&t.left.Freeze) {
		t.inbox[d.message].status = queued
		m.add(action{who: doorActor, slot: i, what: "freezes for longer than its lease"}, t)
	}
}

func (m *model) driveFaults(s *state, i int) {
	if t := *s; spend(&t.left.Crash) {
		t.aside(&t.drives[i])
		m.add(action{who: driveActor, slot: i, what: "crashes"}, t)
	}
	if !s.holds(&s.drives[i]) {
		m.zombie(s, i)
	} else if t := *s; spend(&t.left.Freeze) {
		d := &t.drives[i]
		t.wakes[d.wake].status, d.oldBeat, d.oldStart = queued, true, true
		m.add(action{who: driveActor, slot: i, what: "freezes for longer than its lease"}, t)
	}
	m.handOver(s, i)
	d := &s.drives[i]
	if t := *s; (d.at == calling || d.at == appendEvent && d.hand == turn) && spend(&t.left.TimeUp) {
		t.drives[i].hand, t.drives[i].at = timeoutRun, appendEvent
		m.add(action{who: driveActor, slot: i, what: "finds that the run has worked for too long"}, t)
	}
}

// zombie is what may happen to a drive whose message is no longer its own: a heartbeat of its is confirmed, and sooner or
// later it finds out and stops.
func (m *model) zombie(s *state, i int) {
	if t := *s; t.drives[i].oldBeat {
		t.drives[i].oldBeat = false
		m.add(action{who: driveActor, slot: i, what: "gets a late heartbeat confirmed"}, t)
	}
	t := *s
	t.aside(&t.drives[i])
	m.add(action{who: driveActor, slot: i, what: "finds that it has lost its lease, and stops"}, t)
}

// handOver is a shutdown. Before it has claimed a drive just gives its wake-up back.
func (m *model) handOver(s *state, i int) {
	switch s.drives[i].at {
	case ack, giveBack, saveHandOver, wakeAfterLoss:
		return
	default:
	}
	t := *s
	if !spend(&t.left.HandOver) {
		return
	}
	d := &t.drives[i]
	switch {
	case !d.claimed:
		d.at = giveBack
	case d.at == enter && m.Broken == ParkStopped:
		m.decide(&t, d)
	default:
		d.at = saveHandOver
	}
	m.add(action{who: driveActor, slot: i, what: "is to shut down"}, t)
}
