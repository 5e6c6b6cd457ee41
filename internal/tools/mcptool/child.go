package mcptool

import (
	"bufio"
	"io"
	"os/exec"
	"time"
)

// maxStderrLine bounds a line of a child's standard error in the log, in bytes.
const maxStderrLine = 2 << 10

// child makes the command of the server's process. What it writes to its standard error goes to the log at level debug.
func (s *Server) child() *exec.Cmd {
	cmd := exec.Command(s.conf.Command[0], s.conf.Command[1:]...)
	cmd.Env = append([]string{}, s.conf.Env...) // never nil, which would mean the worker's own
	cmd.Dir = s.conf.Dir
	cmd.WaitDelay = 2 * time.Second // a grandchild may hold the pipes open
	ownGroup(cmd)
	cmd.Stderr = s.stderr()
	return cmd
}

func (s *Server) stderr() io.Writer {
	return &lineLog{log: func(line string) { s.conf.Log.Debug("an MCP server says", "line", s.conf.Secrets.Hide(line)) }}
}

// lineLog cuts what is written into lines.
type lineLog struct {
	log  func(string)
	rest []byte
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		n, line, _ := bufio.ScanLines(l.rest, false) // never fails
		if n == 0 {
			if len(l.rest) <= maxStderrLine {
				return len(p), nil
			}
			n, line = len(l.rest), l.rest[:maxStderrLine]
		}
		l.log(string(line))
		l.rest = l.rest[n:]
	}
}
