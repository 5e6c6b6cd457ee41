package batch

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Sink takes results.
type Sink interface {
	// Known returns what an earlier batch has left of a run (empty: of a line that is no task) and is not to be had again by
	// waiting; of it only Status and Usage are sure to be there.
	Known(run string, line int) (Result, bool)
	// Expect says that a result of the line will come. Lines are expected in their order.
	Expect(line int)
	// Pass says that the result of a line that is expected may take long: others need not wait for it.
	Pass(line int) error
	// Room reports whether more lines may be expected.
	Room() bool
	// Put takes the result of a line that was expected.
	Put(r Result) error
}

// Bounds of what is held back so that results come in the order of their lines.
const (
	heldLines = 4096
	heldBytes = 32 << 20
)

// Stream writes results to a place that can't be read again. With inOrder they come in the order of their lines, those of
// lines that were passed excepted: a result is held back until those before it are there, and where too many are held back
// there is no room for more lines.
type Stream struct {
	w       io.Writer
	inOrder bool
	encode  func([]byte) []byte // nil: as it is

	expected []int // lines whose results are held back or not there, in order
	held     map[int][]byte
	bytes    int
}

// NewStream returns a sink that writes to w, each result after encode where that is not nil.
func NewStream(w io.Writer, inOrder bool, encode func([]byte) []byte) *Stream {
	return &Stream{w: w, inOrder: inOrder, encode: encode, held: map[int][]byte{}}
}

// Known implements [Sink]: nothing is.
func (*Stream) Known(string, int) (Result, bool) { return Result{}, false }

// Expect implements [Sink].
func (s *Stream) Expect(line int) {
	if s.inOrder {
		s.expected = append(s.expected, line)
	}
}

// Pass implements [Sink].
func (s *Stream) Pass(line int) error {
	if i := slices.Index(s.expected, line); i >= 0 {
		s.expected = slices.Delete(s.expected, i, i+1)
	}
	return s.flush()
}

// Room implements [Sink].
func (s *Stream) Room() bool { return len(s.expected) < heldLines && s.bytes < heldBytes }

// Put implements [Sink].
func (s *Stream) Put(r Result) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the result of line %d: %w", r.Line, err)
	}
	if s.encode != nil {
		text = s.encode(text)
	}
	s.held[r.Line] = append(text, '\n')
	s.bytes += len(text) + 1
	if !slices.Contains(s.expected, r.Line) { // passed, or in no order
		return s.write(r.Line)
	}
	return s.flush()
}

// flush writes what no line before it holds back any more.
func (s *Stream) flush() error {
	for len(s.expected) > 0 {
		line := s.expected[0]
		if _, there := s.held[line]; !there {
			return nil
		}
		s.expected = s.expected[1:]
		if err := s.write(line); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) write(line int) error {
	text := s.held[line]
	delete(s.held, line)
	s.bytes -= len(text)
	if _, err := s.w.Write(text); err != nil {
		return fmt.Errorf("write the result of line %d: %w", line, err)
	}
	return nil
}
