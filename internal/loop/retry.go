package loop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A task may ask for a failed run to be tried again, with what the model makes of the failure: retry_with_reflection. The run
// goes on from the beginning under its strategy; its journal, its tokens and its time go on too.

// maxRetries is how often a task may ask for that.
const maxRetries = 2

// retryPrompt is the version of the texts that look back on a failure, for runs of all versions there are. When the texts
// change, which of them a run gets is to depend on the version that the run began with.
const retryPrompt = "retry/1"

// aboutRetry names the model call that looks back on a failure.
const aboutRetry = "retry"

func (d AskModel) postMortem() bool { return d.Purpose == PurposeReflect && d.About == aboutRetry }

// postMortem is the model call that is owed before the run fails for this reason; ok is false where it just fails.
func (s *State) postMortem(why Failed) (ask AskModel, ok bool) {
	switch {
	case !slices.Contains([]FailReason{FailRejectionsExhausted, FailStepsExhausted, FailNoProgress}, why.Reason),
		s.retries >= s.Task.RetryWithReflection,
		s.unsure, // a call may have taken effect, and nobody can say so to the next attempt
		s.tokensSpent():
		return AskModel{}, false
	}
	return AskModel{Purpose: PurposeReflect, About: aboutRetry, Turn: s.retries + 1}, true
}

// failure is what the run is about to fail with.
func (s *State) failure() Failed {
	if f, ok := s.Ending.(Failed); ok {
		f.Usage = s.Usage
		return f
	}
	if end, ok := s.spentLimit().(End); ok {
		if f, ok := end.Data.(Failed); ok {
			return f
		}
	}
	return Failed{Reason: FailModelError, Message: "The run failed.", Usage: s.Usage}
}

// postMortemBytes is how much of the end of the conversation is looked back on.
const postMortemBytes = 24 << 10

func (s *State) postMortemRequest() ModelRequest {
	var b strings.Builder
	for _, m := range s.Transcript {
		fmt.Fprintf(&b, "%s: %s\n\n", m.Role, m.Content)
	}
	talk := b.String()
	if from := len(talk) - postMortemBytes; from > 0 {
		talk = "… " + strings.ToValidUTF8(talk[from:], "")
	}
	data := struct {
		Task    Task
		Failure string
		Talk    string
	}{s.Task, s.hide(s.failure().Message), fenced(talk)}
	return ModelRequest{Messages: []Message{
		{Role: "system", Content: render(retryPrompt+"/system.tmpl", nil)},
		{Role: "user", Content: render(retryPrompt+"/failure.tmpl", data)},
	}}
}

func (s *State) lookedBack(r *ModelReply) Data {
	text := cmp.Or(strings.TrimSpace(clip(r.Text, 4<<10)), "(nothing)")
	return Reflection{
		Text: text, Retry: s.retries + 1,
		Made: Made{Model: r.Model, Usage: &r.Usage, MS: r.MS}, // notes are for the next attempt
	}
}

// tryAgain begins the run anew with what was learnt. What took effect and can't be repeated is told too.
func (s *State) tryAgain(d Reflection) {
	var b strings.Builder
	fmt.Fprintf(&b, "This is attempt %d. The one before it failed: %s\nWhat was learnt from it: %s", d.Retry+1, s.hide(s.failure().Message), d.Text)
	for _, done := range s.effects {
		b.WriteString("\nThis call took effect already and must not be made again: " + s.hide(done))
	}
	for _, m := range s.said() {
		if !slices.ContainsFunc(s.Notes, func(n heldNote) bool { return n.n == m.N }) {
			b.WriteString("\nThe person said: " + m.Text)
		}
	}
	s.retries, s.turnsBefore = d.Retry, s.Turns
	s.Ending, s.Plan, s.Asking, s.Answering, s.Escalate, s.Wait = nil, nil, nil, nil, nil, nil
	s.dag, s.round = dagState{}, roundState{}
	s.repeats, s.mostRepeats, s.sameAgain = nil, 0, 0
	s.entries, s.Transcript = nil, nil
	s.add(entry{Message: Message{Role: "user", Content: b.String()}, n: s.N, kind: fromPerson})
}
