package llm

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/plan"
)

// chunkMender turns the events of one stream into pieces as the API has them, and keeps what their sequence means.
type chunkMender struct {
	any    bool // a choice came
	finish string
	usage  openai.Usage
	model  string
	size   int // bytes of text and tool calls
	text   splice
	calls  []callPieces
}

// callPieces is what identifies the pieces of one native tool call.
type callPieces struct {
	id        string
	index     int // as the endpoint counts
	arguments splice
}

type wireDelta struct {
	Index        json.RawMessage `json:"index"`
	Delta        json.RawMessage `json:"delta"`
	Message      json.RawMessage `json:"message"`
	FinishReason json.RawMessage `json:"finish_reason"`
	Error        json.RawMessage `json:"error"`
}

// mend reads an event. The piece is empty where there is nothing for the reader in it.
func (m *chunkMender) mend(e event) (piece openai.ChatCompletionStreamChoiceDelta, f *failure) {
	if piece, clean := m.readClean(e); clean {
		return piece, nil
	}
	return m.mendFields(e)
}

// mendFields reads an event field by field.
func (m *chunkMender) mendFields(e event) (piece openai.ChatCompletionStreamChoiceDelta, f *failure) {
	var in wireResponse
	if err := json.Unmarshal(e.data, &in); err != nil {
		return piece, &failure{cause: CauseTransport, passing: true, said: "a piece of the stream can't be read: " + quote(string(e.data))}
	}
	switch {
	case present(in.Error):
		return piece, embedded(in.Error)
	case e.failed:
		return piece, embedded(e.data)
	}
	if u := usage(in.Usage); u.PromptTokens+u.CompletionTokens > 0 {
		m.usage = u // some count in every chunk: the last is the sum
	}
	if name := text(in.Model); name != "" {
		m.model = name
	}
	var choices []wireDelta
	if present(in.Choices) && json.Unmarshal(in.Choices, &choices) != nil {
		return piece, &failure{cause: CauseEndpointNotOpenAI, said: "choices in the stream is not a list: " + quote(string(e.data))}
	}
	for _, c := range choices {
		if number(c.Index) == 0 {
			return m.choice(c)
		}
	}
	return piece, nil
}

func (m *chunkMender) choice(c wireDelta) (delta openai.ChatCompletionStreamChoiceDelta, f *failure) {
	reason := text(c.FinishReason)
	if reason == "error" || present(c.Error) {
		return delta, embedded(c.Error)
	}
	m.any = true
	raw := c.Delta
	if !present(raw) && present(c.Message) {
		raw = c.Message // a whole message in one event
	}
	var d wireMessage
	if present(raw) && json.Unmarshal(raw, &d) != nil {
		return delta, &failure{cause: CauseTransport, passing: true, said: "a piece of the stream can't be read: " + quote(string(raw))}
	}
	if !present(c.Delta) && present(c.Message) && m.size > 0 {
		d = wireMessage{} // at the end some repeat what came in pieces
	}
	delta.Refusal = text(d.Refusal)
	if len(d.Content) > 0 && d.Content[0] == '"' {
		delta.Content = m.text.read(d.Content)
	} else {
		more, refusal := content(d.Content)
		delta.Content, delta.Refusal = more, delta.Refusal+refusal
	}
	m.size += len(delta.Content) + len(delta.Refusal)
	delta.ToolCalls = m.toolCalls(d.ToolCalls)
	if reason != "" && reason != "null" {
		m.finish = finish(reason)
	}
	return delta, nil
}

// rest is what was kept of the pieces for one to follow.
func (m *chunkMender) rest() openai.ChatCompletionStreamChoiceDelta {
	delta := openai.ChatCompletionStreamChoiceDelta{Content: m.text.rest()}
	for i := range m.calls {
		if rest := m.calls[i].arguments.rest(); rest != "" {
			piece := openai.ToolCall{Index: &i, Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Arguments: rest}}
			delta.ToolCalls = append(delta.ToolCalls, piece)
		}
	}
	return delta
}

// toolCalls numbers the pieces of tool calls by the call that they belong to.
func (m *chunkMender) toolCalls(raw json.RawMessage) []openai.ToolCall {
	var in []struct {
		Index    json.RawMessage `json:"index"`
		ID       json.RawMessage `json:"id"`
		Function struct {
			Name      json.RawMessage `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if !present(raw) || json.Unmarshal(raw, &in) != nil {
		return nil
	}
	var out []openai.ToolCall
	for _, p := range in {
		id, name := text(p.ID), text(p.Function.Name)
		i, known := m.callOf(present(p.Index), number(p.Index), id, name)
		if known {
			id = "" // told with its first piece
		}
		c := openai.ToolCall{Index: &i, ID: id, Type: openai.ToolTypeFunction, Function: openai.FunctionCall{Name: name}}
		if args := p.Function.Arguments; len(args) > 0 && args[0] == '"' {
			c.Function.Arguments = m.calls[i].arguments.read(args)
		} else if present(args) {
			c.Function.Arguments = string(args) // an object where the API has its text
		}
		m.size += len(id) + len(name) + len(c.Function.Arguments) + 1
		out = append(out, c)
	}
	return out
}

// callOf finds the call that a piece belongs to, or begins one. A name under an id of its own begins a call, whatever
// its index: there are endpoints that give all calls the same index. Without a name, the index decides, and without that
// the piece belongs to the call before.
func (m *chunkMender) callOf(indexed bool, index int, id, name string) (i int, known bool) {
	for i := len(m.calls) - 1; i >= 0; i-- {
		c := &m.calls[i]
		if indexed && c.index != index {
			continue
		}
		if id == "" || id == c.id || name == "" {
			return i, true
		}
		if !indexed {
			break
		}
	}
	m.calls = append(m.calls, callPieces{id: id, index: index})
	return len(m.calls) - 1, false
}

// splice joins the JSON strings that a text was cut into. A cut may go through a character: the first half of a pair of
// surrogates in one piece, or the first bytes of one in UTF-8. Such a half is kept for the piece after it.
type splice struct{ half []byte }

// read returns the text that can be told with the piece raw, a JSON string.
func (s *splice) read(raw json.RawMessage) string {
	inner := raw[1 : len(raw)-1]
	if len(s.half) > 0 {
		inner = append(s.half, inner...)
	}
	cut := wholeCharacters(inner)
	s.half = bytes.Clone(inner[cut:])
	return unquote(inner[:cut])
}

// rest returns what was kept and never completed.
func (s *splice) rest() string {
	half := s.half
	s.half = nil
	return unquote(half)
}

func unquote(inner []byte) string {
	if s := string(inner); plan.IsPlain(s) {
		return s
	}
	return text(append(append([]byte{'"'}, inner...), '"'))
}

// wholeCharacters returns how many bytes of the inside of a JSON string are whole characters.
func wholeCharacters(b []byte) int {
	n := len(b)
	for i := n - 1; i >= 0 && i >= n-3; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	const escape = len(`\ud800`)
	if n < escape || b[n-escape] != '\\' || b[n-escape+1] != 'u' {
		return n
	}
	code, err := strconv.ParseUint(string(b[n-4:]), 16, 16)
	before := bytes.TrimRight(b[:n-escape], `\`)
	if err != nil || code < 0xd800 || code > 0xdbff || (n-escape-len(before))%2 != 0 {
		return n
	}
	return n - escape
}
