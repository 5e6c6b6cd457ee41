package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

func (b crashBus) Order(ctx context.Context, id loop.RunID, control json.RawMessage) error {
	return b.c.point("order", func() error { return b.Bus.Order(ctx, id, control) })
}

// crashFamily is a run with one child run, which looks and pays, once.
var crashFamily = family{
	"the whole": {planned, delegates(`the part|, "strategy": "react"`), answered},
	"the part":  {"Action: look\nAction Input: {}", "Action: pay\nAction Input: {}", reactAnswer + "paid"},
	"the asked": {planned, delegates(`the asking part`), answered},
	"the asking part": {
		planned, asks, answered,
	},
}

// crashedFamily is what a run and its child run came to.
type crashedFamily struct {
	parent, child []loop.Event
	runs          int // there are
	pays          int
	points        []string
}

// crashParent drives a run with a child run. The first worker is killed at the given operation, a second one goes on.
// Where the goal's child asks, the run is cancelled then.
func crashParent(t *testing.T, goal string, at int, after bool) crashedFamily {
	t.Helper()
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{Lease: crashLease, Log: slog.New(slog.DiscardHandler)})
	r := &rig{t: t, nc: nc, bus: b, model: crashFamily}
	count := &counting{times: map[string]int{}}
	r.tools = append(count.tools(), tools.Delegate())
	c := newCrash(at, after)
	next := r.startToCrash(b, c)
	r.submit("a", `{"goal": "`+goal+`"}`)
	id := r.child("a", "c1")
	if goal == "the asked" {
		r.until(id, "question")
		r.control("a", "cancel")
	}
	out := crashedFamily{parent: r.untilClosed("a"), child: r.untilClosed(id)}
	if at > 0 {
		r.eventually("the crash point is reached", func() bool {
			select {
			case <-c.dead:
				return true
			default:
				return false
			}
		})
		<-next
	}
	r.eventually("the queues are empty", func() bool {
		backlog, err := b.Backlog(r.ctx())
		return err == nil && backlog.Inbox == 0 && backlog.Wakes == 0
	})
	heads, _, err := b.List(r.ctx(), "default", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	out.runs = len(heads)
	count.mu.Lock()
	defer count.mu.Unlock()
	out.pays = count.times["default/"+id+"/c2"]
	c.mu.Lock()
	defer c.mu.Unlock()
	out.points = append(out.points, c.names...)
	return out
}

// TestParentKilledAtEveryOperation kills a worker before and after each operation on a run and its child run.
func TestParentKilledAtEveryOperation(t *testing.T) {
	for goal, c := range map[string]struct {
		from         string // operation from which on the worker is killed
		pays         int
		parent, ends string
	}{
		"the whole": {"append accepted", 1, "accepted facts plan call child child observation thought answer started 0 observations 1", "answer"},
		"the asked": {"append control", 0, "an observation cancelled", "cancelled"},
	} {
		calm := crashParent(t, goal, 0, false)
		if got := settled(calm.parent); got != c.parent || calm.runs != 2 || calm.pays != c.pays {
			t.Fatalf("%s undisturbed: %s, %d runs, paid %d times", goal, got, calm.runs, calm.pays)
		}
		t.Logf("%d operations: %s", len(calm.points), strings.Join(calm.points, ", "))
		begun := false
		for at := 1; at <= len(calm.points); at++ {
			if begun = begun || calm.points[at-1] == c.from; !begun {
				continue
			}
			for _, after := range []bool{false, true} {
				if name := calm.points[at-1]; after != (at%2 == 0) && !strings.HasPrefix(name, "append") && name != "order" && name != "wake" {
					continue // of the others every second is enough
				}
				t.Run(fmt.Sprintf("%s/%d %s/after=%t", goal, at, calm.points[at-1], after), func(t *testing.T) {
					t.Parallel()
					got := crashParent(t, goal, at, after)
					if s := settled(got.parent); s != c.parent {
						t.Errorf("the run came to\n%s, want\n%s\nin full: %s", s, c.parent, types(got.parent))
					}
					if s, want := settled(got.child), settled(calm.child); s != want {
						t.Errorf("the child came to\n%s, want\n%s\nin full: %s", s, want, types(got.child))
					}
					if last := got.child[len(got.child)-1].Type(); last != c.ends || got.runs != 2 {
						t.Errorf("the child ended in %s, and there are %d runs", last, got.runs)
					}
					if got.pays != c.pays {
						t.Errorf("paid %d times: %s", got.pays, types(got.child))
					}
				})
			}
		}
	}
}
