package loop

import (
	"encoding/json"
	"testing"
)

// TestHide: what a tool repeats of the task's values is not shown to a model, in whatever form.
func TestHide(t *testing.T) {
	s := State{Task: Task{Vars: map[string]json.RawMessage{
		"email": json.RawMessage(`"ada@example.com"`), "name": json.RawMessage(`"Ada \"A\" Marsh"`), "short": json.RawMessage(`"ad"`),
		"account": json.RawMessage(`{"iban": "DE021203", "digits": [4711, 1]}`), "domain": json.RawMessage(`"example.com"`),
	}}}
	for text, want := range map[string]string{
		"sent to ada@example.com, ada": "sent to $session.email, ada",
		`{"to":"ada@example.com"}`:     `{"to":"$session.email"}`,
		`{"who":"Ada \"A\" Marsh"}`:    `{"who":"$session.name"}`,
		`Ada "A" Marsh of example.com`: `$session.name of $session.domain`,
		"DE021203 and 4711 and 1":      "$session.account.iban and $session.account.digits.0 and 1",
		"nothing of it":                "nothing of it",
	} {
		if got := s.hide(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}
