package loop

import (
	"sync"
	"sync/atomic"
)

// crew runs functions in goroutines that are used again. A new goroutine begins with a small stack, and to grow it for a model
// or tool call costs more than the call's share of the engine. A stack that grew once stays so for as long as its goroutine is
// used, which is too much where there are thousands: then each goroutine ends with its function.
type crew struct {
	idle    chan func() // to whoever waits for work
	size    atomic.Int64
	end     chan struct{}
	members sync.WaitGroup
}

// crewSize is how many goroutines there are at most for any of them to be used again.
const crewSize = 256

func newCrew() *crew { return &crew{idle: make(chan func()), end: make(chan struct{})} }

// run calls f in a goroutine of its own.
func (c *crew) run(f func()) {
	select {
	case c.idle <- f:
	default:
		c.size.Add(1)
		c.members.Add(1)
		go c.serve(f)
	}
}

// serve calls f, and then what else there is to call.
func (c *crew) serve(f func()) {
	defer c.leave()
	for f != nil {
		f()
		f = c.next()
	}
}

func (c *crew) leave() {
	c.size.Add(-1)
	c.members.Done()
}

// next waits for what else there is to call. It is nil where the goroutine is to end.
func (c *crew) next() func() {
	if c.size.Load() > crewSize {
		return nil
	}
	select {
	case f := <-c.idle:
		return f
	case <-c.end:
		return nil
	}
}

// dismiss ends those who wait, and returns once all are through. Nothing may be run any more.
func (c *crew) dismiss() {
	close(c.end)
	c.members.Wait()
}
