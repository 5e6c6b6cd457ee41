package llm

import (
	"encoding/json"
	"math"

	openai "github.com/sashabaranov/go-openai"
)

// cleanResponse has the fields that a run needs in the shapes of the API.
type cleanResponse struct {
	Model   string `json:"model"`
	Choices []struct {
		Message struct {
			Content   string `json:"content"`
			Refusal   string `json:"refusal"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"message"`
		FinishReason string          `json:"finish_reason"`
		Error        json.RawMessage `json:"error"`
	} `json:"choices"`
	Usage cleanUsage      `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// cleanChunk is the same for an event of a stream. The content stays as it is written: it may end within a character.
type cleanChunk struct {
	Model   string `json:"model"`
	Choices []struct {
		Index int `json:"index"`
		Delta *struct {
			Content   json.RawMessage `json:"content"`
			Refusal   string          `json:"refusal"`
			ToolCalls json.RawMessage `json:"tool_calls"`
		} `json:"delta"`
		FinishReason string          `json:"finish_reason"`
		Error        json.RawMessage `json:"error"`
	} `json:"choices"`
	Usage cleanUsage      `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type cleanUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

func (u cleanUsage) valid() bool {
	return min(u.Prompt, u.Completion) >= 0 && max(u.Prompt, u.Completion) <= math.MaxInt32
}

func (u cleanUsage) usage() openai.Usage {
	return openai.Usage{PromptTokens: u.Prompt, CompletionTokens: u.Completion}
}

// readClean reads an event that is a piece of text and has nothing in it to be mended, as almost all are, at once and not
// field by field. It leaves the stream's state alone where it is not. What it makes of one is what mend would, unless a key
// stands twice in an object: then encoding/json merges what mend replaces.
func (m *chunkMender) readClean(e event) (piece openai.ChatCompletionStreamChoiceDelta, clean bool) {
	var in cleanChunk
	if e.failed || json.Unmarshal(e.data, &in) != nil || len(in.Choices) != 1 || !in.Usage.valid() || present(in.Error) {
		return piece, false
	}
	c := &in.Choices[0]
	d := c.Delta
	switch {
	case c.Index != 0 || d == nil || present(c.Error) || c.FinishReason == "error" || present(d.ToolCalls):
		return piece, false
	case present(d.Content) && d.Content[0] != '"':
		return piece, false
	}
	if u := in.Usage.usage(); u.PromptTokens+u.CompletionTokens > 0 {
		m.usage = u
	}
	if in.Model != "" {
		m.model = in.Model
	}
	m.any = true
	piece.Refusal = d.Refusal
	if present(d.Content) {
		piece.Content = m.text.read(d.Content)
	}
	m.size += len(piece.Content) + len(piece.Refusal)
	if c.FinishReason != "" && c.FinishReason != "null" {
		m.finish = finish(c.FinishReason)
	}
	return piece, true
}

// readClean reads a response in which nothing has to be mended, as almost all are, at once and not field by field. What it
// makes of one is what mend would, with the same exception.
func readClean(body []byte) (out *openai.ChatCompletionResponse, clean bool) {
	var in cleanResponse
	if json.Unmarshal(body, &in) != nil || len(in.Choices) == 0 {
		return out, false
	}
	c := &in.Choices[0]
	if present(in.Error) || present(c.Error) || c.FinishReason == "error" || !in.Usage.valid() {
		return out, false
	}
	out = &openai.ChatCompletionResponse{Model: in.Model, Usage: in.Usage.usage(), Choices: make([]openai.ChatCompletionChoice, 1)}
	out.Choices[0].FinishReason = openai.FinishReason(finish(c.FinishReason))
	m := &out.Choices[0].Message
	m.Role, m.Content, m.Refusal = openai.ChatMessageRoleAssistant, c.Message.Content, c.Message.Refusal
	for _, call := range c.Message.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, openai.ToolCall{
			ID: call.ID, Type: openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: call.Function.Name, Arguments: call.Function.Arguments},
		})
	}
	return out, true
}
