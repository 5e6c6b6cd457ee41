package llm

import "ratchet/internal/loop"

// Price is what a model costs, in US dollars for a million tokens.
type Price struct {
	PromptPerMillion     float64
	CompletionPerMillion float64
}

func (p Price) cost(u loop.Usage) float64 {
	return (p.PromptPerMillion*float64(u.PromptTokens) + p.CompletionPerMillion*float64(u.CompletionTokens)) / 1e6
}
