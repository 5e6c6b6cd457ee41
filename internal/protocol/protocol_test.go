package protocol

import (
	"strings"
	"testing"
)

// What runs have to do, and what is published for them.
var (
	think, ask, once, askOnce, inTurn = []Step{Think}, []Step{Ask}, []Step{Once}, []Step{AskOnce}, []Step{InTurn}
	hand                              = []Step{Hand}

	task, taskReply, taskCancel = []Kind{Task}, []Kind{Task, Reply}, []Kind{Task, Cancel}
	taskReplyCancel             = []Kind{Task, Reply, Cancel}
)

// cases are clean with all rules in place.
var cases = []Case{
	{
		Name:   "reply",
		Script: ask, Inbox: taskReply, Doors: 2,
	},
	{
		Name:   "reply, two crashes",
		Script: ask, Inbox: taskReply, Faults: Budget{Crash: 2},
	},
	{
		Name:   "reply, crash, two doors",
		Script: ask, Inbox: taskReply, Doors: 2, Faults: Budget{Crash: 1},
	},
	{
		Name:   "reply, freeze",
		Script: ask, Inbox: taskReply, Doors: 2, Faults: Budget{Freeze: 1},
	},
	{
		Name:   "reply, lost answer",
		Script: ask, Inbox: taskReply, Doors: 2, Faults: Budget{Lost: 1},
	},
	{
		Name:   "reply, early schedule, freeze",
		Script: ask, Inbox: taskReply, Faults: Budget{Early: 1, Freeze: 1},
	},
	{
		Name:   "reply, early and double schedules, crash",
		Script: ask, Inbox: taskReply, Faults: Budget{Early: 1, Double: 1, Crash: 1},
	},
	{
		Name:   "reply, hand-over, crash",
		Script: ask, Inbox: taskReply, Faults: Budget{HandOver: 1, Crash: 1},
	},
	{
		Name:   "reply, lost wake-up, crash",
		Script: ask, Inbox: taskReply, Faults: Budget{Fail: 1, Crash: 1},
	},
	{
		Name:   "reply, cancel",
		Script: ask, Inbox: taskReplyCancel, Doors: 2,
	},
	{
		Name:   "cancel, crash, freeze",
		Script: think, Inbox: taskCancel, Doors: 2, Faults: Budget{Crash: 1, Freeze: 1},
	},
	{
		Name:   "cancel, crash, lost answer",
		Script: think, Inbox: taskCancel, Doors: 2, Faults: Budget{Crash: 1, Lost: 1},
	},
	{
		Name:   "note, crash, freeze",
		Script: think, Inbox: taskReply, Doors: 2, Faults: Budget{Crash: 1, Freeze: 1},
	},
	{
		Name:   "once, crash, freeze",
		Script: once, Inbox: task, Faults: Budget{Crash: 1, Freeze: 1},
	},
	{
		Name:   "once, freeze, lost answer",
		Script: once, Inbox: task, Faults: Budget{Freeze: 1, Lost: 1},
	},
	{
		Name:   "once, freeze, hand-over",
		Script: once, Inbox: task, Faults: Budget{Freeze: 1, HandOver: 1},
	},
	{
		Name:   "once, cancel, freeze, timeout of the run",
		Script: once, Inbox: taskCancel, Faults: Budget{Freeze: 1, TimeUp: 1},
	},
	{
		Name:   "approval beside a once call, crash, early schedule",
		Script: askOnce, Inbox: task, Faults: Budget{Crash: 1, Early: 1},
	},
	{
		Name:   "turn in a session, cancel, crash, hand-over",
		Script: inTurn, Inbox: taskCancel, Faults: Budget{Crash: 1, HandOver: 1},
	},
	{
		Name:   "turn in a session, freeze",
		Script: inTurn, Inbox: task, Faults: Budget{Freeze: 1},
	},
	{
		Name:   "child, two crashes",
		Script: hand, Inbox: task, Faults: Budget{Crash: 2},
	},
	{
		Name:   "child that wakes twice, freeze",
		Script: hand, Inbox: task, Faults: Budget{Freeze: 1, Double: 1},
	},
	{
		Name:   "child, lost answer, hand-over",
		Script: hand, Inbox: task, Faults: Budget{Lost: 1, HandOver: 1},
	},
	{
		Name:   "child, cancel, two crashes",
		Script: hand, Inbox: taskCancel, Faults: Budget{Crash: 2},
	},
	{
		Name:   "child, cancel, freeze",
		Script: hand, Inbox: taskCancel, Faults: Budget{Freeze: 1},
	},
	{
		Name:   "child, note, freeze",
		Script: hand, Inbox: taskReply, Doors: 2, Faults: Budget{Freeze: 1},
	},
}

// Bounds of one search, in states. A quick one, for a short run or under the race detector, may be cut off.
const (
	most  = 4_000_000
	quick = 50_000
)

func TestNoRunIsLost(t *testing.T) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			clean(t, c)
		})
	}
}

