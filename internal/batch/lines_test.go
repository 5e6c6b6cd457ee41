package batch

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	fits := strings.Repeat("y", maxLine)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", nil},
		{"empty lines", "\n\r\n  \t\n", nil},
		{"one without an end", "a", []string{"1 a"}},
		{"CRLF and blanks", "a\r\n\r\n  b \r\n", []string{"1 a", "3 b"}},
		{"byte order marks", "\xef\xbb\xbfa\n\xef\xbb\xbfb\n\xef\xbb\xbf\n", []string{"1 a", "2 b"}},
		{"too long", "a\n" + long + "\nb\n" + long, []string{"1 a", "2 it has more than 288 KiB", "3 b", "4 it has more than 288 KiB"}},
		{"just fits", fits[1:] + "\n" + fits, []string{"1 " + fits[1:], "2 " + fits}},
		{"zero bytes", "\x00\n", []string{"1 \x00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			l := newLines(strings.NewReader(c.text))
			for {
				line, err := l.next()
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				text := string(line.text)
				if line.err != nil {
					text = line.err.Error()
				}
				got = append(got, fmt.Sprint(line.n, " ", text))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%.2000s", diff)
			}
			if n, err := Count(strings.NewReader(c.text)); n != len(c.want) || err != nil {
				t.Errorf("%d lines are counted, %v", n, err)
			}
		})
	}
}

func TestInputThatFails(t *testing.T) {
	_, err := Count(io.MultiReader(strings.NewReader("a\n"), failingReader{}))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// generated makes lines of 100 kB as they are read, of which some are long goals and most are blanks, and measures the heap
// now and then.
type generated struct {
	left, line, bytes int
	rest              string
	peak              uint64
}

func (g *generated) Read(p []byte) (int, error) {
	if g.rest == "" {
		if g.left == 0 {
			return 0, io.EOF
		}
		g.left--
		g.line++
		words := 10
		if g.line%10 == 0 {
			words = 5_000
		}
		g.rest = fmt.Sprintf(`{"goal": "What is %d plus 25? %s"}`, g.line, strings.Repeat("And so on. ", words))
		g.rest += strings.Repeat(" ", 100_000-1-len(g.rest)) + "\n"
		if g.line%100 == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			g.peak = max(g.peak, m.HeapAlloc)
		}
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	g.bytes += n
	return n, nil
}
