package terminal

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// maxLine bounds a line that is read, in bytes; more than any worker takes as a reply.
const maxLine = 1 << 20

// Line is a line that was read, or why there is none: io.EOF at the end.
type Line struct {
	Text string
	Err  error
}

// Input reads lines when they are wanted, so that a prompt can be given up while nobody has typed anything. It is for one
// goroutine; a read that is under way when it is dropped ends with the process.
type Input struct {
	reader  *bufio.Reader
	lines   chan Line
	reading bool
	tty     *tty // nil: no terminal
}

// NewInput reads from r, which may be a terminal.
func NewInput(r io.Reader) *Input {
	in := &Input{reader: bufio.NewReader(r), lines: make(chan Line, 1)}
	if file, ok := r.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		in.tty = newTTY(int(file.Fd()))
	}
	return in
}

// Terminal reports whether a person can type.
func (in *Input) Terminal() bool { return in.tty != nil }

// Hush stops the terminal from showing what is typed while nothing is asked for, and forgets what was.
func (in *Input) Hush() { in.tty.echo(false, true) }

// Restore makes the terminal show again what is typed.
func (in *Input) Restore() { in.tty.echo(true, false) }

// Want begins to read a line, which then comes out of [Input.Lines]. On a terminal, what was typed before is dropped: it
// was no answer to what is asked now.
func (in *Input) Want() {
	if in.tty != nil {
		in.tty.echo(true, true)
		select {
		case <-in.lines:
			in.reading = false
		default:
		}
	}
	if in.reading {
		return
	}
	in.reading = true
	go func() {
		text, err := in.line()
		in.lines <- Line{text, err}
	}()
}

// Lines delivers the wanted line. After a receive, call [Input.Got].
func (in *Input) Lines() <-chan Line { return in.lines }

// Got says that the line was received.
func (in *Input) Got() { in.reading = false }

// line reads up to a line break, or the rest before the end.
func (in *Input) line() (string, error) {
	var b strings.Builder
	for {
		part, err := in.reader.ReadSlice('\n')
		b.Write(part)
		switch {
		case b.Len() > maxLine:
			return "", errors.New("the line is too long")
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && b.Len() > 0:
			err = nil
		}
		return strings.TrimRight(b.String(), "\r\n"), err
	}
}
