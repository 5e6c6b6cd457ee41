package loop

import (
	"fmt"

	"ratchet/internal/plan"
)

// judged turns the model's reply into the event to append. A reply that is too long is refused before its strategy sees it:
// what was read of it may be its beginning alone.
func (s *State) judged(tools Toolbox, d AskModel, r *ModelReply) Data {
	switch {
	case d.postMortem():
		return s.lookedBack(r)
	case r.tooLong():
		return s.unheard(d, r, fmt.Sprintf("The reply is longer than %d KiB, the most that is read. Send a much shorter one.", plan.MaxReply>>10))
	}
	return strategies[s.Task.Strategy].judge(s, tools, d, r)
}

// tooLong reports whether a reply is longer than one may be: 256 KiB of text and calls together.
func (r *ModelReply) tooLong() bool {
	size := len(r.Text)
	for _, c := range r.Calls {
		size += len(c.Name) + len(c.Arguments)
	}
	return r.Oversize || size > plan.MaxReply
}

// unheard is the rejection of a reply for its form alone.
func (s *State) unheard(d AskModel, r *ModelReply, problem string) Rejection {
	made := Made{Model: r.Model, Usage: &r.Usage, MS: r.MS}
	if d.Purpose == PurposeStep {
		made.Seen = r.Seen // of other calls the prompt has no notes in it
	}
	rejection := s.rejection(problem, r, made)
	rejection.Step = d.About
	return rejection
}
