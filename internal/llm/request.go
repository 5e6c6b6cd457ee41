package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/loop"
)

// request is one model call, ready to be sent as often as needed.
type request struct {
	run     loop.RunID
	purpose loop.Purpose
	chat    openai.ChatCompletionRequest
	// extras are the task's options as members of the body's JSON object, each with a comma before it. They are not put
	// into chat: its fields leave out a temperature of 0 and know no option that is younger than the library.
	extras []byte
	key    string // of the endpoint and model, for the pace
	stream bool   // the reply is asked for in pieces
	offers bool   // tools are offered
	prompt int    // tokens in the prompt, by an estimate
	tokens int    // in prompt and reply, by an estimate
}

// reserved are the members of the request body that the worker fills in itself.
var reserved = []string{
	"model", "messages", "stream", "stream_options", "n", "stop", "response_format",
	"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call",
}

// checkOptions refuses options that would change what the strategy relies on. All others go to the endpoint as they are.
func checkOptions(options map[string]json.RawMessage) error {
	for _, name := range sortedNames(options) {
		if slices.Contains(reserved, strings.ToLower(name)) || name == "" {
			return &loop.ModelError{
				Cause:   CauseRequestRejected,
				Message: fmt.Sprintf("model_options may not hold %q: the worker sets it. Remove it from the task", name),
			}
		}
		if value := options[name]; len(value) > 0 && !json.Valid(value) {
			return &loop.ModelError{
				Cause:   CauseRequestRejected,
				Message: fmt.Sprintf("model_options.%s is not valid JSON. Correct it in the task", name),
			}
		}
	}
	return nil
}

// buildRequest makes the request for one model, as its quirks want it. A limit above 0 replaces the limit of output
// tokens in the options.
func (c *Client) buildRequest(model string, r loop.ModelRequest, q quirks, limit int) request {
	req := request{
		run: r.Run, purpose: r.Purpose, key: c.conf.BaseURL + " " + model,
		stream: r.Tokens != nil && !q.noStream, offers: len(r.Tools) > 0,
	}
	form := formOf(r, q)
	req.chat = openai.ChatCompletionRequest{Model: model, Messages: messages(r, q.systemRole, form), ResponseFormat: responseFormat(r, form)}
	if !slices.Contains(q.dropped, "stop") {
		req.chat.Stop = r.Stop
	}
	if req.stream && !q.noUsage {
		req.chat.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	}
	var extras bytes.Buffer
	for _, name := range sortedNames(r.Options) {
		value := r.Options[name]
		if len(value) == 0 || string(value) == "null" || slices.Contains(q.dropped, name) || limit > 0 && isLimit(name) {
			continue
		}
		writeMember(&extras, q.nameOf(name), value)
	}
	if limit > 0 {
		writeMember(&extras, q.nameOf(limitName(r.Options)), fmt.Appendf(nil, "%d", limit))
	}
	if req.offers {
		writeMember(&extras, "tools", toolList(r.Tools))
	}
	req.extras = extras.Bytes()
	req.prompt = tokensIn(len(req.extras))
	for _, m := range req.chat.Messages {
		req.prompt += 4 + tokensIn(len(m.Content)) // four for the frame of a message
	}
	req.tokens = req.prompt + max(limit, cmp.Or(setLimit(r.Options), usualReply))
	return req
}

// usualReply is how many tokens a reply is taken for that has no limit, until it has come.
const usualReply = 500

// tokensIn estimates tokens where the endpoint counts none: four bytes each.
func tokensIn(bytes int) int { return (bytes + 3) / 4 }

func writeMember(b *bytes.Buffer, name string, value []byte) {
	key, err := json.Marshal(name)
	if err != nil {
		panic(err) // a string always marshals
	}
	b.WriteByte(',')
	b.Write(key)
	b.WriteByte(':')
	b.Write(value)
}

// messages renders the prompt. The form of the reply is added to the first message, where the endpoint is not told it or
// demands to find it there.
func messages(r loop.ModelRequest, systemRole string, form form) []openai.ChatCompletionMessage {
	var list []openai.ChatCompletionMessage
	saysJSON := false
	for _, m := range r.Messages {
		role, content := m.Role, m.Content
		if role == openai.ChatMessageRoleSystem && systemRole != "" {
			role = systemRole
		}
		saysJSON = saysJSON || strings.Contains(content, "JSON") || strings.Contains(content, "json")
		if content == "" {
			content = " " // an empty one would be left out, and a message without content is refused
		}
		// Templates that know no system role mostly want user and assistant in turn, too.
		if n := len(list); systemRole == openai.ChatMessageRoleUser && n > 0 && list[n-1].Role == role {
			list[n-1].Content += "\n\n" + content
			continue
		}
		list = append(list, openai.ChatCompletionMessage{Role: role, Content: content})
	}
	if len(list) > 0 {
		list[0].Content += formInWords(r, form, saysJSON)
	}
	return list
}

// The two names of the limit of output tokens.
const (
	maxTokens           = "max_tokens"
	maxCompletionTokens = "max_completion_tokens"
)

func isLimit(name string) bool { return name == maxTokens || name == maxCompletionTokens }

// limitName is the name under which the options set the limit of output tokens.
func limitName(options map[string]json.RawMessage) string {
	if _, ok := options[maxCompletionTokens]; ok {
		return maxCompletionTokens
	}
	return maxTokens
}

// setLimit is the limit of output tokens that the options set; 0: none.
func setLimit(options map[string]json.RawMessage) int {
	var limit int
	if err := json.Unmarshal(options[limitName(options)], &limit); err != nil || limit < 0 {
		return 0
	}
	return limit
}

// raisedLimit is the limit for the second try of a reply that was cut off after so many tokens: twice the limit the task
// set, or, where it set none, twice what the endpoint's own limit let through, and 4096 at least.
func raisedLimit(options map[string]json.RawMessage, used int) int {
	if limit := setLimit(options); limit > 0 {
		return 2 * limit
	}
	return max(4096, 2*used)
}

func sortedNames(options map[string]json.RawMessage) []string {
	names := make([]string, 0, len(options))
	for name := range options {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
