//go:build !unix

package torture

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("this system can't stop and continue processes; run it on Linux, macOS or another Unix")

func canSignal() error         { return errNoSignals }
func freeze(*os.Process) error { return errNoSignals }
func thaw(*os.Process) error   { return errNoSignals }
func term(p *os.Process) error { return p.Kill() }
