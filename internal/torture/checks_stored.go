package torture

import (
	"maps"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// states checks the stored state of every run.
func (c *checker) states() {
	for _, run := range slices.Sorted(maps.Keys(c.folded)) {
		f := c.folded[run]
		if f.final == nil {
			continue
		}
		h, exists := c.Heads[run]
		if !exists {
			c.report(RuleState, run, "it has no stored state")
			continue
		}
		if want := statusOf(f.final.Data); h.Status != want || h.N != f.final.N || h.Seq != f.final.Seq {
			c.report(RuleState, run, "its state says %s at n %d, sequence %d; the journal ends as %s at n %d, sequence %d", h.Status, h.N,
				h.Seq, want, f.final.N, f.final.Seq)
		}
		if !h.Closed || h.Owner != nil {
			c.report(RuleState, run, "its state is closed: %t, with owner %v", h.Closed, h.Owner)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(c.Heads)) {
		if c.folded[run] == nil {
			c.report(RuleState, run, "it has a state and no journal")
		}
	}
}

func statusOf(final loop.Data) loop.Status {
	switch final.(type) {
	case loop.Answer:
		return loop.StatusDone
	case loop.Cancelled:
		return loop.StatusCancelled
	default:
		return loop.StatusFailed
	}
}

// place names a message of a conversation.
type place struct {
	run string
	n   uint64
}

// sessions checks that every conversation holds what its runs said, once and in order, and that its runs took turns.
func (c *checker) sessions() {
	runs := map[string][]string{}
	for _, run := range c.planned() {
		if p := c.Planned[run]; p.Session != "" && c.folded[run] != nil {
			runs[p.Session] = append(runs[p.Session], run)
		}
	}
	for _, session := range slices.Sorted(maps.Keys(runs)) {
		s, exists := c.Sessions[session]
		if !exists {
			c.report(RuleSession, session, "it is not stored")
			continue
		}
		if len(s.Runs) > 0 {
			c.report(RuleSession, session, "runs still wait for their turn: %s", strings.Join(s.Runs, ", "))
		}
		c.conversation(session, s, runs[session])
		c.turns(session, runs[session])
	}
}

func (c *checker) conversation(session string, s loop.Session, runs []string) {
	seen, last := map[place]bool{}, map[string]uint64{}
	for _, m := range s.Messages {
		at := place{m.Run, m.N}
		switch {
		case seen[at]:
			c.report(RuleSession, m.Run, "conversation %s holds its event %d twice", session, m.N)
		case m.N < last[m.Run]:
			c.report(RuleSession, m.Run, "conversation %s holds its event %d after event %d", session, m.N, last[m.Run])
		}
		seen[at], last[m.Run] = true, m.N
	}
	want := map[place]bool{}
	for _, run := range runs {
		for _, e := range c.folded[run].events {
			if spoken(e.Data) {
				at := place{run, e.N}
				want[at] = true
				if !seen[at] {
					c.report(RuleSession, run, "conversation %s lacks its event %d, %s", session, e.N, e.Type())
				}
			}
		}
	}
	for at := range seen {
		if !want[at] {
			c.report(RuleSession, at.run, "conversation %s holds its event %d, which nobody said", session, at.n)
		}
	}
}

// spoken reports whether an event is part of the conversation.
func spoken(d loop.Data) bool {
	switch d.(type) {
	case loop.Accepted, loop.Question, loop.Reply, loop.Note, loop.Answer, loop.Failed:
		return true
	default:
		return false
	}
}

// turns checks that the runs of a conversation did not work at the same time.
func (c *checker) turns(session string, runs []string) {
	type turn struct {
		run      string
		from, to uint64 // sequences
	}
	var turns []turn
	for _, run := range runs {
		f := c.folded[run]
		for _, e := range f.events {
			if _, began := e.Data.(loop.Facts); began && f.final != nil {
				turns = append(turns, turn{run, e.Seq, f.final.Seq})
			}
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return int(a.from) - int(b.from) })
	for i := 1; i < len(turns); i++ {
		if turns[i].from < turns[i-1].to {
			c.report(RuleSession, turns[i].run, "it began before %s of conversation %s had ended", turns[i-1].run, session)
		}
	}
}

// reservedSweep stands in place of a run in the subjects of the engine's own watch over all runs, which never ends.
const reservedSweep = "_sweep"

// queues checks that nothing is left to do.
func (c *checker) queues() {
	if len(c.Drained) > 0 {
		c.report(RuleQueue, "", "%d things were left when patience ended: %s", len(c.Drained), few(c.Drained))
	}
	if len(c.Tasks) > 0 {
		c.report(RuleQueue, "", "%s holds %d messages: %s", streamTasks, len(c.Tasks), few(c.Tasks))
	}
	for _, subject := range c.Wakes {
		part := strings.Split(subject, ".")
		if slices.Contains(part, reservedSweep) || len(part) == 5 && part[1] == "schedule" && c.explainsStray(part[3]) {
			continue
		}
		c.report(RuleQueue, part[min(3, len(part)-1)], "%s holds %s", streamWake, subject)
	}
}

// explainsStray reports whether a schedule that is left behind by an ended run can come from a worker that was harmed. One
// that was stopped before it could append the event that the schedule was for leaves it, and nobody else knows its name. It
// is harmless: when it fires, the run has ended.
func (c *checker) explainsStray(run string) bool {
	f := c.folded[run]
	return f != nil && f.final != nil && slices.ContainsFunc(c.Faults, func(fault Fault) bool { return near(c.Evidence, run, fault) })
}

// deadLetters checks that there are the planted ones and no others.
func (c *checker) deadLetters() {
	found := map[string]int{}
	for _, d := range c.Dead {
		i := slices.IndexFunc(c.Planted, func(p Plant) bool { return strings.Contains(d.Body, p.Mark) })
		if i < 0 || c.Planted[i].Reason != d.Reason {
			c.report(RuleDeadLetter, "", "%s, reason %s: %s: %s", d.Subject, d.Reason, d.Error, few([]string{d.Body}))
			continue
		}
		found[c.Planted[i].Mark]++
	}
	for _, p := range c.Planted {
		if n := found[p.Mark]; n < p.Stored || n > p.Tried {
			c.report(RuleDeadLetter, "", "%s was published %d times and is there %d times", p.Mark, p.Stored, n)
		}
	}
}

// said checks what workers said through the API: every run is listed once, as it is stored, and no request was refused.
func (c *checker) said() {
	for _, text := range c.Refused {
		c.report(RuleAPI, "", "%s", text)
	}
	seen := map[string]int{}
	for _, l := range c.Listed {
		h := c.Heads[l.Run]
		if seen[l.Run]++; h.Status != l.Status || h.N != l.N {
			c.report(RuleAPI, l.Run, "it is listed as %s at n %d, and stored as %s at n %d", l.Status, l.N, h.Status, h.N)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(c.Heads)) {
		if seen[run] != 1 {
			c.report(RuleAPI, run, "it is listed %d times", seen[run])
		}
	}
}

// learned checks that each answered run of a conversation taught one fact, and that nobody else's is known to its user.
func (c *checker) learned() {
	want := map[string][]string{}
	for _, run := range c.planned() {
		if p := c.Planned[run]; p.Session != "" {
			if _, answered := endOf(c.folded[run]).(loop.Answer); answered {
				want[userOf(p.Session)] = append(want[userOf(p.Session)], factOf(run))
			}
		}
	}
	for _, user := range slices.Sorted(maps.Keys(c.Facts)) {
		for _, text := range c.Facts[user] {
			if !slices.Contains(want[user], text) {
				c.report(RuleMemory, "", "%s is said to have told %q", user, text)
			}
		}
	}
	for _, user := range slices.Sorted(maps.Keys(want)) {
		for _, text := range want[user] {
			if n := len(slices.DeleteFunc(slices.Clone(c.Facts[user]), func(t string) bool { return t != text })); n != 1 {
				c.report(RuleMemory, "", "%q is known %d times of %s", text, n, user)
			}
		}
	}
}

// few shows the beginning of a list.
func few(list []string) string {
	const most = 8
	text := strings.Join(list[:min(len(list), most)], ", ")
	if len(list) > most {
		text += " …"
	}
	if len(text) > 600 {
		text = text[:600] + " …"
	}
	return text
}
