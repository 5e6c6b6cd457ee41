package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Size in columns and rows that is assumed where none can be found out.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// Output is a place where people read.
type Output struct {
	W     io.Writer
	Is    bool                       // a terminal
	Live  bool                       // a terminal on which lines can be rewritten
	Style Style                      // colours
	Size  func() (width, height int) // in cells; nil: 80 by 24
}

// NewOutput finds out what w is. Colours are off where NO_COLOR is set to anything, see https://no-color.org; a
// terminal with TERM=dumb, or without TERM, gets neither colours nor a live view.
func NewOutput(w io.Writer, getenv func(string) string) Output {
	o := Output{W: w}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return o
	}
	o.Is = true
	kind := getenv("TERM")
	o.Live = kind != "" && kind != "dumb"
	o.Style.Color = o.Live && getenv("NO_COLOR") == ""
	o.Size = func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return defaultWidth, defaultHeight
		}
		return width, height
	}
	return o
}

// Dimensions returns the size, in cells; a text of this width fits without the terminal breaking it.
func (o Output) Dimensions() (width, height int) {
	if o.Size == nil {
		return defaultWidth, defaultHeight
	}
	return o.Size()
}

// Style paints text, or leaves it as it is.
type Style struct{ Color bool }

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold, Dim, Good, Bad and Wait paint a text. They take cleaned text: what they return must not be cleaned again.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Dim is for what may be overlooked.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Good is for what has succeeded.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad is for what has failed.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Wait is for what needs a person's attention.
func (s Style) Wait(text string) string { return s.paint("33", text) }

// Busy is for what is going on.
func (s Style) Busy(text string) string { return s.paint("36", text) }
