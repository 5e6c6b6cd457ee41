package loop

import (
	"fmt"
	"strconv"
	"strings"
)

// bytesPerToken is what a token is taken for until an endpoint has said how many a prompt had.
const bytesPerToken = 4

// estimate is how many tokens the prompt of a request has, as the endpoint counts them if its last count is a guide.
func (dr *drive) estimate(r *ModelRequest) int { return int(float64(rawEstimate(r)) * dr.scale()) }

// rawEstimate leaves the schema of the reply out: some endpoints count it and some do not, and the count of the last prompt
// tells.
func rawEstimate(r *ModelRequest) int {
	size := promptBytes(r.Messages)
	for _, t := range r.Tools {
		size += len(t.Description) + len(t.Schema)
	}
	return size/bytesPerToken + 1
}

func (dr *drive) scale() float64 {
	if dr.measured == 0 {
		return 1
	}
	return dr.measured
}

// measure learns from the endpoint's count of a prompt whose estimate was size. What is far off is the endpoint's fancy, such
// as a count without cached tokens, and is not followed all the way.
func (dr *drive) measure(size int, u Usage) {
	if u.PromptTokens > 0 {
		dr.measured = min(max(float64(u.PromptTokens)/float64(size), 0.5), 4)
	}
}

// prepare looks whether the prompt fits into the window and into what is left of the run's tokens, and commits what has to
// happen first: a Summary, or the run's end. ready means that the model can be asked.
func (dr *drive) prepare(d AskModel, r *ModelRequest) (ready bool, err error) {
	size := dr.estimate(r)
	if d.Purpose == PurposeStep && size > dr.w.Window {
		if made, err := dr.makeRoom(d, r, dr.room()); made || err != nil {
			return false, err
		}
	}
	s := &dr.state
	// While calls are open the run can't end here. It ends once they are observed, by what was really used.
	if limit := s.tokenLimit(); limit == 0 || s.tokensUsed()+dr.lost+size <= limit || len(s.Calls) > 0 {
		return true, nil
	}
	return false, dr.commit(func(s *State) Data {
		switch {
		case !owes(s, d):
			return nil
		case d.postMortem():
			return s.failure() // as it would have without a look back
		}
		return s.outOfTokens(fmt.Sprintf("The run used %d tokens, and the next prompt would have about %d; its limit is %s.",
			s.tokensUsed()+dr.lost, size, s.sayLimit()))
	})
}

// room is how many bytes a prompt may have.
func (dr *drive) room() int { return int(float64(dr.w.Window*bytesPerToken) / dr.scale()) }

// makeRoom compacts the conversation so that the prompt fits into so many bytes, or asks for what that takes. made is false
// where it can't be made much shorter.
func (dr *drive) makeRoom(d AskModel, r *ModelRequest, window int) (made bool, err error) {
	rest := rawEstimate(r)*bytesPerToken - promptBytes(dr.state.Transcript)
	sum, can := dr.state.compact(rest, window)
	if !can {
		return false, nil
	}
	if sum.Whole && dr.w.SummaryModel != "" && dr.affordsSummary(sum.Upto, window) {
		dr.summarize(d, sum, window)
		return true, nil
	}
	return true, dr.commit(func(s *State) Data {
		if !owes(s, d) {
			return nil
		}
		sum, can := s.compact(rest, window)
		if !can {
			return nil
		}
		return sum
	})
}

// tokensUsed is what counts against the limit: with what crashes may have cost, and what is set aside for child runs.
func (s *State) tokensUsed() int { return s.Usage.Total() + s.Lost + s.reserved }

// tokenLimit is how many tokens the run may use; 0: any number. Money counts as the tokens that it buys at the price that
// the run has paid for one so far, so that it bounds all that tokens bound: the next prompt, the word to finish, the shares of
// child runs.
func (s *State) tokenLimit() int {
	limit := s.Task.Limits.MaxTokens
	if money, paid := s.Task.Limits.MaxCostUSD, s.Usage.CostUSD; money > 0 && paid > 0 {
		bought := max(int(money/paid*float64(s.Usage.Total())), 1)
		if limit == 0 || bought < limit {
			limit = bought
		}
	}
	return limit
}

// tokensSpent reports whether the limit is reached.
func (s *State) tokensSpent() bool {
	limit := s.tokenLimit()
	return limit > 0 && s.tokensUsed() >= limit
}

// sayLimit is the limit in words.
func (s *State) sayLimit() string {
	limit := s.tokenLimit()
	if limit == s.Task.Limits.MaxTokens {
		return strconv.Itoa(limit)
	}
	return fmt.Sprintf("%g USD, which is about %d tokens", s.Task.Limits.MaxCostUSD, limit)
}

// tokensShort reports whether the model must come to an end: 85 of 100 parts of the tokens are used, or two more calls
// do not fit, which are a little longer than the last one was.
func (s *State) tokensShort() bool {
	limit := s.tokenLimit()
	used := s.tokensUsed()
	return limit > 0 && used > 0 && (100*used >= 85*limit || used+s.lastUsage.Total()*5/2 > limit)
}

const finishNow = "Almost all tokens that this run may use are used. Finish now, in few words: make no further call that you " +
	"can do without, close what is open with what you know, and give the final answer."

// outOfTokens ends the run for want of tokens, with how far it came.
func (s *State) outOfTokens(why string) Failed {
	var b strings.Builder
	b.WriteString(why)
	if len(s.Plan) > 0 {
		b.WriteString(" The plan so far:")
	}
	for i, step := range s.Plan {
		if b.Len() > headText {
			fmt.Fprintf(&b, " … and %d steps more", len(s.Plan)-i)
			break
		}
		fmt.Fprintf(&b, " %d. %s (%s", i+1, clip(step.Step, 100), step.Status)
		if step.Result != "" {
			b.WriteString(": " + clip(string(step.Result), 150))
		}
		b.WriteString(");")
	}
	return Failed{Reason: FailTokensExhausted, Message: strings.TrimSuffix(b.String(), ";") + ".", Usage: s.Usage}
}
