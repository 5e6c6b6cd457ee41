package batch

import (
	"encoding/json"
	"strings"
	"time"

	"ratchet/internal/loop"
)

// Status is what became of a line.
type Status string

// The statuses. Those of runs are called as in the state of a run.
const (
	Done      Status = Status(loop.StatusDone)
	Failed    Status = Status(loop.StatusFailed)
	Cancelled Status = Status(loop.StatusCancelled)
	Waiting   Status = Status(loop.StatusWaiting) // for a person, when the batch ended
	Invalid   Status = "invalid"                  // the line is no task that a worker accepts
)

// final reports whether another run of the batch can't bring anything else.
func (s Status) final() bool { return s == Done || s == Failed || s == Cancelled }

// expired is the reason of a failure that is not the run's own: nobody knows any more how it ended.
const expired = "expired"

// Result is what became of one line: a line of the results.
type Result struct {
	Line      int             `json:"line"`
	Run       string          `json:"run,omitempty"`
	Status    Status          `json:"status"`
	Answer    string          `json:"answer,omitempty"`
	Reason    string          `json:"reason,omitempty"`  // of a failure or a cancel
	Message   string          `json:"message,omitempty"` // of a failure, or what is wrong with the line
	By        string          `json:"by,omitempty"`      // who cancelled it
	Questions []Question      `json:"questions,omitempty"`
	Usage     *loop.Usage     `json:"usage,omitempty"`
	Ended     time.Time       `json:"ended,omitzero"`
	Metadata  json.RawMessage `json:"metadata,omitempty"` // of the task
}

// Question is what a run waits for. Run is the one that asks, which may be a child of that of the line.
type Question struct {
	Run      string            `json:"run"`
	Question string            `json:"question"`
	Kind     loop.QuestionKind `json:"kind"`
	Text     string            `json:"text"` // clipped to 1 KiB
	Tool     string            `json:"tool,omitempty"`
}

// maxText is how much of a question's text is kept, in bytes: many runs may ask.
const maxText = 1 << 10

func questionOf(run string, q loop.Question) Question {
	text := q.Text
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return Question{Run: run, Question: q.Question, Kind: q.Kind, Text: text, Tool: q.Tool}
}

// resultOf is the result of a run with a final event; false for any other event.
func resultOf(line int, e loop.Event) (Result, bool) {
	r := Result{Line: line, Run: e.Run, Ended: e.Time, Metadata: e.Metadata}
	switch d := e.Data.(type) {
	case loop.Answer:
		r.Status, r.Answer, r.Usage = Done, d.Answer, &d.Usage
	case loop.Failed:
		r.Status, r.Reason, r.Message, r.Usage = Failed, string(d.Reason), d.Message, &d.Usage
	case loop.Cancelled:
		r.Status, r.Reason, r.By = Cancelled, d.Reason, d.By
	default:
		return Result{}, false
	}
	return r, true
}
