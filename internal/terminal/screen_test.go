package terminal

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// display is as much of a terminal as a [Screen] needs: text breaks at the width, and the few sequences it writes do
// what a terminal does. A sequence that is not known here fails the test.
type display struct {
	t      *testing.T
	width  int
	cells  [][]rune
	row    int
	column int
}

func (d *display) Write(data []byte) (int, error) {
	text := []rune(string(data))
	for i := 0; i < len(text); i++ {
		switch r := text[i]; {
		case r == '\r':
			d.column = 0
		case r == '\n':
			d.row++
		case r == 0x1b:
			i += d.sequence(text[i:])
		default:
			d.put(r)
		}
	}
	return len(data), nil
}

func (d *display) put(r rune) {
	if d.column == d.width {
		d.row, d.column = d.row+1, 0
	}
	d.grow()
	line := d.cells[d.row]
	for len(line) <= d.column {
		line = append(line, ' ')
	}
	line[d.column] = r
	d.cells[d.row] = line
	d.column++
}

func (d *display) grow() {
	for len(d.cells) <= d.row {
		d.cells = append(d.cells, nil)
	}
}

// sequence obeys one escape sequence and returns how many runes it has behind the first.
func (d *display) sequence(text []rune) int {
	end := 2
	for !strings.ContainsRune("ABCDHJKhlm", text[end]) {
		end++
	}
	switch argument := string(text[2:end]); string(text[end]) + argument {
	case "K":
		d.grow()
		d.cells[d.row] = d.cells[d.row][:min(d.column, len(d.cells[d.row]))]
	case "J":
		d.grow()
		d.cells = d.cells[:d.row+1]
		d.cells[d.row] = d.cells[d.row][:min(d.column, len(d.cells[d.row]))]
	case "h?25", "l?25":
	default:
		n, err := strconv.Atoi(argument)
		if err != nil || text[end] != 'A' {
			d.t.Fatalf("the screen writes the sequence %q", string(text[:end+1]))
		}
		d.row = max(0, d.row-n)
	}
	return end
}

func (d *display) lines() []string {
	var lines []string
	for _, line := range d.cells {
		lines = append(lines, strings.TrimRight(string(line), " "))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func (d *display) shows(want ...string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.lines()); diff != "" {
		d.t.Errorf("on the terminal (-want +got):\n%s", diff)
	}
}

func TestScreenRewritesInPlace(t *testing.T) {
	d := &display{t: t, width: 20}
	s := NewScreen(Output{W: d, Live: true, Size: func() (int, int) { return d.width, 24 }})
	if _, err := d.Write([]byte("$ submit\r\n")); err != nil {
		t.Fatal(err)
	}
	s.Show([]string{"goal", "one", "two"})
	d.shows("$ submit", "goal", "one", "two")
	s.Show([]string{"goal", "ONE"})
	d.shows("$ submit", "goal", "ONE")
	s.Print("said", "done")
	d.shows("$ submit", "said", "done", "goal", "ONE")

	s.Ask([]string{"goal", "how many?"}, "> ")
	d.shows("$ submit", "said", "done", "goal", "how many?", ">")
	echo := strings.Repeat("many ", 7) + "many" // 41 cells with the prompt: three rows
	if _, err := d.Write([]byte(echo + "\r\n")); err != nil {
		t.Fatal(err)
	}
	s.Typed("> ", echo)
	s.Show([]string{"goal"})
	d.shows("$ submit", "said", "done", "goal")

	s.Ask([]string{"goal", "how many?"}, "> ") // answered elsewhere: nothing was typed
	s.Clear()
	s.Print("? how many?")
	d.shows("$ submit", "said", "done", "? how many?")
	s.Show([]string{"the end"})
	s.Close()
	s.Show([]string{"next"})
	d.shows("$ submit", "said", "done", "? how many?", "the end", "next")
}

// TestScreenHidesTheCursor counts: what is hidden must be shown again.
func TestScreenHidesTheCursor(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(Output{W: &out, Live: true})
	s.Show([]string{"a"})
	s.Ask([]string{"a"}, "> ")
	s.Show([]string{"b"})
	s.Show([]string{"c"})
	s.Close()
	s.Close()
	hidden, shown := strings.Count(out.String(), "\x1b[?25l"), strings.Count(out.String(), "\x1b[?25h")
	if hidden != 2 || shown != 2 {
		t.Errorf("the cursor was hidden %d times and shown %d times", hidden, shown)
	}
}

func TestRows(t *testing.T) {
	for line, want := range map[string]int{
		"": 1, "ten cells.": 1, "eleven cell": 2, "\x1b[32mten cells.\x1b[0m": 1, "ショッピング": 2,
	} {
		if got := rows(line, 10); got != want {
			t.Errorf("%q takes %d rows of 10 cells, want %d", line, got, want)
		}
	}
}
