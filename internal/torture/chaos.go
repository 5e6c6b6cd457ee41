package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// chaos harms one process after another. Several may be down at once, but never all of the workers.
type chaos struct {
	world  *world
	ledger *Ledger

	mu     sync.Mutex
	random *rand.Rand
	busy   map[*seat]bool
	left   []FaultKind // of the bag
	server bool        // the server is down
	wg     sync.WaitGroup
}

func newChaos(w *world, l *Ledger, random *rand.Rand) *chaos {
	return &chaos{world: w, ledger: l, random: random, busy: map[*seat]bool{}}
}

// bag holds the faults that come before any comes again: each kind is in every run of some length, and which come together
// is drawn.
var bag = []FaultKind{
	FaultKill, FaultKill, FaultKill, FaultStop, FaultStop, FaultTerm, FaultTerm, FaultCut, FaultStall, FaultServer,
}

// aloneEvery is how many faults come for one that nothing else overlaps.
const aloneEvery = 6

// harm goes on until ctx ends, and returns when what it began has been mended.
func (c *chaos) harm(ctx context.Context) {
	defer c.wg.Wait()
	for n, wait := 1, c.between(time.Second, 2*time.Second); sleep(ctx, wait); n, wait = n+1, c.pause() {
		if n%aloneEvery == aloneEvery/2 {
			c.alone(ctx)
			continue
		}
		kind := c.draw()
		if kind == FaultServer {
			c.harmServer()
			continue
		}
		if s := c.victim(); s != nil {
			c.wg.Go(func() { c.harmWorker(kind, s) })
		}
	}
}

func (c *chaos) harmWorker(kind FaultKind, s *seat) {
	c.apply(kind, s, c.downtime(kind))
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, s)
}

// alone waits until all is mended and its effects are over, kills a worker or asks it to end, and harms nothing else until
// its runs should have gone on: so it can be told how long that takes.
func (c *chaos) alone(ctx context.Context) {
	c.wg.Wait()
	lease, kind := c.world.opts.Lease, FaultKill
	if c.between(0, 3) == 0 {
		kind = FaultTerm
	}
	if s := c.victim(); s != nil && sleep(ctx, lease+slack/2) {
		c.harmWorker(kind, s)
		sleep(ctx, lease+2*slack)
	}
}

// pause is the time to the next fault: mostly so short that faults overlap.
func (c *chaos) pause() time.Duration {
	lease := c.world.opts.Lease
	if c.between(0, 100) < 20 {
		return c.between(lease, 2*lease)
	}
	return c.between(lease/10, lease/2)
}

func (c *chaos) between(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return from + time.Duration(c.random.Int64N(int64(to-from)))
}

func (c *chaos) draw() FaultKind {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.left) == 0 {
		c.left = slices.Clone(bag)
	}
	n := c.random.IntN(len(c.left))
	kind := c.left[n]
	c.left = slices.Delete(c.left, n, n+1)
	return kind
}

// victim takes a worker that is well, if another one stays well.
func (c *chaos) victim() *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	var well []*seat
	for _, s := range c.world.seats {
		if !c.busy[s] {
			well = append(well, s)
		}
	}
	if len(well) < 2 {
		return nil
	}
	s := well[c.random.IntN(len(well))]
	c.busy[s] = true
	return s
}

// downtime is how long a fault lasts. A stop is longer than the lease, so that another worker takes the runs, and shorter
// than the patience with once calls that may be under way: beyond it the one gap of the documentation begins.
func (c *chaos) downtime(kind FaultKind) time.Duration {
	lease := c.world.opts.Lease
	switch kind {
	case FaultStop:
		return c.between(lease+lease/10, 2*lease)
	case FaultCut, FaultStall:
		return c.between(lease/5, 2*lease)
	case FaultKill, FaultTerm, FaultServer, FaultSlow:
	}
	return c.between(0, time.Second)
}

// apply does one thing to one worker and mends it.
func (c *chaos) apply(kind FaultKind, s *seat, down time.Duration) {
	p := s.now()
	if !p.alive() {
		c.revive(s)
		return
	}
	end := c.ledger.begin(kind, p.name)
	switch kind {
	case FaultKill:
		p.kill()
		end()
		time.Sleep(down)
		c.revive(s)
	case FaultTerm:
		if !p.terminate(grace + 5*time.Second) {
			c.world.died(p, "did not end after SIGTERM")
		}
		end()
		c.revive(s)
	case FaultStop:
		if freeze(p.cmd.Process) == nil {
			time.Sleep(down)
			_ = thaw(p.cmd.Process) // it is there: nobody else harms it meanwhile
		}
		end()
	case FaultCut, FaultStall:
		if kind == FaultCut {
			s.proxy.cut()
		} else {
			s.proxy.stall()
		}
		time.Sleep(down)
		s.proxy.heal()
		end()
	case FaultServer, FaultSlow:
	}
}

func (c *chaos) revive(s *seat) {
	if err := s.spawn(); err != nil {
		c.world.died(&process{name: "worker", err: err}, "could not be started again")
	}
}

// harmServer kills the server, unless it is down, and starts it on its store.
func (c *chaos) harmServer() {
	c.mu.Lock()
	down := c.server
	c.server = true
	c.mu.Unlock()
	if down {
		return
	}
	wait := c.downtime(FaultServer)
	c.wg.Go(func() {
		end := c.ledger.begin(FaultServer, serverName)
		c.world.killServer()
		time.Sleep(wait)
		if err := c.world.startServer(); err != nil {
			c.world.died(&process{name: serverName, err: err}, "could not be started again")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = poll(ctx, 20*time.Millisecond, "the server", c.world.nc.IsConnected) // heal says so where it does not come
		end()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.server = false
	})
}

// sleep waits and reports whether ctx is still there.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
