package torture

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// process is one child. It ends when the torturer does: its standard input is closed then.
type process struct {
	name   string
	cmd    *exec.Cmd
	input  io.Closer
	exited chan struct{}
	wanted atomic.Bool // its end is our doing
	err    error       // after exited
}

// startProcess starts a child whose output goes to a file of its name. ended is called when it exits and nobody wanted
// that; it may be nil.
func startProcess(opts Options, name string, args []string, ended func(*process)) (*process, error) {
	log, err := os.OpenFile(logOf(opts.Data, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(opts.Command[0], append(append([]string{}, opts.Command[1:]...), args...)...) // ourselves
	cmd.Stdout, cmd.Stderr = log, log
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, input: input, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
		if ended != nil && !p.wanted.Load() {
			ended(p)
		}
	}()
	return p, nil
}

func logOf(data, name string) string { return filepath.Join(data, "logs", name+".log") }

// kill ends the process as kill -9 does and waits until it is gone.
func (p *process) kill() {
	p.wanted.Store(true)
	_ = p.cmd.Process.Kill() // fails only where it is gone already
	<-p.exited
}

// terminate sends SIGTERM and reports whether the process was gone in time; it is killed otherwise.
func (p *process) terminate(patience time.Duration) bool {
	p.wanted.Store(true)
	_ = term(p.cmd.Process) // as above
	select {
	case <-p.exited:
		return true
	case <-time.After(patience):
		p.kill()
		return false
	}
}

// alive reports whether the process has not exited.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}