func clean(t *testing.T, c Case) {
	t.Helper()
	c.Most = most
	if testing.Short() || raced {
		c.Most = quick
	}
	r := Search(c)
	t.Logf("%d states, all that can be reached: %v", r.States, r.Complete)
	switch {
	case r.Violation != "":
		t.Fatalf("%s:\n\t%s", r.Violation, strings.Join(r.Trace, "\n\t"))
	case !r.Complete && c.Most == most:
		t.Fatalf("the case has more than %d states and was cut off: make it smaller", most)
	}
}

// Each rule is needed: without it the search finds what it prevents. The same case is clean with it.
func TestEveryRuleIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		Case
		finds violation
	}{
		"a different wake-up for a driven run is handed back, not acked": {
			Case{Broken: AckBusy, Script: ask, Inbox: taskReply}, hangs,
		},
		"who loses an append does not ack": {
			Case{Broken: AckAfterLoss, Script: think, Inbox: taskReply}, hangs,
		},
		"the clock is looked at between started and the sending": {
			Case{Broken: NoClock, Script: once, Inbox: task, Faults: Budget{Freeze: 1}}, sentTwice,
		},
		"what became of a started call is asked after the lease": {
			Case{Broken: NoWait, Script: once, Inbox: task, Faults: Budget{Freeze: 1}}, sentTwice,
		},
		"the outcome of a start says nothing about a later one": {
			Case{Broken: StaleOutcome, Script: once, Inbox: task, Faults: Budget{Freeze: 2}}, sentTwice,
		},
		"the door publishes the wake-up before it acks": {
			Case{Broken: AckBeforeWake, Script: ask, Inbox: task, Faults: Budget{Crash: 1}}, hangs,
		},
		"a door message whose event is stored is no dead letter": {
			Case{Broken: BuryStored, Script: ask, Inbox: taskReply, Faults: Budget{Fail: 2}}, hangs,
		},
		"the final state is stored after the closing steps": {
			Case{Broken: StoreFinalFirst, Script: think, Inbox: task, Faults: Budget{Crash: 1}}, unclosed,
		},
		"a hand-over leaves a closed run closed": {
			Case{Broken: ReopenClosed, Script: think, Inbox: task, Faults: Budget{HandOver: 1, Freeze: 1}}, unclosed,
		},
		"a schedule that fired early is published again": {
			Case{Broken: NoRearm, Script: ask, Inbox: task, Faults: Budget{Early: 1}}, hangs,
		},
		"so are those of all open deadlines, also where the run has moved on": {
			Case{Broken: RearmNearest, Script: askOnce, Inbox: task, Faults: Budget{Early: 2, Crash: 1}}, hangs,
		},
		"who loses an append leaves the schedule that the winner's event needs": {
			Case{Broken: RemoveNeeded, Script: ask, Inbox: task, Faults: Budget{Freeze: 1}}, hangs,
		},
		"a worker that stops does not park a run whose turn it has not looked for": {
			Case{Broken: ParkStopped, Script: inTurn, Inbox: task, Faults: Budget{HandOver: 1}}, hangs,
		},
		"whoever takes a run looks at its child run": {
			Case{Broken: NoLook, Script: hand, Inbox: task, Faults: Budget{Crash: 1}}, hangs,
		},
		"a child run wakes the run above after its final event": {
			Case{Broken: WakeParentFirst, Script: hand, Inbox: task}, hangs,
		},
		"the door publishes the wake-up for the second event of a child run": {
			Case{Broken: NoWakeForOrder, Script: hand, Inbox: taskCancel, Faults: Budget{Crash: 1}}, orphan,
		},
		"a run that is cancelled cancels its child run": {
			Case{Broken: NoOrder, Script: hand, Inbox: taskCancel}, unstopped,
		},
		"a timeout in hand is given up where the run has ended": {
			Case{Broken: TimeoutAfterEnd, Script: think, Inbox: task, Faults: Budget{Freeze: 1, TimeUp: 1}}, afterFinal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := c.Case
			broken.Most = most
			r := Search(broken)
			if r.Violation != c.finds.String() {
				t.Fatalf("without the rule the search found %q after %d states, want %q", r.Violation, r.States, c.finds)
			}
			t.Logf("without the rule, after %d states: %s\n\t%s", r.States, r.Violation, strings.Join(r.Trace, "\n\t"))
			c.Broken = NoRule
			clean(t, c.Case)
		})
	}
}

func TestSetKeepsWhatItIsGiven(t *testing.T) {
	s := newSet()
	const many = 200_000 // it has to grow
	for i := range uint64(many) {
		if !s.add(i * 0x9e3779b97f4a7c15) {
			t.Fatalf("fingerprint %d is new and was not", i)
		}
	}
	for i := range uint64(many) {
		if s.add(i * 0x9e3779b97f4a7c15) {
			t.Fatalf("fingerprint %d is known and was new", i)
		}
	}
	if s.size != many {
		t.Errorf("the set has %d elements, want %d", s.size, many)
	}
}
