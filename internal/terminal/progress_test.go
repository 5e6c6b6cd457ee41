package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

func TestProgress(t *testing.T) {
	half := Progress{
		Total: 3000, Over: 1500, Failed: 30, Working: 32, Waiting: 2, Rate: 12.4, Left: 2 * time.Minute, Elapsed: 2 * time.Minute,
	}
	for _, c := range []struct {
		name  string
		p     Progress
		width int
		want  []string
	}{
		{"half", half, 80, []string{
			"  ━━━━━━━━━━━━━━━━━━━━────────────────────  50%  1,500 of 3,000",
			"  12 a second · 30 failed · 32 working · 2 waiting for a person · 2 min 0 s left",
		}},
		{"narrow", half, 32, []string{
			"  ━━━━─────  50%  1,500 of 3,000", "  12 a second · 30 failed", "  32 working", "  2 waiting for a person", "  2 min 0 s left",
		}},
		{"no total", Progress{Over: 7, Rate: 0.5, Elapsed: 14 * time.Second, Trouble: "no worker is running"}, 80, []string{
			"  7 ended · 30.0 a minute · 0 failed · 0 working · 14 s", "  no worker is running",
		}},
		{"all", Progress{Total: 1, Over: 1, Elapsed: time.Second, Failed: 1}, 80, []string{
			"  " + strings.Repeat("━", 40) + " 100%  1 of 1", "  1 failed · 0 working · 1.0 s",
		}},
		{"more than there were", Progress{Total: 1, Over: 2, Left: 300 * time.Millisecond}, 20, []string{
			"  ━━━━━ 100%  2 of 1", "  0 failed", "  0 working", "  1 s left",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := c.p.Lines(c.width, Style{})
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i, line := range c.p.Lines(c.width, Style{Color: true}) {
				if plain := ansi.Strip(line); plain != lines[i] || ansi.StringWidth(plain) > c.width {
					t.Errorf("%q has %d cells of %d, and %q without colours", plain, ansi.StringWidth(plain), c.width, lines[i])
				}
			}
		})
	}
	want := "1,500 of 3,000 · 12 a second · 30 failed · 32 working · 2 waiting for a person · 2 min 0 s left"
	if diff := cmp.Diff(want, half.Line()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
