package plan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzText: a text is written as encoding/json writes it, and is read again as it was, each byte that is not UTF-8 as U+FFFD.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"", "plain", `"`, "\\", "\n", "\t\r\b\f", "\x00\x1f\x20\x7f", "<b>&</b>", "ünï\u2028\u2029🙂", "\xff", "ab\xc3", "\xed\xa0\x80", "\ufffd",
		strings.Repeat("seven77", 9) + `"` + strings.Repeat("x", 9) + "\x80", "\x1f\x20!\"#[\\]", "!!!!!!!\"#", "\x21\x01\x22\x23\x5d\x5c\x5b\x5a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for i := range min(len(s), 9) { // each at all places of a word
			got := AppendString([]byte("before"), s[i:])
			var back string
			if err := json.Unmarshal(got[len("before"):], &back); err != nil || !utf8.Valid(got) {
				t.Fatalf("%q was written as %s: %v", s[i:], got, err)
			}
			var same bytes.Buffer
			e := json.NewEncoder(&same)
			e.SetEscapeHTML(false)
			if err := e.Encode(s[i:]); err != nil || same.String() != string(got[len("before"):])+"\n" {
				t.Errorf("%q was written as %s, and encoding/json writes %s (%v)", s[i:], got, same.Bytes(), err)
			}
			if want := string([]rune(s[i:])); back != want {
				t.Errorf("%q was written as %s, which is %q", s[i:], got, back)
			}
		}
	})
}
