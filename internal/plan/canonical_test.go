package plan_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"ratchet/internal/plan"
)

// decoded is what Canonical stands for: the value decoded with its numbers as written, and encoded again.
func decoded(t testing.TB, text []byte) (string, bool) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return "", false
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n"), true
}

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		`{"b": 25, "a": 17}`:                `{"a":17,"b":25}`,
		` { } `:                             `{}`,
		`[ 1 , -2.50 , 0, -0, [] ]`:         `[1,-2.50,0,-0,[]]`,
		`{"z":{"y":[true,null],"x":"<&>"}}`: `{"z":{"x":"<&>","y":[true,null]}}`,
		`{"a":1,"A":2,"aa":3,"":4}`:         `{"":4,"A":2,"a":1,"aa":3}`,
		`"plain"`:                           `"plain"`,
		`false`:                             `false`,
	} {
		got, ok := plan.Canonical([]byte(text))
		if !ok || string(got) != want {
			t.Errorf("%s became %s, %v; want %s", text, got, ok, want)
		}
		if same, _ := decoded(t, []byte(text)); same != want {
			t.Errorf("%s: the test wants what encoding/json does not give: %s", text, same)
		}
	}
	for _, text := range []string{
		``, ` `, `{"a":1,"a":2}`, `{"a":1,}`, `{,"a":1}`, `[1,]`, `[,1]`, `[1 2]`, `{"a" 1}`, `{"a":}`, `{"a":1`, `[1`, `"open`, `01`, `1.`, `.5`, `-`, `1e5`,
		`1234567890123456`, `{"a":"é"}`, `{"a":"\u0041"}`, `nul`, `{"a":1} {}`, `{a:1}`, "\"\x01\"", strings.Repeat("[", 100) + strings.Repeat("]", 100),
	} {
		if got, ok := plan.Canonical([]byte(text)); ok {
			t.Errorf("%q passes for plain: %s", text, got)
		}
	}
}

// FuzzCanonical: what passes for plain is what encoding/json makes of it, and has no key twice.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"b": 25, "a": [1, {"c": "x"}]}`, `[0.5, -1, null]`, `{"a":{"b":1,"a":2}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := plan.Canonical(text)
		if !ok {
			return
		}
		if want, valid := decoded(t, text); !valid || string(got) != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	})
}
