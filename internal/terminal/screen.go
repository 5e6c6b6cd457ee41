package terminal

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Screen keeps a block of lines at the end of a terminal's output and rewrites it in place. It is for one goroutine.
type Screen struct {
	out    Output
	block  []string // what stands there now
	extra  int      // lines that the terminal has put below it, by echoing what a person typed
	hidden bool     // the cursor is
}

// NewScreen returns a screen at the end of a live output. Close it.
func NewScreen(out Output) *Screen { return &Screen{out: out} }

// Show replaces the block.
func (s *Screen) Show(lines []string) {
	if !s.hidden {
		s.write("\x1b[?25l")
		s.hidden = true
	}
	s.replace(nil, lines, "")
}

// Print puts lines above the block, where they stay.
func (s *Screen) Print(lines ...string) { s.replace(lines, s.block, "") }

// Ask replaces the block and leaves the cursor behind a prompt below it, for a person to type a line.
func (s *Screen) Ask(lines []string, prompt string) {
	s.replace(nil, lines, prompt)
	if s.hidden {
		s.write("\x1b[?25h")
		s.hidden = false
	}
}

// Typed tells the screen that a person has ended the line behind the prompt, so that it can be rewritten too.
func (s *Screen) Typed(prompt, line string) {
	s.extra += rows(prompt+Clean(line), s.width())
}

// Keep leaves the block where it is: what follows comes below it.
func (s *Screen) Keep() { s.block, s.extra = nil, 0 }

// Clear removes the block.
func (s *Screen) Clear() { s.replace(nil, nil, "") }

// Close leaves the terminal as it was found, with the block in its place.
func (s *Screen) Close() {
	if s.hidden {
		s.write("\x1b[?25h")
		s.hidden = false
	}
	s.Keep()
}

func (s *Screen) width() int {
	width, _ := s.out.Dimensions()
	return width
}

// replace goes back to where the block began and writes stay, the new block and the prompt over it, in one write so
// that nobody sees it half done.
func (s *Screen) replace(stay, block []string, prompt string) {
	var b strings.Builder
	up := s.extra
	for _, line := range s.block {
		up += rows(line, s.width()) // by today's width: a terminal that became narrower has broken its lines
	}
	if up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	for _, line := range append(append([]string{}, stay...), block...) {
		b.WriteString(line + "\x1b[K\r\n")
	}
	b.WriteString(prompt + "\x1b[J")
	s.write(b.String())
	s.block, s.extra = block, 0
}

// write ignores errors: a terminal that has gone is noticed by the signal it sends.
func (s *Screen) write(text string) { _, _ = io.WriteString(s.out.W, text) }

// rows is how many rows of the terminal a line takes.
func rows(line string, width int) int {
	if width <= 0 {
		return 1
	}
	return max(1, (ansi.StringWidth(line)+width-1)/width)
}
