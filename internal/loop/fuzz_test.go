package loop

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// What comes from outside is bytes from strangers. None of it may panic, and what is accepted must survive being stored.

func FuzzParseTask(f *testing.F) {
	for _, s := range []string{
		`{"goal": "g"}`, `{"goal": "g", "id": "a", "limits": {"timeout": "10m", "max_steps": -1}}`, `{"goal": 7}`, `[]`, `{`,
		`{"goal": "g", "vars": {"a": {"b": [1, 2]}}, "metadata": {"c": null}, "tools": ["get_*", "["]}`, "\xff",
		`{"goal": "g", "ask": {"timeout": "-1s", "on_timeout": "maybe"}}`, `null`, `"goal"`, ``, ` `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		task, _, err := ParseTask(body, "default-id")
		if err != nil {
			return
		}
		if !ValidID(task.ID) || task.Goal == "" || !utf8.ValidString(task.Goal) {
			t.Fatalf("accepted %+v", task)
		}
		e := Event{RunID: RunID{"t", task.ID}, N: 1, Source: "/s", Metadata: task.Metadata, Data: Accepted{Task: task}}
		encoded, err := e.Encode()
		if err != nil {
			t.Fatalf("an accepted task can't be stored: %v", err)
		}
		if _, err := DecodeEvent(encoded); err != nil {
			t.Fatalf("a stored task can't be read: %v\n%s", err, encoded)
		}
	})
}

func FuzzParseReply(f *testing.F) {
	for _, s := range []string{
		`{"text": "200"}`, `{"question": "q1", "approve": true, "arguments_sha256": "0", "arguments": {}}`, `{"approve": "yes"}`,
		`{"value": 9007199254740993}`, `{}`, `[1]`, `{"text": "\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		reply, _, err := parseReply(body)
		if err != nil {
			return
		}
		if b, err := encodeJSON(reply); err != nil || !json.Valid(b) {
			t.Fatalf("an accepted reply can't be stored: %v", err)
		}
		_ = reply.fingerprint()
		_ = reply.words()
	})
}

func FuzzParseControl(f *testing.F) {
	for _, s := range []string{`{"op": "cancel"}`, `{"op": "pause", "reason": "r", "by": "u"}`, `{"op": "stop"}`, `{}`, `7`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		control, _, err := parseControl(body)
		if err == nil && control.Op != OpCancel && control.Op != OpPause && control.Op != OpResume {
			t.Fatalf("accepted %+v", control)
		}
	})
}

// FuzzDecodeEvent folds whatever can be read, alone and after an ordinary beginning.
func FuzzDecodeEvent(f *testing.F) {
	for _, e := range samples() {
		encoded, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add([]byte(`{"specversion":"1.0","type":"agent.note","id":"x","subject":"b","tenant":"default","n":1,"data":null}`))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		e, err := DecodeEvent(encoded)
		if err != nil {
			return
		}
		again, err := e.Encode()
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if _, err := DecodeEvent(again); err != nil {
			t.Fatalf("%s came back as %s: %v", encoded, again, err)
		}
		e.N = 1
		s := Step(State{RunID: e.RunID}, e)
		_, _ = s.Owed(), s.Status()
		start := State{RunID: e.RunID}
		for n, d := range []Data{Accepted{Task: Task{Goal: "g"}.withDefaults()}, Facts{}} {
			start = Step(start, Event{RunID: e.RunID, N: uint64(n + 1), Data: d})
		}
		e.N = 3
		s = Step(start, e)
		_, _, _ = s.Owed(), s.Status(), ViewOf(&s)
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"v":1,"run":"a","tenant":"t","status":"running","n":7,"seq":1234,"first":1200,"plan":[],"question":null}`))
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(`{"owner":{"worker":"w","wake":1,"delivery":1},"claim":{"n":1,"attempts":9},"plan":[{"result":{"a":1}}]}`))
	f.Fuzz(func(t *testing.T, stored []byte) {
		var h Head
		if json.Unmarshal(stored, &h) != nil {
			return
		}
		if _, err := json.Marshal(h); err != nil {
			t.Fatalf("a state that could be read can't be written: %v", err)
		}
	})
}
