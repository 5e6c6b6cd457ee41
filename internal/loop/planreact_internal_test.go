package loop

import (
	"encoding/json"
	"testing"
)

func TestJSONText(t *testing.T) {
	for value, want := range map[string]string{
		`null`: ``, `"x"`: `x`, ` "x" `: `x`, `"\ud800"`: "\ufffd", `1`: `1`, `true`: `true`, `{"a": "b"}`: `{"a": "b"}`, `[1]`: `[1]`, ``: ``,
		`{"broken`: `{"broken`,
	} {
		if got := jsonText(json.RawMessage(value)); got != want {
			t.Errorf("%s is shown as %q, want %q", value, got, want)
		}
	}
}
