package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ratchet/internal/plan"
)

// The rolling summary of a session is queued work of its own, as learning is: a run that ends queues it, and it never delays
// an answer. It lies in the session and is written by compare-and-set, so that of two workers that made the same one only one
// stores it.

// Bounds of a summary and of making it.
const (
	summaryBytes   = 4 << 10  // of a summary
	summaryInput   = 24 << 10 // of the messages that one model call puts into it
	summaryMessage = 2 << 10  // of one of them; its beginning counts
	summaryTries   = 5
)

// summaryTexts is the version of the texts with which a model is asked for a summary.
const summaryTexts = "session/1"

// past is what a run is shown of its session.
type past struct {
	summary  string
	messages []SessionMessage // oldest first
}

// before is what a run is shown of its session: the last messages of other runs; where summaries are kept, also those before
// them that no summary stands for yet, up to as many again as long as they are short, and the summary of the rest.
func (w *Worker) before(s Session, run string) (p past) {
	others := func(messages []SessionMessage) []SessionMessage {
		return slices.DeleteFunc(slices.Clone(messages), func(m SessionMessage) bool { return m.Run == run })
	}
	p.messages = others(s.Messages)
	from := max(len(p.messages)-w.History, 0)
	if w.Summaries {
		first := max(len(p.messages)-len(others(s.unsummed())), from-w.History)
		for room := summaryInput; from > first && room >= len(p.messages[from-1].Text); from-- {
			room -= len(p.messages[from-1].Text)
		}
		if s.Summary != nil {
			p.summary = s.Summary.Text
		}
	}
	p.messages = p.messages[from:]
	return p
}

// unsummed are the messages after those that the summary stands for.
func (s *Session) unsummed() []SessionMessage { return s.Messages[s.mark()+1:] }

// mark is the place of the last message that the summary stands for; -1 where there is none.
func (s *Session) mark() int {
	if s.Summary == nil {
		return -1
	}
	return slices.IndexFunc(s.Messages, func(m SessionMessage) bool { return m.Run == s.Summary.Run && m.N == s.Summary.N })
}

// moveMark has the summary end at a message that stays when those of a run are removed.
func (s *Session) moveMark(run string) {
	for i := s.mark(); i >= 0; i-- {
		if m := s.Messages[i]; m.Run != run {
			s.Summary.Run, s.Summary.N = m.Run, m.N
			return
		}
	}
}

// due are the messages that go into the summary next: those before the last keep, of runs that have ended, as many as one
// model call takes; none while they are fewer than half of keep, so that not every run costs a call.
func (s *Session) due(keep int) []SessionMessage {
	open := s.unsummed()
	open = open[:max(len(open)-keep, 0)]
	if len(open) < max(keep/2, 1) {
		return nil
	}
	room := summaryInput
	for i, m := range open {
		room -= min(len(m.Text), summaryMessage)
		if room < 0 || slices.Contains(s.Runs, m.Run) {
			return open[:i]
		}
	}
	return open
}

// sumJob is the body of the job.
type sumJob struct {
	Session string `json:"session"`
	Run     string `json:"run"` // that has ended
}

// queueSummary queues a look at the session of a run that has ended.
func (w *Worker) queueSummary(ctx context.Context, s *State) error {
	if !w.Summaries || s.Task.Session == "" {
		return nil
	}
	return w.Wakes.Job(ctx, s.Tenant, JobSum, fmt.Sprintf("%s/%d", s.Run, s.Seq), sumJob{Session: s.Task.Session, Run: s.Run})
}

// sumUp brings the summary of a session up to date. Doing it again does nothing.
func (w *Worker) sumUp(ctx context.Context, d *Delivery) error {
	var job sumJob
	if err := json.Unmarshal(d.Body, &job); err != nil || !ValidID(d.Tenant) || !ValidID(job.Session) || !ValidID(job.Run) {
		w.Log.Warn("a job for a summary can't be done; it is dropped", "tenant", d.Tenant, "body", clip(string(d.Body), 200))
		return nil
	}
	for more := true; more; {
		var err error
		if more, err = w.sumOnce(ctx, RunID{Tenant: d.Tenant, Run: job.Run}, job.Session); err != nil {
			var fault *ModelError
			final := errors.Is(err, ErrUseless) || errors.As(err, &fault) && !fault.Passing
			if !final && d.Attempt < summaryTries {
				return err
			}
			w.Log.Warn("a session's summary is not brought up to date; the end of its next run tries again",
				"tenant", d.Tenant, "session", job.Session, "error", err)
			return nil
		}
	}
	return nil
}

