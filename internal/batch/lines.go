package batch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line of a batch file, in bytes: what a worker takes as a task, and some room for spaces.
const maxLine = 288 << 10

var byteOrderMark = []byte("\xef\xbb\xbf")

// line is a line of a batch file. One with err holds no text.
type line struct {
	n    int // from 1, empty lines counted
	text []byte
	err  error
}

// lines reads a batch file one line at a time. Its memory does not depend on the length of the file or of a line.
type lines struct {
	r *bufio.Reader
	n int
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line that is not empty, without the signs at its ends that are no part of it. io.EOF ends the file; any
// other error means that the rest can't be read.
func (l *lines) next() (line, error) {
	for {
		text, whole, err := l.read()
		if err != nil {
			return line{}, err
		}
		l.n++
		text = bytes.TrimSpace(bytes.TrimPrefix(text, byteOrderMark))
		switch {
		case !whole:
			return line{n: l.n, err: fmt.Errorf("it has more than %d KiB", maxLine>>10)}, nil
		case len(text) > 0:
			return line{n: l.n, text: bytes.Clone(text)}, nil
		}
	}
}

// read reads up to the end of a line. Of one that is too long nothing is kept.
func (l *lines) read() (text []byte, whole bool, err error) {
	whole = true
	for begun := false; ; begun = true {
		part, err := l.r.ReadSlice('\n')
		switch {
		case !whole:
		case len(text)+len(part) > maxLine:
			text, whole = nil, false
		case err == nil && text == nil:
			return part, true, nil // the usual case: no copy
		default:
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (begun || len(part) > 0):
			return text, whole, nil
		}
		return text, whole, err
	}
}

// Count returns how many lines that are not empty a batch file has.
func Count(r io.Reader) (int, error) {
	count := 0
	for l := newLines(r); ; count++ {
		_, err := l.next()
		if errors.Is(err, io.EOF) {
			return count, nil
		} else if err != nil {
			return count, fmt.Errorf("count the lines: %w", err)
		}
	}
}
