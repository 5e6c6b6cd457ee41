package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/plan"
)

// FuzzReadDAG holds for any text: no panic; a refusal is a bounded correction; what is accepted is the same after it was
// encoded and read again; and of a plan that passes its check every step can run, in some order.
func FuzzReadDAG(f *testing.F) {
	f.Add(dagOf(report...))
	f.Add(dagOf(`{"id":1,"tool":"calc","args":{"expr":"$$1"}}`, `{"id":2,"tool":"calc","args":{"expr":"\u00241.a.0"},"after":["1",3]}`, `{"id":"3","tool":"now"}`))
	f.Add(dagOf(`{"id":"1","tool":"calc","args":{"expr":"$9"},"after":["2"]}`, `{"id":"2","tool":"send_email","args":{},"open":["to"],"after":["1"]}`))
	f.Fuzz(func(t *testing.T, text string) {
		d, thought, err := plan.ReadDAG(text)
		if err != nil {
			checkViolation(t, err)
			return
		}
		encoded := d.Encode(thought)
		if strings.ContainsAny(encoded, "\n\r") || !json.Valid([]byte(encoded)) {
			t.Fatalf("not one line of JSON: %s", encoded)
		}
		again, same, err := plan.ReadDAG(encoded)
		if err != nil {
			t.Fatalf("the encoded plan is refused: %v\n%s", err, encoded)
		}
		if diff := cmp.Diff(d, again); diff != "" || same != thought {
			t.Fatalf("plan (-read +read again):\n%s", diff)
		}
		if err := plan.CheckDAG(d, dagRules); err != nil {
			checkViolation(t, err)
			return
		}
		results := map[string]json.RawMessage{}
		for !d.Ended() {
			ready := d.Ready()
			if len(ready) == 0 {
				t.Fatalf("the plan is stuck: %s", encoded)
			}
			for _, s := range ready {
				args, err := plan.Resolve(s.Args, results, someVars)
				if err != nil {
					checkViolation(t, err)
				} else if !json.Valid(args) {
					t.Fatalf("%s became %s", s.Args, args)
				}
				results[s.ID] = json.RawMessage(`{"a":["$1"]}`)
				d[d.Index(s.ID)].Status = plan.Done
			}
		}
	})
}

func checkViolation(t *testing.T, err error) {
	t.Helper()
	var v *plan.Violation
	if !errors.As(err, &v) || v.Rule == "" || !utf8.ValidString(v.Text) || len(v.Text) > 7000 {
		t.Fatalf("the error is no proper violation: %#v", err)
	}
}

// FuzzReadReact holds for any text: no panic; a refusal is a bounded observation; what is accepted is the same after it
// was encoded and read again; and its arguments are one object on one line.
func FuzzReadReact(f *testing.F) {
	f.Add("Thought: Look it up.\nAction: search\nAction Input: {\"query\": \"Elbe\"}\nPAUSE\nObservation: 3\nFinal Answer: 3")
	f.Add("**Thought 1:** hm\n\n`Action`: search[a]\nAction: `calc[1 + 2]` PAUSE")
	f.Add("```\nno label\nFinal Answer: **3**\n\u200b\n\u00a0PAUSE\nPAUSE\n```")
	f.Fuzz(func(t *testing.T, text string) {
		said, err := plan.ReadReact(text, reactRules)
		if err != nil {
			var v *plan.Violation
			if !errors.As(err, &v) || v.Rule == "" || !utf8.ValidString(v.Text) {
				t.Fatalf("the error is no proper violation: %#v", err)
			}
			checkObservation(t, v, "")
			return
		}
		if said.Call != nil && (!json.Valid(said.Call.Arguments) || strings.ContainsAny(string(said.Call.Arguments), "\n\r")) {
			t.Fatalf("arguments: %s", said.Call.Arguments)
		}
		encoded := said.Encode()
		again, err := plan.ReadReact(encoded, reactRules)
		if err != nil {
			t.Fatalf("the encoded turn is refused: %v\n%s", err, encoded)
		}
		if diff := cmp.Diff(said, again); diff != "" {
			t.Fatalf("turn (-read +read again):\n%s\n%s", diff, encoded)
		}
	})
}
