package loop

import (
	"encoding/json"
	"strings"
)

// judgeReply decides what a reply is to a run: an answer to its open question, a note, or nothing.
func (w *Worker) judgeReply(s *State, r Reply) (Data, verdict) {
	r.By = clip(r.By, 256)
	switch {
	case r.Question != "" && s.asked[r.Question].closed && s.asked[r.Question].by == r.fingerprint():
		return nil, verdict{status: OutcomeDuplicate, message: "this reply was accepted before"}
	case s.Ended != nil || s.Ending != nil:
		return nil, verdict{status: OutcomeStale, message: "the run has ended"}
	case r.Question == "" && s.Question == nil:
		return note(r)
	case r.Question == "":
		r.Question = s.Question.Question
	case !s.AskedBefore(r.Question):
		return nil, verdict{status: OutcomeUnknown, message: "the run never asked a question " + clip(r.Question, 64)}
	case s.Question == nil || s.Question.Question != r.Question:
		return nil, verdict{status: OutcomeStale, message: "question " + r.Question + " is closed"}
	}
	if problem := w.fits(s, &r); problem != "" {
		return nil, verdict{status: OutcomeInvalid, message: problem}
	}
	return r, verdict{status: OutcomeAccepted}
}

func note(r Reply) (Data, verdict) {
	if strings.TrimSpace(r.Text) == "" {
		return nil, verdict{status: OutcomeInvalid, message: "no question is open, and a note needs text"}
	}
	return Note{Text: r.Text, By: r.By}, verdict{status: OutcomeAccepted, message: "taken as a note: no question is open"}
}

// fits says what is wrong with a reply to the open question, or nothing. It puts a text that is the wanted value into
// the value's place.
func (w *Worker) fits(s *State, r *Reply) string {
	q := s.Question
	switch q.Kind {
	case KindApproval:
		return w.fitsApproval(s, r)
	case KindAsk, KindEscalation:
	}
	if r.Approve != nil {
		return "question " + q.Question + " asks for an answer, not for an approval"
	}
	if len(q.AnswerSchema) == 0 {
		if strings.TrimSpace(r.Text) == "" && len(r.Value) == 0 {
			return "the reply has no text"
		}
		return ""
	}
	return w.fitsSchema(q.AnswerSchema, r)
}

// fitsSchema checks the reply's value. A text alone is taken as the value where it satisfies the schema, read as JSON
// or as it is.
func (w *Worker) fitsSchema(schema json.RawMessage, r *Reply) string {
	candidates := []json.RawMessage{r.Value}
	if len(r.Value) == 0 {
		quoted, err := encodeJSON(r.Text)
		if err != nil {
			return "the reply's text can't be read: " + err.Error()
		}
		candidates = []json.RawMessage{quoted}
		if json.Valid([]byte(r.Text)) {
			candidates = []json.RawMessage{json.RawMessage(r.Text), quoted}
		}
	}
	var first []string
	for _, c := range candidates {
		problems, err := w.Tools.Validate(schema, c)
		if err != nil {
			// The model wrote a schema that is none. Nobody can satisfy it, so the reply is taken as it is.
			return ""
		}
		if len(problems) == 0 {
			r.Value = c
			return ""
		}
		if first == nil {
			first = problems
		}
	}
	return "the reply does not satisfy the question's answer_schema: " + strings.Join(first, "; ")
}

func (w *Worker) fitsApproval(s *State, r *Reply) string {
	q := s.Question
	switch {
	case r.Approve == nil:
		return "question " + q.Question + ` asks for an approval: reply with "approve": true or false`
	case !*r.Approve:
		return ""
	case r.ArgumentsSHA256 != q.ArgumentsSHA256:
		return "arguments_sha256 is not that of the question, so it is not known what was approved; look at the question again"
	case r.Remember != "" && !matchesAny([]string{r.Remember}, q.Tool):
		return "remember " + clip(r.Remember, 64) + " does not match the tool " + q.Tool
	case len(r.Arguments) == 0:
		return ""
	}
	specs, _ := w.Tools.Offer([]string{q.Tool})
	checked, problems, known := NewToolbox(specs).arguments(q.Tool, r.Arguments)
	if !known {
		return "the tool " + q.Tool + " is not offered any more"
	}
	if len(problems) > 0 {
		return "the edited arguments are not valid: " + strings.Join(problems, "; ")
	}
	r.Arguments = checked
	return ""
}
