package terminal

import "golang.org/x/sys/unix"

// tty turns the echo of a terminal off and on. A nil one does nothing.
type tty struct {
	fd    int
	saved unix.Termios
	ok    bool
}

func newTTY(fd int) *tty {
	t := &tty{fd: fd}
	if state, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		t.saved, t.ok = *state, true
	}
	return t
}

// echo sets whether the terminal shows what is typed. forget drops what was typed and not read yet. A process in the
// background leaves the terminal alone: it belongs to another one.
func (t *tty) echo(on, forget bool) {
	if t == nil || !t.ok {
		return
	}
	if group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return
	}
	state := t.saved
	if !on {
		state.Lflag &^= unix.ECHO
	}
	request := uint(unix.TCSETS)
	if forget {
		request = unix.TCSETSF
	}
	_ = unix.IoctlSetTermios(t.fd, request, &state) // fails where the terminal has gone, and then nobody looks
}
