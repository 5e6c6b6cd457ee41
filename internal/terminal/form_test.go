package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

func TestForm(t *testing.T) {
	yes, no := true, false
	ask := loop.Question{Question: "q1", Kind: loop.KindAsk, Text: "How many?"}
	approval := loop.Question{Question: "q2", Kind: loop.KindApproval, Tool: "buy", Arguments: json.RawMessage(`{"amount":1}`)}
	escalation := loop.Question{
		Question: "q3", Kind: loop.KindEscalation, Tool: "buy",
		AnswerSchema: json.RawMessage(`{"type":"object","required":["outcome"],"properties":{"outcome":{"enum":["done","not_done"]},"result":{}}}`),
	}
	count := loop.Question{
		Question: "q4", Kind: loop.KindAsk, AnswerSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
	}
	address := loop.Question{
		Question: "q5", Kind: loop.KindAsk, AnswerSchema: json.RawMessage(`{"type":"object","required":["street","town"]}`),
	}
	for _, c := range []struct {
		name  string
		q     loop.Question
		lines []string // all but the last leave the form open
		want  loop.Reply
	}{
		{"text", ask, []string{"", "  ", " 200 shares. "}, loop.Reply{Question: "q1", Text: "200 shares."}},
		{"yes", approval, []string{"perhaps", "YES"}, loop.Reply{Question: "q2", Approve: &yes}},
		{"no", approval, []string{"n", ""}, loop.Reply{Question: "q2", Approve: &no}},
		{"silence is no yes", approval, []string{"", "y"}, loop.Reply{Question: "q2", Approve: &no, Reason: "y"}},
		{"one word", escalation, []string{"done"}, loop.Reply{Question: "q3", Value: json.RawMessage(`{"outcome":"done"}`)}},
		{"JSON", escalation, []string{`{"outcome":"done","result":7}`}, loop.Reply{Question: "q3", Text: `{"outcome":"done","result":7}`}},
		{"number", count, []string{"20"}, loop.Reply{Question: "q4", Value: json.RawMessage(`{"n":20}`)}},
		{"no number", count, []string{"many"}, loop.Reply{Question: "q4", Value: json.RawMessage(`{"n":"many"}`)}},
		{"several", address, []string{"Main Street, Town"}, loop.Reply{Question: "q5", Text: "Main Street, Town"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := NewForm(c.q)
			for i, line := range c.lines {
				reply, _, ready := f.Enter(line)
				if ready != (i == len(c.lines)-1) {
					t.Fatalf("after %q: ready is %t", line, ready)
				}
				if diff := cmp.Diff(c.want, reply); ready && diff != "" {
					t.Errorf("reply (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestFormShowsArgumentsWhole also where they are hostile: what is approved is what is seen.
func TestFormShowsArgumentsWhole(t *testing.T) {
	q := loop.Question{
		Question: "q1", Kind: loop.KindApproval, Text: "May I call pay\x1b[8m?", Tool: "pay\u202e",
		Arguments: json.RawMessage(fmt.Sprintf(`{"to":"a\u001b[2K\u202e\u009b1A","note":%q,"list":[1,2]}`, strings.Repeat("long ", 40))),
	}
	q.Arguments = append(q.Arguments[:len(q.Arguments)-1], []byte(",\"raw\":\"\u009b2J\u202e\"}")...)
	for _, width := range []int{80, 40} {
		text := strings.Join(NewForm(q).Lines(width, Style{}), "\n")
		if strings.ContainsAny(text, "\x1b\u009b\u202e") {
			t.Errorf("a terminal would obey %q", text)
		}
		if strings.Count(text, "long") != 40 {
			t.Errorf("not all is shown:\n%s", text)
		}
		golden(t, fmt.Sprintf("approval-%d.txt", width), text+"\n")
	}
}

func TestExchange(t *testing.T) {
	no := false
	ask := loop.Question{Question: "q1", Kind: loop.KindAsk, Text: "How many?\nReally?"}
	approval := loop.Question{Question: "q2", Kind: loop.KindApproval, Tool: "buy", Arguments: json.RawMessage(`{"amount":1}`)}
	var b strings.Builder
	for _, c := range []struct {
		q loop.Question
		d loop.Data
	}{
		{ask, loop.Reply{Text: "200 shares, and be quick about it, please", By: "ada"}},
		{approval, loop.Reply{Approve: &no, Reason: "too dear"}},
		{ask, loop.Timeout{What: loop.TimeoutQuestion}},
		{ask, loop.Cancelled{}},
	} {
		b.WriteString(strings.Join(Exchange(c.q, event(1, c.d), 30, Style{}), "\n") + "\n")
	}
	golden(t, "exchange.txt", b.String())
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                 "plain",
		" a \n\tb\r\n":          "a b",
		"\x1b[2J\x07\x00":       "␛[2J␇␀",
		"\x7f\u009b1m":          "␡\ufffd1m",
		"a\u202eb\u2066c\ufeff": "a\ufffdb\ufffdc\ufffd",
		"\xff\xfe":              "\ufffd",
		"👩\u200d👧 naïve 日本":     "👩\u200d👧 naïve 日本",
		"line\u2028end\u2029":   "line\ufffdend\ufffd",
		"tag\U000e0041":         "tag\ufffd",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) is %q, want %q", in, got, want)
		}
	}
	if got, want := CleanBlock("a\r\n\tb\x1bc\n\n"), "a\n    b␛c"; got != want {
		t.Errorf("CleanBlock is %q, want %q", got, want)
	}
}

func TestCleanJSON(t *testing.T) {
	in := []byte("{\"a\":\"\u009b2J\u202e\U000e0041 ok \x7f\"}")
	got := CleanJSON(in)
	if strings.ContainsFunc(string(got), obeyed) {
		t.Errorf("a terminal would obey %q", got)
	}
	var before, after map[string]string
	if err := json.Unmarshal(in, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the meaning has changed (-before +after):\n%s", diff)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m\u202e\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		if out := Clean(s); strings.ContainsFunc(out, func(r rune) bool { return obeyed(r) }) {
			t.Errorf("Clean(%q) leaves %q", s, out)
		}
		if out := CleanBlock(s); strings.ContainsFunc(out, func(r rune) bool { return r != '\n' && obeyed(r) }) {
			t.Errorf("CleanBlock(%q) leaves %q", s, out)
		}
	})
}

func TestInput(t *testing.T) {
	in := NewInput(strings.NewReader("one\r\n\n" + strings.Repeat("x", 70_000) + "\nlast"))
	if in.Terminal() {
		t.Error("a string is taken for a terminal")
	}
	for _, want := range []int{3, 0, 70_000, 4} {
		in.Want()
		in.Want() // wanting twice reads once
		line := <-in.Lines()
		in.Got()
		if line.Err != nil || len(line.Text) != want {
			t.Errorf("a line of %d bytes, %v; want %d bytes", len(line.Text), line.Err, want)
		}
	}
	in.Want()
	if line := <-in.Lines(); line.Err != io.EOF {
		t.Errorf("at the end there is %+v", line)
	}
}

func TestNewOutput(t *testing.T) {
	out := NewOutput(&strings.Builder{}, func(string) string { return "xterm" })
	if out.Is || out.Live || out.Style.Color {
		t.Errorf("a builder is taken for a terminal: %+v", out)
	}
	if w, h := out.Dimensions(); w != 80 || h != 24 {
		t.Errorf("its size is %d by %d", w, h)
	}
}
