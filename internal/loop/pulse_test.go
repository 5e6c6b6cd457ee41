package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ratchet/internal/loop"
)

// deaf is a queue that does not answer any more, whatever happens to its caller.
type deaf struct{ answer chan struct{} }

func (d deaf) Fetch(context.Context, int, func(loop.Delivery)) error { <-d.answer; return nil }

// once is a queue with one message.
type once chan loop.Delivery

func (q once) Fetch(ctx context.Context, _ int, take func(loop.Delivery)) error {
	select {
	case d := <-q:
		take(d)
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return nil
}

// quiet has no wake-ups and takes every schedule.
type quiet struct{ loop.Wakes }

func (quiet) Repeat(context.Context, string, time.Duration) error { return nil }

// numb is a store that does not come back, whatever happens to its caller.
type numb struct {
	loop.Heads
	loop.Journal
	loop.Sessions
	loop.Blobs
	loop.Graveyard
	loop.Outcomes
	loop.Orders
	loop.Model
	loop.Tools
	back chan struct{}
}

func (n numb) Load(context.Context, loop.RunID) (loop.Head, uint64, error) {
	<-n.back
	return loop.Head{}, 0, errors.New("gone")
}

func (numb) Offer([]string) ([]loop.ToolSpec, []string) { return nil, nil }

func (numb) Tell(loop.Delivery, string, string) {}

// lost can't be extended.
type lost struct{}

func (lost) Ack(context.Context) error    { return nil }
func (lost) Nak(time.Duration) error      { return nil }
func (lost) Extend(context.Context) error { return errors.New("not now") }

// TestAliveTellsWhatIsStuck has each loop of a worker stand still in turn.
func TestAliveTellsWhatIsStuck(t *testing.T) {
	for name, c := range map[string]struct {
		inbox, wakes func(chan struct{}) loop.Source
		fine, stuck  time.Duration // after so long it is alive, and after so long it is not
		want         string
	}{
		"nothing":   {fine: time.Hour, stuck: 0},
		"the queue": {wakes: func(back chan struct{}) loop.Source { return deaf{back} }, fine: 59 * time.Second, stuck: 2 * time.Minute, want: "wake-ups: asking for work for 2m0s"},
		"the door":  {inbox: oneReply, fine: 119 * time.Second, stuck: 3 * time.Minute, want: "inbox: all slots are taken for 3m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := make(chan struct{})
				store := numb{back: back}
				conf := loop.Config{
					Name: "w", Doors: 1, Journal: store, Heads: store, Wakes: quiet{}, Sessions: store, Blobs: store, Graveyard: store, Outcomes: store,
					Orders: store, Model: store, Tools: store, Inbox: noWork{}, WakeQueue: make(once),
				}
				if c.inbox != nil {
					conf.Inbox = c.inbox(back)
				}
				if c.wakes != nil {
					conf.WakeQueue = c.wakes(back)
				}
				conf.Inbox = patient{conf.Inbox}
				w, err := loop.NewWorker(conf)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Alive(); err != nil {
					t.Errorf("before it runs: %v", err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = w.Run(ctx) }()
				time.Sleep(c.fine)
				if err := w.Alive(); err != nil {
					t.Errorf("after %s: %v", c.fine, err)
				}
				time.Sleep(c.stuck - min(c.fine, c.stuck))
				err = w.Alive()
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("after %s: %v, want %q", c.stuck, err, c.want)
				}
				close(back)
				cancel()
				<-done
				if err := w.Alive(); err != nil {
					t.Errorf("after it has ended: %v", err)
				}
			})
		})
	}
}

// patient ends a fetch after a few seconds, as sources do.
type patient struct{ loop.Source }

func (p patient) Fetch(ctx context.Context, n int, take func(loop.Delivery)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return p.Source.Fetch(ctx, n, take)
}

func oneReply(chan struct{}) loop.Source {
	q := make(once, 1)
	q <- loop.Delivery{Kind: loop.DeliverReply, RunID: run("a"), Body: []byte(`{"text": "yes"}`), Attempt: 1, Settler: lost{}}
	return q
}

// TestAliveTellsOfADriveThatDoesNotEnd cuts a drive off whose lease passed, and whose store does not come back.
func TestAliveTellsOfADriveThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		q := make(once, 1)
		store := numb{back: back}
		first := loop.Event{RunID: run("a"), N: 1, Time: time.Now(), Source: "/s", Data: loop.Accepted{Task: loop.Task{Goal: "g", Session: "s", Strategy: "plan_react"}}}
		encoded, err := first.Encode()
		if err != nil {
			t.Fatal(err)
		}
		q <- loop.Delivery{
			Kind: loop.DeliverWake, RunID: run("a"), Attempt: 1, Settler: lost{},
			Body: []byte(`{"seq": 1, "revision": 1, "event": ` + string(encoded) + `}`),
		}
		w, err := loop.NewWorker(loop.Config{
			Name: "w", Journal: store, Heads: saving{store}, Wakes: quiet{}, Sessions: forgetful{store, back}, Blobs: store, Graveyard: store, Outcomes: store,
			Orders: store, Model: store, Tools: store, Inbox: patient{noWork{}}, WakeQueue: q,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx) }()
		time.Sleep(time.Minute)
		if err := w.Alive(); err != nil {
			t.Errorf("before it should have ended: %v", err)
		}
		time.Sleep(time.Minute)
		if err := w.Alive(); err == nil || !strings.Contains(err.Error(), "run default/a, wake-up 0, delivery 1: has lost its lease and does not end for") {
			t.Errorf("afterwards: %v", err)
		}
		close(back)
		synctest.Wait()
		if err := w.Alive(); err != nil {
			t.Errorf("once it has: %v", err)
		}
		cancel()
		<-done
	})
}

// saving takes every state.
type saving struct{ numb }

func (saving) Save(context.Context, loop.Head, uint64) (uint64, error) { return 2, nil }

// forgetful has no conversations, and is long in saying so.
type forgetful struct {
	numb
	back chan struct{}
}

func (f forgetful) LoadSession(context.Context, string, string) (loop.Session, uint64, error) {
	<-f.back
	return loop.Session{}, 0, errors.New("gone")
}
