// Package plan owns the plan of a run: its steps, what a model may do to it from one message to the next, and how a
// model's reply is read. It is pure: no clock, no I/O, standard library only.
package plan

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Status is where a step stands.
type Status string

// The statuses of a step. A [Plan] has pending, in_progress, done and blocked; a [DAG] has pending, running, done, failed
// and skipped.
const (
	Pending    Status = "pending"
	InProgress Status = "in_progress"
	Running    Status = "running"
	Done       Status = "done"
	Blocked    Status = "blocked"
	Failed     Status = "failed"
	Skipped    Status = "skipped" // not run, because a step that it depends on failed
)

// Closed reports whether a step with this status needs no more work.
func (s Status) Closed() bool { return s == Done || s == Blocked || s == Failed || s == Skipped }

// Plan is the list of steps, in the order in which they are to be done.
type Plan []Step

// Step is one step. Its result is empty until it is closed.
type Step struct {
	Step   string `json:"step"`
	Status Status `json:"status"`
	Result Result `json:"result"`
}

// Result is a step's result: text. Empty is null in JSON; a value that is no string is kept as its compact JSON text.
type Result string

// MarshalJSON writes null for an empty result.
func (r Result) MarshalJSON() ([]byte, error) {
	return r.appendJSON(make([]byte, 0, len(r)+len("null"))), nil
}

func (r Result) appendJSON(b []byte) []byte {
	if r == "" {
		return append(b, "null"...)
	}
	return AppendString(b, string(r))
}

// UnmarshalJSON reads text, null, or any other JSON value as its compact text.
func (r *Result) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return errors.New("empty result")
	case data[0] == '"':
		return json.Unmarshal(data, (*string)(r))
	case bytes.Equal(data, []byte("null")):
		*r = ""
		return nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return err
	}
	*r = Result(compact.String())
	return nil
}

// Open returns the index of the first step that is not closed, or -1 where there is none.
func (p Plan) Open() int {
	for i, s := range p {
		if !s.Status.Closed() {
			return i
		}
	}
	return -1
}
