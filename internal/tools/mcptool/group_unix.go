//go:build unix

package mcptool

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the child a process group of its own: a Ctrl-C at the worker's terminal is for the worker, and what the
// child starts (npx starts node) can be ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends what is left of the child's group.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails where nothing is left, which is as it should be
	}
}