// sumOnce puts what is due into the summary, and reports whether there may be more.
func (w *Worker) sumOnce(ctx context.Context, by RunID, session string) (more bool, err error) {
	s, _, err := w.Sessions.LoadSession(ctx, by.Tenant, session)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("load session %s/%s to sum it up: %w", by.Tenant, session, err)
	}
	due := s.due(w.History)
	if !w.Summaries || len(due) == 0 {
		return false, nil
	}
	text, err := w.askSummary(ctx, by, s.Summary, due)
	if err != nil {
		return false, fmt.Errorf("sum up session %s/%s: %w", by.Tenant, session, err)
	}
	last := due[len(due)-1]
	next := SessionSummary{Text: text, Run: last.Run, N: last.N, Time: w.Now().UTC()}
	_, err = w.updateSession(ctx, by.Tenant, session, func(now *Session) bool {
		known := slices.ContainsFunc(now.Messages, func(m SessionMessage) bool { return m.Run == last.Run && m.N == last.N })
		more = known && now.sumsUp(s.Summary) // else somebody else has done it, or the messages have expired
		if more {
			now.Summary = &next
		}
		return more
	})
	return more, err
}

// sumsUp reports whether this is still the summary of the session.
func (s *Session) sumsUp(to *SessionSummary) bool {
	if s.Summary == nil || to == nil {
		return s.Summary == to
	}
	return s.Summary.Text == to.Text && s.Summary.Time.Equal(to.Time)
}

// askSummary asks the model for the summary of what a summary stands for and the messages after it. One that is too long is
// asked for again, shorter, and then cut.
func (w *Worker) askSummary(ctx context.Context, by RunID, before *SessionSummary, messages []SessionMessage) (string, error) {
	prompt, err := summaryPrompt(before, messages)
	if err != nil {
		return "", err
	}
	for again := false; ; again = true {
		reply, err := w.Model.Complete(ctx, ModelRequest{Run: by, Purpose: PurposeSummarize, Model: w.SummaryModel, Messages: prompt})
		if err != nil {
			return "", err
		}
		text := strings.TrimSpace(plan.CutReasoning(reply.Text))
		switch {
		case text == "":
			return "", fmt.Errorf("%w: the model's reply is empty", ErrUseless)
		case len(text) <= summaryBytes && !reply.Truncated || again:
			return clip(text, summaryBytes), nil
		}
		prompt = append(prompt, Message{Role: "assistant", Content: clip(text, 4*summaryBytes)}, Message{Role: "user", Content: fmt.Sprintf(
			"This summary has %d bytes or more, and %d are allowed. Write it again, shorter.", len(text), summaryBytes)})
	}
}

// summaryPrompt asks for a summary. What was said is data: it is sent as JSON, in a message of its own.
func summaryPrompt(before *SessionSummary, messages []SessionMessage) ([]Message, error) {
	type said struct {
		Role string `json:"role"`
		Text string `json:"text"`
	}
	data := struct {
		Summary  string `json:"summary"`
		Messages []said `json:"messages"`
	}{}
	if before != nil {
		data.Summary = before.Text
	}
	for _, m := range messages {
		data.Messages = append(data.Messages, said{m.Role, clip(m.Text, summaryMessage)})
	}
	text, err := encodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%w: encode what is to be summed up: %w", ErrUseless, err)
	}
	return []Message{
		{Role: "system", Content: render(summaryTexts+"/system.tmpl", struct{ Most int }{summaryBytes / 2})},
		{Role: "user", Content: string(text)},
	}, nil
}
