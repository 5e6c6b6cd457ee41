package protocol

// begin looks once whether the turn of a waiting run has come, and goes on with what is overdue or owed.
func (m *model) begin(s *state, d *drive) {
	if v := m.fold(s, d.n); v.inLine {
		d.hand, d.at = noEvent, enter
		return
	}
	m.overdue(s, d)
}

// enter puts the run into the queue of its session and waits for its turn if another run goes first.
func (m *model) enter(s *state, d *drive) {
	s.entered = true
	v := m.fold(s, d.n)
	switch {
	case s.ahead != atWork:
		d.hand, d.at = turn, appendEvent
	case v.inLine:
		m.decide(s, d)
	default:
		d.hand, d.at = waitTurn, appendEvent
	}
}

// overdue writes down a deadline that has passed, before anything else is done.
func (m *model) overdue(s *state, d *drive) {
	v := m.fold(s, d.n)
	switch w, q := v.deadlines(); {
	case w > 0 && s.passed[w]:
		d.hand, d.at = timeoutWait, appendEvent
	case q > 0 && s.passed[q]:
		d.hand, d.at = timeoutQuestion, appendEvent
	default:
		m.decide(s, d)
	}
}

// decide begins what the run owes, parks it, or closes it.
func (m *model) decide(s *state, d *drive) {
	v := m.fold(s, d.n)
	d.hand, d.due, d.basis, d.mine = noEvent, 0, 0, false
	switch v.owed() {
	case askModel:
		d.hand, d.at = turn, appendEvent
	case enterSession:
		d.at = enter
	case putQuestion:
		d.hand, d.at = question, schedule
	case runCall:
		d.start(0)
	case awaitOutcome:
		if d.hand, d.at = wait, schedule; m.Broken == NoWait {
			d.at = askOutcome
		}
	case reconcile:
		d.at = askOutcome
	case closeCall:
		if d.hand, d.at = observation, appendEvent; v.handed && !v.heard && m.Broken != NoOrder {
			d.hand, d.at = noEvent, orderChild
		}
	case writeDown:
		d.hand, d.at = handed, appendEvent
	case observeChild:
		d.hand, d.at = observation, appendEvent
	case giveAnswer:
		d.hand, d.at = answer, appendEvent
	case giveUp:
		d.hand, d.at = cancelled, appendEvent
	case nothing:
		switch {
		case v.ended && m.Broken == StoreFinalFirst:
			d.at = saveClosed
		case v.ended:
			d.at = closingSteps
		case v.waits() && !d.seen && (m.Broken != NoLook || d.n != d.began):
			d.at = lookChild
		case m.Broken == NoRearm || m.Broken == RearmNearest && d.n != d.began:
			d.at = savePark
		default:
			d.at = rearm
		}
	}
}

// start notes the moment and is about to write down that the call is sent. basis is the start that was found not to have
// come to anything.
func (d *drive) start(basis uint8) {
	d.hand, d.at, d.basis, d.oldStart = started, appendEvent, basis, false
}

// observe is about to write down what came of the call, if nobody has.
func (m *model) observe(s *state, d *drive) {
	if v := m.fold(s, d.n); !v.open || v.ended {
		m.decide(s, d)
		return
	}
	d.hand, d.at = observation, appendEvent
}

// appendStep appends what is in hand if nobody else moved the run on.
func (m *model) appendStep(s *state, i int, act action) {
	t := *s
	d := &t.drives[i]
	act.event = d.hand
	if !t.append(d.n, d.hand, 0) {
		act.then = "is too late"
		if d.at = checkOwner; m.Broken == AckAfterLoss {
			d.at = ack
		}
		m.add(act, t)
		return
	}
	if s.left.Lost > 0 {
		lost, act := t, act
		lost.left.Lost--
		lost.drives[i].at, lost.drives[i].mine = checkOwner, true
		act.then = "whose answer is lost"
		m.add(act, lost)
	}
	d.n++
	m.stored(&t, d)
	m.add(act, t)
}

// stored goes on after the event in hand was stored.
func (m *model) stored(s *state, d *drive) {
	d.mine = false
	switch d.hand {
	case started:
		d.at = send
	case handed:
		d.at = lookChild
	case timeoutQuestion, timeoutWait:
		m.overdue(s, d)
	default:
		m.decide(s, d)
	}
}

// owns steps aside where the run has another owner. Who had published a schedule for the lost event may have replaced the
// owner's, and wakes the run first.
func (m *model) owns(s *state, d *drive) {
	switch {
	case s.owner(d):
		d.at = readOn
	case d.hand.scheduled():
		d.at = wakeAfterLoss
	default:
		s.aside(d)
	}
}

// moveOn folds what others appended and looks whether what is in hand is still owed.
func (m *model) moveOn(s *state, d *drive) {
	d.n = s.length
	v := m.fold(s, d.n)
	switch {
	case d.mine: // whatever followed it
		m.stored(s, d)
	case m.stillOwed(v, d) && d.hand == started:
		d.start(d.basis)
	case m.stillOwed(v, d):
		d.at = appendEvent
	case d.hand.scheduled():
		d.at = unschedule
	case d.hand == noEvent:
		m.begin(s, d)
	case d.hand == timeoutQuestion || d.hand == timeoutWait:
		m.overdue(s, d)
	default:
		m.decide(s, d)
	}
}

func (m *model) stillOwed(v view, d *drive) bool {
	w, q := v.deadlines()
	switch d.hand {
	case turn:
		return v.owed() == askModel || v.now() == InTurn && !v.ending && !v.ended
	case waitTurn:
		return v.owed() == enterSession
	case question:
		return v.owed() == putQuestion && d.due == v.n+1
	case wait:
		return v.owed() == awaitOutcome && d.due == v.n+1
	case started:
		owed := v.begun == 0 || v.overdue
		return owed && v.open && !v.ending && !v.ended && (v.begun == d.basis || m.Broken == StaleOutcome)
	case observation:
		return v.open && !v.ended
	case handed:
		return v.owed() == writeDown
	case childDone:
		return v.waits()
	case timeoutWait:
		return w > 0
	case timeoutQuestion:
		return q > 0 && w == 0
	case timeoutRun:
		return !v.ending && (!v.ended || m.Broken == TimeoutAfterEnd)
	case answer:
		return v.owed() == giveAnswer
	case cancelled:
		return v.owed() == giveUp
	default:
		return false
	}
}

// send sends the once call, if the drive can still be the owner by its own clock. Between the check and the sending
// nothing happens here: a process stopped right there is beyond what the protocol can promise.
func (m *model) send(s *state, d *drive) {
	if m.Broken != NoClock && (d.oldBeat || d.oldStart) {
		s.aside(d)
		return
	}
	if s.sent++; s.sent > 1 {
		s.bad = sentTwice
	}
	d.at = calling
}

// rearm publishes the schedules of deadlines that were open when the drive began again: its wake-up may have been one of
// them, fired early.
func (m *model) rearm(s *state, d *drive) {
	v := m.fold(s, d.n)
	w, q := v.deadlines()
	if m.Broken == RearmNearest && w > 0 {
		q = 0
	}
	for _, n := range [...]uint8{w, q} {
		if n > 0 && n <= d.began {
			s.armed[n] = true
		}
	}
	d.at = savePark
}
