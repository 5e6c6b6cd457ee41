package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a child: this program again, as a server or a worker. It ends when this process does, which closes its input.
type process struct {
	name    string
	args    []string
	cmd     *exec.Cmd
	input   io.WriteCloser
	answers *json.Decoder // of what it is asked by its input
	log     string        // path
	exited  chan struct{}
	err     error // after exited
}

// start starts a child whose output goes to a file in dir.
func start(dir, name string, args ...string) (*process, error) {
	p := &process{name: name, args: args, log: filepath.Join(dir, name+".log")}
	if err := p.begin(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// begin starts the process, for the first time or again.
func (p *process) begin() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self, append([]string{childCommand}, p.args...)...) // ourselves
	p.cmd.Stderr = log
	answers, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.answers = json.NewDecoder(answers)
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	cmd, exited := p.cmd, make(chan struct{})
	p.exited = exited
	go func() {
		p.err = cmd.Wait()
		close(exited)
	}()
	return nil
}

// stop asks the process to end and waits until it has; one that does not in time is killed.
func (p *process) stop() {
	_ = p.input.Close() // which a child takes for the end of its parent
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill() // fails only where it is gone already
		<-p.exited
	}
}

// kill ends the process at once and waits until it has.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only where it is gone already
	<-p.exited
	_ = p.input.Close()
}

// ended says how a process ended that nobody asked to, with the last it said; nil while it lives.
func (p *process) ended() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	said, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	return fmt.Errorf("%s has ended: %v: %s", p.name, p.err, bytes.Join(lines[max(0, len(lines)-3):], []byte("\n")))
}

// usage is what processes have used since they began.
type usage struct {
	cpu     time.Duration
	written int64 // bytes handed to the file system
}

// used reads the usage of a process from /proc; nothing where there is no such thing.
func (p *process) used() (u usage) {
	if stat, err := os.ReadFile(p.proc("stat")); err == nil {
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		const user, system, hertz = 11, 12, 100 // places after the name; the kernel reports in hundredths on every platform of Go
		if len(fields) > system {
			u.cpu = time.Duration(number(fields[user])+number(fields[system])) * time.Second / hertz
		}
	}
	u.written, _ = p.field("io", "write_bytes:")
	return u
}

// peak is the most memory that the process has had since the last forgetPeak, bytes.
func (p *process) peak() int64 {
	kilobytes, _ := p.field("status", "VmHWM:")
	return kilobytes << 10
}

// held is the memory that the process has now, without garbage and free memory, bytes. It takes a moment: caches go with time.
func (p *process) held(ctx context.Context) (int64, error) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	const looks, close = 30, 100 // a change of less than a hundredth is none
	var before int64
	for range looks {
		if err := p.cmd.Process.Signal(tidySignal); err != nil {
			return 0, fmt.Errorf("ask %s to tidy up: %w", p.name, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		kilobytes, _ := p.field("status", "VmRSS:")
		now := kilobytes << 10
		if change := now - before; -now/close < change && change < now/close {
			return now, nil
		}
		before = now
	}
	return before, nil
}

// forgetPeak has the peak counted from now on.
func (p *process) forgetPeak() {
	_ = os.WriteFile(p.proc("clear_refs"), []byte("5"), 0) // without it the peak is that since the start
}

func (p *process) proc(file string) string {
	return filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), file)
}

// field finds a number in a file of /proc that has a name and a number to the line.
func (p *process) field(file, name string) (int64, error) {
	text, err := os.ReadFile(p.proc(file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == name {
			return number(fields[1]), nil
		}
	}
	return 0, errors.New("no " + name + " in " + file)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // the kernel writes numbers
	return n
}
