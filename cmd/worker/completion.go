package main

import (
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"ratchet/internal/completion"
)

// completionFlags are those of worker completion.
type completionFlags struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is what --help says below the one line of the command.
func (completionFlags) Help() string { return completion.Help("worker") }

// run prints the script.
func (f completionFlags) run(stdout, stderr io.Writer) int {
	script, err := completion.Script(f.Shell, "worker")
	if err == nil {
		_, err = io.WriteString(stdout, script)
	}
	if err != nil {
		fmt.Fprintln(stderr, "worker completion:", err)
		return exitError
	}
	return exitOK
}

// proposals are the values that this program knows of.
func proposals(_ *kong.Node, of *kong.Value, _ map[string]string) []completion.Proposal {
	switch of.Name {
	case "model":
		return []completion.Proposal{{Value: "demo", Help: "the built-in offline model"}}
	case "sync":
		return []completion.Proposal{{Value: "always"}, {Value: "2m"}}
	}
	return nil
}
