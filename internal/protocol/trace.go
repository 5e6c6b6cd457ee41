package protocol

import (
	"fmt"
	"strings"
)

// action is one thing that happens, for a trace.
type action struct {
	who    actor
	slot   int
	what   string
	event  event  // that is appended
	number uint8  // of an event, inbox message or, counted from 1, place in the queue
	then   string // how it went
}

type actor uint8

const (
	worldActor actor = iota
	doorActor
	driveActor
)

const takesWake = "takes wake-up"

func (a action) text() string {
	var b strings.Builder
	b.WriteString(a.what)
	if a.event != noEvent {
		b.WriteString(" " + a.event.String())
	}
	if a.number > 0 {
		fmt.Fprintf(&b, " %d", a.number)
	}
	if a.then != "" {
		b.WriteString(" " + a.then)
	}
	return b.String()
}

// names keeps the names of processes and wake-ups while the search changes their places.
type names struct {
	drives, doors [slots]int
	wakes         [maxWakes]int

	driveCount, wakeCount int
}

// tell returns the line for a successor and follows the changes it makes.
func (n *names) tell(next *successor) string {
	a := next.action
	line := ""
	switch a.who {
	case worldActor:
		line = a.text()
	case doorActor:
		line = fmt.Sprintf("door %c: %s", 'a'+n.doors[a.slot], a.text())
	case driveActor:
		if a.what == takesWake {
			n.driveCount++
			n.drives[a.slot] = n.driveCount
			a.number = uint8(n.wakes[a.number-1])
		}
		line = fmt.Sprintf("drive %d: %s", n.drives[a.slot], a.text())
	}
	n.follow(next)
	return line
}

func (n *names) follow(next *successor) {
	if next.order.drives {
		n.drives[0], n.drives[1] = n.drives[1], n.drives[0]
	}
	if next.order.doors {
		n.doors[0], n.doors[1] = n.doors[1], n.doors[0]
	}
	before := n.wakes
	for i, from := range next.order.wakes {
		n.wakes[i] = before[from]
	}
	for i, w := range next.state.wakes {
		switch {
		case w.status == gone && !next.state.remembered(uint8(i)):
			n.wakes[i] = 0
		case w.status != gone && n.wakes[i] == 0:
			n.wakeCount++
			n.wakes[i] = n.wakeCount
		}
	}
}

// trace tells the way to the last of the steps.
func (m *model) trace(s state, steps []stepTo) []string {
	var way []uint8
	for at := int32(len(steps)); at > 0; at = steps[at-1].from {
		way = append(way, steps[at-1].nth)
	}
	n := names{doors: [slots]int{0, 1}}
	lines := make([]string, 0, len(way)+1)
	for i := len(way) - 1; i >= 0; i-- {
		next := m.successors(&s)[way[i]]
		lines = append(lines, n.tell(&next))
		s = next.state
	}
	return append(lines, "the journal: "+s.history())
}

func (s *state) history() string {
	list := make([]string, s.length)
	for i, e := range s.journal[:s.length] {
		list[i] = fmt.Sprintf("%d %s", i+1, e)
	}
	return strings.Join(list, ", ")
}
