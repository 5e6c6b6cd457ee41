package loop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conversation makes n messages, two of each run, so that message 7 is the first of run r3.
func conversation(n int) *Session {
	s := &Session{}
	for i := range n {
		s.Messages = append(s.Messages, SessionMessage{Role: "user", Text: fmt.Sprint("m", i+1), Run: fmt.Sprint("r", i/2), N: uint64(i%2 + 1)})
	}
	return s
}

func texts(messages []SessionMessage) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Text + " ")
	}
	return strings.TrimSpace(b.String())
}

// upTo has the summary stand for the first n messages.
func (s *Session) upTo(n int) *Session {
	m := s.Messages[n-1]
	s.Summary = &SessionSummary{Text: "so far", Run: m.Run, N: m.N}
	return s
}

func TestWhatASummaryTakes(t *testing.T) {
	running := conversation(12)
	running.Runs = []string{"r1", "r5"}
	long := conversation(60)
	for i := range long.Messages {
		long.Messages[i].Text = strings.Repeat("x", 5000)
	}
	gone := conversation(12).upTo(4)
	gone.Messages = gone.Messages[4:]
	for name, c := range map[string]struct {
		s    *Session
		want string
	}{
		"nothing":                       {&Session{}, ""},
		"all is shown":                  {conversation(4), ""},
		"too few for a call":            {conversation(5), ""},
		"enough":                        {conversation(6), "m1 m2"},
		"after the summary":             {conversation(10).upTo(4), "m5 m6"},
		"too few after the summary":     {conversation(9).upTo(4), ""},
		"a run that goes on":            {running, "m1 m2"},
		"what it stood for has expired": {gone, "m5 m6 m7 m8"},
	} {
		if got := texts(c.s.due(4)); got != c.want {
			t.Errorf("%s: %q is due, want %q", name, got, c.want)
		}
	}
	if n := len(long.due(4)); n != summaryInput/summaryMessage {
		t.Errorf("%d long messages are due at once", n)
	}
}

func TestWhatARunIsShownOfItsSession(t *testing.T) {
	off := &Worker{Config: Config{History: 4}}
	on := &Worker{Config: Config{History: 4, Summaries: true}}
	long := conversation(12)
	long.Messages[6].Text = strings.Repeat("x", summaryInput+1)
	for name, c := range map[string]struct {
		w    *Worker
		s    *Session
		run  string
		want past
	}{
		"off":                        {off, conversation(9), "", past{messages: conversation(9).Messages[5:]}},
		"off, with an old summary":   {off, conversation(9).upTo(2), "", past{messages: conversation(9).Messages[5:]}},
		"no summary yet":             {on, conversation(6), "", past{messages: conversation(6).Messages}},
		"no summary, much said":      {on, conversation(12), "", past{messages: conversation(12).Messages[4:]}},
		"no gap after the summary":   {on, conversation(9).upTo(4), "", past{"so far", conversation(9).Messages[4:]}},
		"the summary is up to date":  {on, conversation(9).upTo(5), "", past{"so far", conversation(9).Messages[5:]}},
		"it stands for shown ones":   {on, conversation(9).upTo(8), "", past{"so far", conversation(9).Messages[5:]}},
		"what the run said":          {on, conversation(8).upTo(2), "r3", past{"so far", conversation(6).Messages[2:]}},
		"a long one ends what is in": {on, long, "", past{messages: long.Messages[7:]}},
	} {
		got := c.w.before(*c.s, c.run)
		if c.want.summary != got.summary || texts(c.want.messages) != texts(got.messages) {
			t.Errorf("%s: shown %q and %q, want %q and %q", name, got.summary, texts(got.messages), c.want.summary, texts(c.want.messages))
		}
	}
}

// When messages expire, the summary ends at one that stays, and nothing is put into it twice.
func TestExpiryMovesTheMark(t *testing.T) {
	s := conversation(12).upTo(6)
	for _, c := range []struct{ run, mark, next string }{{"r2", "m4", "m7"}, {"r0", "m4", "m7"}, {"r4", "m4", "m7"}, {"r1", "", "m7"}} {
		s.moveMark(c.run)
		rest := s.Messages[:0:0]
		for _, m := range s.Messages {
			if m.Run != c.run {
				rest = append(rest, m)
			}
		}
		s.Messages = rest
		mark := ""
		if i := s.mark(); i >= 0 {
			mark = s.Messages[i].Text
		}
		if diff := cmp.Diff([]string{c.mark, c.next}, []string{mark, s.unsummed()[0].Text}); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", c.run, diff)
		}
	}
}
