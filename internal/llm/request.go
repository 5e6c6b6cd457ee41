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
	chat    openai.ChatCompletionRequest // without what follows, which complete adds
	// messages may be the caller's own, and are not to be changed.
	messages []loop.Message
	note     string // for the end of the first message
	form     form
	schema   *loop.ReplySchema // for formSchema
	// extras are the task's options as members of the body's JSON object, each with a comma before it. They are not put
	// into chat: its fields leave out a temperature of 0 and know no option that is younger than the library.
	extras []byte

	quirks quirks // with which it was made
	key    string // of the endpoint and model, for the pace
	offers bool   // tools are offered
	prompt int    // tokens in the prompt, by an estimate
	tokens int    // in prompt and reply, by an estimate
}

// streamed reports whether the reply is asked for in pieces.
func (r *request) streamed() bool { return r.chat.Stream }

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
func (c *Client) buildRequest(model string, r *loop.ModelRequest, limit int) *request {
	req := &request{
		run: r.Run, purpose: r.Purpose, quirks: c.quirks.of(model), key: c.conf.BaseURL + " " + model, offers: len(r.Tools) > 0,
		schema: r.Schema,
	}
	q := &req.quirks
	req.form = formOf(r, q)
	req.messages, req.note = messages(r.Messages, q.systemRole), formInWords(r, req.form)
	req.chat.Model, req.chat.Stream = model, r.Tokens != nil && !q.noStream
	if !slices.Contains(q.dropped, "stop") {
		req.chat.Stop = r.Stop
	}
	if req.streamed() && !q.noUsage {
		req.chat.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	}
	req.extras = extras(r, q, limit)
	req.prompt = tokensIn(len(req.extras)) + tokensIn(len(req.note))
	for _, m := range req.messages {
		req.prompt += 4 + tokensIn(len(m.Content)) // four for the frame of a message
	}
	req.tokens = req.prompt + max(limit, cmp.Or(setLimit(r.Options), usualReply))
	return req
}

// extras are the options that the model takes, and the tools.
func extras(r *loop.ModelRequest, q *quirks, limit int) []byte {
	var b bytes.Buffer
	for _, name := range sortedNames(r.Options) {
		value := r.Options[name]
		if len(value) == 0 || string(value) == "null" || slices.Contains(q.dropped, name) || limit > 0 && isLimit(name) {
			continue
		}
		writeMember(&b, q.nameOf(name), value)
	}
	if limit > 0 {
		writeMember(&b, q.nameOf(limitName(r.Options)), fmt.Appendf(nil, "%d", limit))
	}
	if len(r.Tools) > 0 {
		writeMember(&b, "tools", toolList(r.Tools))
	}
	return b.Bytes()
}

// usualReply is how many tokens a reply is taken for that has no limit, until it has come.
const usualReply = 500

// tokensIn estimates tokens where the endpoint counts none: four bytes each.
func tokensIn(bytes int) int { return (bytes + 3) / 4 }

func writeMember(b *bytes.Buffer, name string, value []byte) {
	b.WriteByte(',')
	writeText(b, name)
	b.WriteByte(':')
	b.Write(value)
}

// messages renders the prompt for a model whose system messages need another role, where systemRole is one. It returns the
// messages themselves where nothing is to be changed.
func messages(given []loop.Message, systemRole string) []loop.Message {
	if systemRole == "" && !slices.ContainsFunc(given, isEmpty) {
		return given
	}
	list := make([]loop.Message, 0, len(given))
	for _, m := range given {
		if m.Role == openai.ChatMessageRoleSystem && systemRole != "" {
			m.Role = systemRole
		}
		if isEmpty(m) {
			m.Content = " " // there are endpoints that refuse a message without content
		}
		// Templates that know no system role mostly want user and assistant in turn, too.
		if n := len(list); systemRole == openai.ChatMessageRoleUser && n > 0 && list[n-1].Role == m.Role {
			list[n-1].Content += "\n\n" + m.Content
			continue
		}
		list = append(list, m)
	}
	return list
}

func isEmpty(m loop.Message) bool { return m.Content == "" }

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
