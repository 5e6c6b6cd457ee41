//go:build unix

package torture

import (
	"os"
	"syscall"
)

func canSignal() error { return nil }

// freeze stops a process as kill -STOP does; thaw lets it go on.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process) error   { return p.Signal(syscall.SIGCONT) }
func term(p *os.Process) error   { return p.Signal(syscall.SIGTERM) }
