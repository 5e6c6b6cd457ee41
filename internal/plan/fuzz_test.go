package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// FuzzRead holds for any text: no panic; a refusal is a bounded correction; what is accepted is the same after it was
// encoded and read again; and a reply whose end is missing is not accepted. The replies of the corpus are seeds beside
// those in testdata/fuzz.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var c corpusCase
		if err := json.Unmarshal(data, &c); err != nil {
			f.Fatal(err)
		}
		f.Add(c.Input)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := plan.Read(text)
		if err != nil {
			var v *plan.Violation
			if !errors.As(err, &v) || v.Rule == "" || !utf8.ValidString(v.Text) {
				t.Fatalf("the error is no proper violation: %#v", err)
			}
			checkCorrection(t, err, nil)
			return
		}
		var v struct{ Thought string }
		if json.Unmarshal([]byte(text), &v) == nil && v.Thought != m.Thought {
			t.Fatalf("thought %q, encoding/json has %q", m.Thought, v.Thought)
		}
		encoded := m.Encode()
		if strings.ContainsAny(encoded, "\n\r") || !json.Valid([]byte(encoded)) {
			t.Fatalf("not one line of JSON: %s", encoded)
		}
		again, err := plan.Read(encoded)
		if err != nil {
			t.Fatalf("the encoded message is refused: %v\n%s", err, encoded)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("message (-read +read again):\n%s", diff)
		}
		if open := unclosed(text); open {
			t.Fatalf("accepted, though an object is not closed: %q", text)
		}
		for _, c := range m.Calls {
			if !json.Valid(c.Arguments) || bytes.ContainsAny(c.Arguments, "\n") {
				t.Fatalf("arguments: %s", c.Arguments)
			}
		}
	})
}

// unclosed reports whether the text has no object that encoding/json finds whole, commas before closing brackets
// apart: an independent look at whether something was completed.
func unclosed(text string) bool {
	for i := strings.IndexByte(text, '{'); i >= 0; {
		var v map[string]any
		err := json.NewDecoder(strings.NewReader(text[i:])).Decode(&v)
		if err == nil || !strings.Contains(err.Error(), "EOF") {
			return false
		}
		next := strings.IndexByte(text[i+1:], '{')
		if next < 0 {
			return true
		}
		i += 1 + next
	}
	return true
}
