package protocol

// childAt is where the child run stands that the run's script hands work to. It is a run like any other, so of itself only
// what the run above can see of it is modelled.
type childAt uint8

const (
	noChild childAt = iota
	stored          // its first event is; its wake-up is not published
	working         // somebody will drive it
	over            // its final event is stored; it has not woken the run above
	closed          // it has
	tomb            // it was cancelled before it began, and nothing can begin there
)

// stepChild is what happens to the child run: it ends, it wakes the run above, and an order reaches it.
func (m *model) stepChild(s *state) {
	act := action{who: worldActor}
	switch t := *s; {
	case m.Broken == WakeParentFirst && s.child == working:
		t.child, act.what = over, "the child run wakes the run above"
		t.publish(false)
		m.add(act, t)
	case m.Broken == WakeParentFirst && s.child == over:
		t.child, act.what = closed, "the child run stores its final event"
		m.add(act, t)
	case s.child == working:
		t.child, act.what = over, "the child run ends"
		m.add(act, t)
	case s.child == over:
		act.what = "the child run wakes the run above"
		t.publish(false)
		if again := t; spend(&again.left.Double) { // its closing is done once more
			m.add(action{what: act.what, then: "and will do so again"}, again)
		}
		t.child = closed
		m.add(act, t)
	}
	if t := *s; s.order {
		t.order = false
		switch s.child {
		case noChild:
			t.child = tomb
		case stored: // the door publishes the wake-up for what is the child's second event
			if m.Broken != NoWakeForOrder {
				t.child = working
			}
		default:
		}
		m.add(action{what: "the order reaches the child run"}, t)
	}
}

// ended reports whether the child run can be seen to have ended.
func (m *model) childEnded(s *state) bool {
	return s.child == closed || s.child == tomb || s.child == over && m.Broken != WakeParentFirst
}

// lookAtChild begins the child run that is written down, or looks whether it has ended.
func (m *model) lookAtChild(s *state, d *drive) {
	switch {
	case s.child == noChild:
		d.at = storeChild
	case s.child == stored:
		d.at = wakeChild
	case m.childEnded(s):
		d.hand, d.at = childDone, appendEvent
	default:
		d.seen = true
		m.decide(s, d)
	}
}

// storeChild stores the child's first event where there is none. Another drive may have done so, and an order may have been
// faster.
func (m *model) storeChild(s *state, d *drive) {
	if s.child == noChild {
		s.child = stored
	}
	d.at = lookChild
}

// wakeChild publishes the child's wake-up. One too many does no harm there.
func (m *model) wakeChild(s *state, d *drive) {
	if s.child == stored {
		s.child = working
	}
	d.seen = true
	m.decide(s, d)
}

// owedChild is what the run owes for the work that it hands to a child run.
func (v *view) owedChild() duty {
	switch {
	case !v.open:
		return nothing
	case !v.handed:
		return writeDown
	case v.heard:
		return observeChild
	default:
		return nothing
	}
}

// waits reports whether the run waits for its child, which has to be looked at once before it is parked.
func (v *view) waits() bool { return v.open && v.handed && !v.heard && !v.ending && !v.ended }
