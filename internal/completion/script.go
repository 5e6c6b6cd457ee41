package completion

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed scripts/bash
var bash string

//go:embed scripts/zsh
var zsh string

//go:embed scripts/fish
var fish string

// Script returns what a shell (bash, zsh or fish) has to read to complete the program of that name.
func Script(shell, program string) (string, error) {
	text, known := map[string]string{"bash": bash, "zsh": zsh, "fish": fish}[shell]
	if !known {
		return "", fmt.Errorf("there is no completion for the shell %q: bash, zsh and fish are known", shell)
	}
	return strings.ReplaceAll(text, "PROGRAM", program), nil
}

// Help says how a shell is made to complete the program of that name, below the help of a command that prints scripts.
func Help(program string) string {
	return strings.ReplaceAll(`Commands, flags and their values are then completed by the Tab key.

Examples:

    source <(PROGRAM completion bash)                                        for this shell; in ~/.bashrc for all
    PROGRAM completion zsh > "${fpath[1]}/_PROGRAM"                          for new zsh shells, with compinit
    PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish        for new fish shells`, "PROGRAM", program)
}
