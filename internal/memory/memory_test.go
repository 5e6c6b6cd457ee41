package memory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ratchet/internal/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestID(t *testing.T) {
	id := memory.ID("acme", "ann", "The user prefers tea.")
	if want := "adf6a2dc-0a0d-5769-b780-871da9454463"; id != want { // stored ones would be lost
		t.Errorf("id is %s, want %s", id, want)
	}
	for _, same := range []string{"the user  prefers tea", " THE USER\nPREFERS TEA.", "The user prefers ｔea!", "The user prefers tea.."} {
		if memory.ID("acme", "ann", same) != id {
			t.Errorf("%q has another id", same)
		}
	}
	for _, other := range [][3]string{
		{"acme", "ann", "The user prefers teas."},
		{"acme", "bob", "The user prefers tea."},
		{"acme2", "ann", "The user prefers tea."},
		{"acm", "eann", "The user prefers tea."},
		{"acme", "", "annThe user prefers tea."},
	} {
		if memory.ID(other[0], other[1], other[2]) == id {
			t.Errorf("%q has the same id", other)
		}
	}
}

func TestCheckCleans(t *testing.T) {
	got, err := memory.NewFact{Text: " a\tb\u0000c\r\n d\xffe \u200b "}.Check()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(memory.NewFact{Text: "a b c d e", Kind: "other"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTrivial(t *testing.T) {
	for _, text := range []string{"", "ok", "OK!", "Thanks, great!", "yes please", "👍", "…", "danke", "that's all, thank you", "Hello"} {
		if !memory.Trivial(text) {
			t.Errorf("%q is not trivial", text)
		}
	}
	for _, text := range []string{"yes, book the flight", "tea", "What do I like?", "ok ok ok ok ok ok ok ok", "stop the deployment", "42", "東京"} {
		if memory.Trivial(text) {
			t.Errorf("%q is trivial", text)
		}
	}
}

func TestQuery(t *testing.T) {
	got := memory.Query([]string{"zero", "I need a hotel", "ok", "in Porto"}, "With breakfast")
	if want := "I need a hotel\nin Porto\nWith breakfast"; got != want {
		t.Errorf("query is %q, want %q", got, want)
	}
	if got := memory.Query([]string{"I need a hotel"}, "thanks!"); got != "" {
		t.Errorf("thanks asks for %q", got)
	}
	long := memory.Query([]string{strings.Repeat("ä", 3000)}, "the goal")
	if len(long) > 1000 || !strings.HasSuffix(long, "ä\nthe goal") || strings.ContainsRune(long, '�') {
		t.Errorf("a long query has %d bytes and ends in %q", len(long), long[len(long)-12:])
	}
}
