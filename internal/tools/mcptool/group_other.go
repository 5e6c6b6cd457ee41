//go:build !unix

package mcptool

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup ends the child; what it started is its own affair here.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill() // fails where it has ended already
	}
}
