package protocol

// normal puts a state into the one form that stands for all states which can't be told apart: processes of a kind are
// interchangeable, so are the places of messages in the queue, and what nobody will look at again does not count.
func (m *model) normal(s *state) order {
	var o order
	m.forgetJournal(s)
	for i := range s.drives {
		m.forgetDrive(&s.drives[i])
	}
	if s.drives[0].key() < s.drives[1].key() {
		s.drives[0], s.drives[1] = s.drives[1], s.drives[0]
		o.drives = true
	}
	if x, y := s.doors[0], s.doors[1]; y.at > x.at || y.at == x.at && y.message > x.message {
		s.doors[0], s.doors[1] = y, x
		o.doors = true
	}
	o.wakes = sortWakes(s)
	return o
}

// order is how things were put in order, for a trace that calls them by the same names all the while.
type order struct {
	drives, doors bool            // the two changed places
	wakes         [maxWakes]uint8 // what lies here lay there
}

// forgetJournal drops what was noted for deadlines that are not open and for inbox messages that are settled.
func (m *model) forgetJournal(s *state) {
	v := m.fold(s, s.length)
	w, q := v.deadlines()
	for n := uint8(1); n <= s.length; n++ {
		if n != w && n != q {
			s.passed[n] = false
		}
	}
	for j := range m.Inbox {
		if s.inbox[j].status != gone || s.doors[0].works(j) || s.doors[1].works(j) {
			continue
		}
		s.inbox[j], s.keyed[j] = message{}, false
		for n, c := range s.cause[:s.length] {
			if int(c) == j+1 {
				s.cause[n] = 0
			}
		}
	}
}

func (d *door) works(inbox int) bool { return d.at != doorIdle && int(d.message) == inbox }

func (m *model) forgetDrive(d *drive) {
	switch d.at {
	case idle:
		*d = drive{}
		return
	case ack, giveBack, wakeAfterLoss:
		*d = drive{at: d.at, wake: d.wake, delivery: d.delivery}
		return
	case lookForOwner:
	default:
		d.other = 0
	}
	if d.hand != started && d.at != send {
		d.oldStart = false
	}
	if !m.sends {
		d.oldBeat = false
	}
}

// key orders drives.
func (d *drive) key() uint64 {
	k := uint64(d.at) // 7 numbers of 8 bits and 6 bits: none is lost
	for _, x := range [...]uint8{d.delivery, d.n, uint8(d.hand), d.began, d.due, d.basis} {
		k = k<<8 | uint64(x)
	}
	for _, b := range [...]bool{d.claimed, d.current, d.mine, d.oldBeat, d.oldStart, d.seen} {
		if k <<= 1; b {
			k |= 1
		}
	}
	return k
}

// sortWakes orders the places of the wake-ups by what lies there and who remembers it.
func sortWakes(s *state) (from [maxWakes]uint8) {
	var keys [maxWakes]uint16
	for i := range s.wakes {
		w := &s.wakes[i]
		if w.status == gone {
			*w = message{}
		}
		k := uint16(w.status)<<10 | uint16(w.count)<<6
		for bit, is := range [...]bool{
			w.inline, s.head.owned && int(s.head.wake) == i, s.drives[0].took(i), s.drives[1].took(i),
			s.drives[0].looksFor(i), s.drives[1].looksFor(i),
		} {
			if is {
				k |= 1 << bit
			}
		}
		keys[i], from[i] = k, uint8(i)
	}
	for i := 1; i < maxWakes; i++ {
		for j := i; j > 0 && keys[j] > keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
			from[j], from[j-1] = from[j-1], from[j]
			s.swapWakes(uint8(j), uint8(j-1))
		}
	}
	if !s.head.owned {
		s.head.wake, s.head.delivery = 0, 0
	}
	return from
}

func (d *drive) took(wake int) bool     { return d.at != idle && int(d.wake) == wake }
func (d *drive) looksFor(wake int) bool { return d.at == lookForOwner && int(d.other) == wake }

func (s *state) swapWakes(a, b uint8) {
	s.wakes[a], s.wakes[b] = s.wakes[b], s.wakes[a]
	swap := func(x *uint8) {
		switch *x {
		case a:
			*x = b
		case b:
			*x = a
		}
	}
	if s.head.owned {
		swap(&s.head.wake)
	}
	for i := range s.drives {
		if d := &s.drives[i]; d.at != idle {
			swap(&d.wake)
			if d.at == lookForOwner {
				swap(&d.other)
			}
		}
	}
}
