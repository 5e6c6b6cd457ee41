package loop

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"ratchet/internal/plan"
)

// replied folds a person's reply to the open question.
func (s *State) replied(e Event, d Reply) {
	q := s.Question
	if q == nil || q.Question != d.Question {
		return
	}
	s.Question = nil
	s.asked[q.Question] = replyKey{closed: true, by: d.fingerprint()}
	s.say(e, "user", d.words())
	switch q.Kind {
	case KindApproval:
		s.approved(q, d)
	case KindEscalation:
		s.settled(q, d)
	case KindAsk:
	}
}

// words is the reply as a person would read it in a conversation.
func (d Reply) words() string {
	switch {
	case d.Approve != nil && *d.Approve:
		return strings.TrimSpace("Approved. " + d.Text)
	case d.Approve != nil:
		return strings.TrimSpace("Refused. " + d.Reason + d.Text)
	case d.Text != "":
		return d.Text
	default:
		return string(d.Value)
	}
}

func (d Reply) fingerprint() string {
	d.By = ""
	if d.Text != "" {
		d.Value = nil // made from the text
	}
	b, err := encodeJSON(d)
	if err != nil {
		return d.Question + d.Text
	}
	return string(b)
}

func (s *State) approved(q *Question, d Reply) {
	c := s.call(q.Call)
	if c == nil {
		return
	}
	if d.Approve == nil || !*d.Approve {
		c.Approval, c.Refusal = approvalRefused, "A person refused this call. "+d.Reason+d.Text
		return
	}
	c.Approval = approvalGiven
	if len(d.Arguments) > 0 {
		c.Arguments = d.Arguments
	}
	if d.Remember == "" {
		return
	}
	s.remembered = append(s.remembered, d.Remember)
	for i := range s.Calls {
		if s.Calls[i].Approval == approvalNeeded && matchesAny(s.remembered, s.Calls[i].Tool) {
			s.Calls[i].Approval = approvalGiven
		}
	}
}

// OutcomeReply is a person's word on a call whose outcome is unknown.
type OutcomeReply struct {
	Outcome string          `json:"outcome"` // done, not_done or give_up
	Result  json.RawMessage `json:"result,omitempty"`
}

// outcomeSchema is the answer_schema of an escalation about a call.
const outcomeSchema = `{"type":"object","required":["outcome"],"properties":{"outcome":{"enum":["done","not_done","give_up"]},"result":{}}}`

// settled folds what a person says about a call with an unknown outcome. The words reach the model with the strategy's
// observation of the reply; a result counts like that of any other call.
func (s *State) settled(q *Question, d Reply) {
	var o OutcomeReply
	if json.Unmarshal(d.Value, &o) != nil {
		return
	}
	switch o.Outcome {
	case "done":
		s.Results = append(s.Results, CallResult{q.Call, orNull(o.Result)})
	case "give_up":
		s.end(Cancelled{Reason: "given up by a person after a call whose outcome is unknown", By: d.By})
	}
}

// timedOut folds a deadline that has passed.
func (s *State) timedOut(d Timeout, at time.Time) {
	switch d.What {
	case TimeoutRun:
		s.end(Failed{Reason: FailTimeout, Message: "The run worked for longer than its timeout of " + s.timeout().String() + "."})
	case TimeoutWait:
		if s.Wait != nil && !s.Wait.Session && !s.Wait.Until.After(at) {
			s.Wait = nil
		}
		for i := range s.Calls {
			if w := s.Calls[i].Waiting; w != nil && !w.Until.After(at) {
				s.Calls[i].Overdue = true
			}
		}
	case TimeoutQuestion:
		s.unanswered(d)
	default: // no worker of ours writes another one
	}
}

// unanswered applies on_timeout to the open question. Silence is never a yes, and never a person's no.
func (s *State) unanswered(d Timeout) {
	q := s.Question
	if q == nil || q.Question != d.Question {
		return
	}
	s.Question = nil
	s.asked[q.Question] = replyKey{closed: true}
	if s.Task.Ask.OnTimeout == AskFail {
		s.end(Failed{Reason: FailQuestionTimeout, Message: "Nobody answered in time: " + clip(q.Text, 500)})
		return
	}
	if c := s.call(q.Call); c != nil && q.Kind == KindApproval {
		c.Approval, c.Refusal = approvalRefused, "Nobody approved this call in time, so it was not run."
	}
}

// fingerprint identifies a call by tool and arguments, whatever the order of the arguments' keys.
func fingerprint(tool string, args json.RawMessage) string {
	if sorted, plain := plan.Canonical(args); plain {
		return digest([]byte(tool), []byte{0}, sorted)
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil {
		if sorted, err := encodeJSON(v); err == nil {
			args = sorted
		}
	}
	return digest([]byte(tool), []byte{0}, args)
}

// digest is short enough for an event and long enough that nothing in one run collides.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
