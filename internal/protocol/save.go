package protocol

// save is a compare-and-set of the run's state; what is stored and what comes next depends on where the drive is.
func (m *model) save(s *state, i int, act action) {
	t := *s
	d := &t.drives[i]
	at := d.at
	won := d.current
	if at == claimFresh || at == createHead {
		won = !s.head.exists
	}
	if !won {
		act.then = "loses to another write"
		d.lostSave(&t)
		m.add(act, t)
		return
	}
	h := head{exists: true, n: d.n}
	switch at {
	case claimFresh, createHead:
		h.n, d.n = max(d.n, 1), max(d.n, 1)
		h.owned, h.wake, h.delivery = true, d.wake, d.delivery
	case claimHead:
		h = head{exists: true, n: s.head.n, owned: true, wake: d.wake, delivery: d.delivery}
	case saveHandOver:
		if d.n == 0 {
			h.n = s.head.n
		}
		h.closed = s.head.closed && m.Broken != ReopenClosed
	case saveClosed:
		h.closed = true
	default:
	}
	t.head = h
	for j := range t.drives {
		t.drives[j].current = j == i
	}
	lost := t
	m.saved(&t, d)
	m.add(act, t)
	if s.left.Lost == 0 {
		return
	}
	lost.left.Lost--
	act.then = "whose answer is lost"
	lost.drives[i].unsureSave(&lost)
	m.add(act, lost)
}

// saved goes on after a write of the state.
func (m *model) saved(s *state, d *drive) {
	switch at := d.at; at {
	case claimFresh:
		d.claimed, d.began = true, d.n
		m.begin(s, d)
	case createHead:
		d.claimed, d.began, d.at, d.hand = true, d.n, checkOwner, noEvent
	case claimHead:
		d.claimed, d.n, d.at = true, 0, readJournal
	case saveHandOver:
		d.at = giveBack
	case saveClosed:
		if d.at = purgeSchedules; m.Broken == StoreFinalFirst {
			d.at = closingSteps
		}
	default:
		d.at = ack
	}
}

// lostSave goes on after a conflict.
func (d *drive) lostSave(s *state) {
	switch d.at {
	case savePark:
		d.at = checkPark
	case saveClosed:
		d.at = checkClosed
	case saveHandOver:
		s.aside(d)
	default:
		d.at, d.n = readHead, 0
	}
}

// unsureSave goes on after a write whose answer was lost.
func (d *drive) unsureSave(s *state) {
	switch d.at {
	case claimFresh, createHead, claimHead:
		d.at = giveBack
	default:
		d.lostSave(s)
	}
}

// lookAtWrite reads the state after a lost write: the same write counts as ours, another owner means stepping aside.
func (m *model) lookAtWrite(s *state, d *drive) {
	closing := d.at == checkClosed
	switch {
	case !s.head.owned && s.head.n == d.n && s.head.closed == closing:
		if d.at, d.current = savePark, true; closing {
			d.at = saveClosed
		}
		m.saved(s, d)
	case !s.owner(d):
		s.aside(d)
	default:
		if d.at, d.current = savePark, true; closing {
			d.at = saveClosed
		}
	}
}
