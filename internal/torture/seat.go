package torture

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// restartPause is how long a supervisor waits before it starts a worker again.
const restartPause = 200 * time.Millisecond

// seat is the place of one worker: processes follow each other in it, behind the same proxy. It is their supervisor too: a
// worker that can't start, since the server is being harmed, is started again.
type seat struct {
	world *world
	index int
	proxy *proxy

	mu         sync.Mutex
	generation int
	process    *process
}

// spawn starts the next worker of the seat, where none is alive.
func (s *seat) spawn() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && s.process.alive() || s.world.isClosing() {
		return nil
	}
	s.generation++
	name := fmt.Sprintf("w%d-%d", s.index, s.generation)
	p, err := startProcess(s.world.opts, name, []string{
		"worker", "-name", name, "-nats", s.proxy.url(), "-url", s.world.url + "/w/" + name, "-tools", s.world.tools,
		"-lease", s.world.opts.Lease.String(),
	}, s.ended)
	if err == nil {
		s.process = p
	}
	return err
}

// ended starts a worker again that ended and nobody wanted that.
func (s *seat) ended(p *process) {
	if !s.world.supervise(p) {
		return
	}
	defer s.world.wg.Done()
	select {
	case <-time.After(restartPause):
	case <-s.world.over:
		return
	}
	if err := s.spawn(); err != nil {
		s.world.died(&process{name: p.name, err: err}, "could not be started again")
	}
}

// supervise notes the end of a worker that nobody wanted: one that could not start is counted, any other end is a death. It
// reports whether the worker is to be started again; then the caller has to call wg.Done.
func (w *world) supervise(p *process) bool {
	var exit *exec.ExitError
	failed := errors.As(p.err, &exit) && exit.ExitCode() == statusCantStart
	if !failed {
		w.died(p, "ended by itself")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return false
	}
	if failed {
		w.starts++
	}
	w.wg.Add(1)
	return true
}

func (w *world) isClosing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closing
}

func (s *seat) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}
