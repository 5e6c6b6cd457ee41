package loop

import (
	"context"
	"sync"
	"time"
)

// inviteEvery is how often a worker without a free slot looks whether somebody waits who has fewer slots than others.
const inviteEvery = 200 * time.Millisecond

// puller keeps messages of one source in hand, each in a goroutine of its own: as many as there are slots. All of it
// belongs to the goroutine of run, except free.
type puller struct {
	w      *Worker
	name   string        // for [Worker.Alive]
	full   time.Duration // how long all slots may be taken before that is a fault; 0: for any time
	source Source
	lanes  Lanes         // the same source, where its groups are to share the slots; else nil
	free   chan struct{} // has an element for each free slot
	handle func(*Delivery)

	handlers sync.WaitGroup
	guest    *guest // has been invited and waits for a slot; nil: nobody
}

func newFree(slots int) chan struct{} {
	free := make(chan struct{}, slots)
	for range slots {
		free <- struct{}{}
	}
	return free
}

// run returns when ctx has ended and all that is in hand is done.
func (p *puller) run(ctx context.Context) {
	defer p.handlers.Wait()
	defer p.dismiss()
	defer p.w.pulse.leave(p.name)
	failures := 0
	for ctx.Err() == nil {
		p.w.pulse.enter(p.name, "all slots are taken", p.full)
		n := p.reserve(ctx)
		if n == 0 {
			p.invite(ctx)
			continue
		}
		if p.guest != nil {
			p.seat()
			n--
		}
		p.w.pulse.enter(p.name, "asking for work", fetchStuck)
		taken := 0
		err := p.source.Fetch(ctx, n, func(d Delivery) {
			taken++
			p.start(&d)
		})
		p.release(n - taken)
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		p.w.Log.Warn("can't fetch work; trying again", "error", err, "failures", failures)
		pause(ctx, failures, p.w.longestPause())
	}
}

func (p *puller) start(d *Delivery) {
	p.handlers.Add(1)
	p.w.crew.run(func() {
		defer p.handlers.Done()
		defer p.release(1)
		p.handle(d)
	})
}

func (p *puller) release(n int) {
	for range n {
		p.free <- struct{}{}
	}
}

// reserve takes all free slots. It waits for the first: until ctx ends, or, where groups share the slots, for a moment. It
// returns 0 where there was none.
func (p *puller) reserve(ctx context.Context) int {
	var patience <-chan time.Time
	if p.lanes != nil {
		t := time.NewTimer(inviteEvery)
		defer t.Stop()
		patience = t.C
	}
	select {
	case <-p.free:
	case <-ctx.Done():
		return 0
	case <-patience:
		return 0
	}
	for n := 1; ; n++ {
		select {
		case <-p.free:
		default:
			return n
		}
	}
}

// guest is a wake-up without a slot, for which a run of another group was asked to give way.
type guest struct {
	*Delivery
	lease *lease
}

// invite looks for a wake-up of a group that has fewer slots than another, or of a tenant that has fewer than another of its
// group, keeps it until there is a slot, and asks those with the most to give one up. Without that, a tenant whose runs fill
// all slots would let others wait until a run ends, and not only until a step does.
func (p *puller) invite(ctx context.Context) {
	if p.lanes == nil || ctx.Err() != nil {
		return
	}
	if p.guest != nil {
		p.keep(ctx)
		return
	}
	slots := &p.w.slots
	most, mine := slots.most()
	if mine < 2 {
		return
	}
	from := most
	err := p.lanes.FetchFrom(ctx, func(group int) Look {
		switch {
		case slots.ofGroup(group) < mine-1:
			from = most
			return LookFirst
		case slots.mostOf(group) > 1:
			from = group
			return LookPast
		default:
			return LookNowhere
		}
	}, func(d Delivery) bool {
		if from == d.Group && !slots.isBehind(&d) {
			return false
		}
		p.guest = &guest{&d, newLease(&d)}
		return true
	})
	if err != nil {
		p.w.Log.Debug("can't look who waits for a slot", "error", err)
	}
	if p.guest != nil {
		slots.ask(from)
	}
}

// keep extends the guest's lease where that is due, and lets go of one whose lease is lost.
func (p *puller) keep(ctx context.Context) {
	switch age := p.guest.lease.age(); {
	case age > p.w.Lease:
		p.guest = nil
		p.w.slots.ask(nobody)
	case age > p.w.Lease/3:
		p.guest.lease.extend(ctx, p.w.Lease/3) // the lease's other users come with the drive
	}
}

// seat starts what the guest came for, in a slot that was reserved.
func (p *puller) seat() {
	g := p.guest
	p.guest = nil
	p.w.slots.ask(nobody)
	g.Since = time.Now().Add(-g.lease.age())
	p.start(g.Delivery)
}

// dismiss hands a guest back at the end.
func (p *puller) dismiss() {
	if p.guest != nil {
		p.w.giveBack(p.w.Log.Warn, p.guest.Delivery, 0)
	}
}
