package loop

import (
	"strings"
)

// What a run knows from before it began is data, whoever said it: it is shown between marks, as what tools return is. Facts
// and summaries were written by models that read what people, tools and other models said.

// Known is the facts as models are shown them, one a line.
func (f *Facts) Known() string {
	lines := make([]string, len(f.Facts))
	for i, fact := range f.Facts {
		lines[i] = "- " + strings.Join(strings.Fields(fact.Text), " ")
	}
	return fenced(strings.Join(lines, "\n"))
}

// Recap is the summary of the session as models are shown it.
func (f *Facts) Recap() string { return fenced(f.Summary) }

// Before is what was said in the session as models are shown it, one message a line, as JSON, so that no message can pass
// for another's.
func (f *Facts) Before() (string, error) {
	lines := make([]string, len(f.History))
	for i, m := range f.History {
		line, err := encodeJSON(struct {
			Role string `json:"role"`
			Text string `json:"text"`
		}{m.Role, m.Text})
		if err != nil {
			return "", err
		}
		lines[i] = string(line)
	}
	return fenced(strings.Join(lines, "\n")), nil
}
