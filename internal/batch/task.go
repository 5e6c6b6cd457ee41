package batch

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"ratchet/internal/loop"
)

// space is the namespace of ids that are derived from a file and a line, for ever.
var space = uuid.MustParse("6f0c1d55-2d2c-5b0e-8a51-9f2d7a3f4e10")

// task is a line that can be handed in.
type task struct {
	line int
	id   string
	body []byte
}

// key stands for a run id in a set: of ids of any length it keeps 16 bytes.
type key [16]byte

func keyOf(id string) (k key) {
	sum := sha256.Sum256([]byte(id))
	copy(k[:], sum[:])
	return k
}

// tasks makes tasks of lines.
type tasks struct {
	name  string      // of the file, without its folder
	user  string      // of tasks that name none; empty: none
	taken map[key]int // ids that lines name, and those lines
	odd   map[string]bool
	say   func(string)
}

// maxOdd bounds how many unknown fields are told.
const maxOdd = 20

// read makes the task of a line. The error says in words for a person what is wrong with it.
//
// A task without an id gets one that depends on the file's name, the number of the line and its text alone: the same line of
// the same file is the same run, whoever hands it in and however often.
func (t *tasks) read(l line) (task, error) {
	if l.err != nil {
		return task{}, l.err
	}
	derived := uuid.NewSHA1(space, fmt.Appendf(nil, "%s\n%d\n%x", t.name, l.n, sha256.Sum256(l.text))).String()
	parsed, unknown, err := loop.ParseTask(l.text, derived)
	switch {
	case err != nil:
		return task{}, err
	case parsed.Every != "":
		return task{}, errors.New("a task that is repeated has no end to wait for: hand it in with submit --every")
	}
	for _, field := range unknown {
		if !t.odd[field] && len(t.odd) < maxOdd {
			t.odd[field] = true
			t.say(fmt.Sprintf("Line %d: a task has no field %q; it is ignored.", l.n, field))
		}
	}
	if parsed.ID != derived {
		k := keyOf(parsed.ID)
		if first := t.taken[k]; first != 0 {
			return task{}, fmt.Errorf("its id %s is that of line %d, and the same id is the same run", parsed.ID, first)
		}
		t.taken[k] = l.n
	}
	body, err := t.complete(l.text, parsed)
	return task{line: l.n, id: parsed.ID, body: body}, err
}

// complete adds what the line leaves out and keeps the rest as it is.
func (t *tasks) complete(text []byte, parsed loop.Task) ([]byte, error) {
	add := map[string]string{"id": parsed.ID}
	if parsed.User == "" && t.user != "" {
		add["user"] = t.user
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("the task can't be read: %w", err)
	}
	for name, value := range add {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("the task can't be written: %w", err)
		}
		fields[name] = encoded
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("the task can't be written: %w", err)
	}
	return body, nil
}
