package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	openai "github.com/sashabaranov/go-openai"
)

// Endpoints write fields that no run needs in shapes of their own: a creation time with a fraction, a content that is a
// list of parts or an object, tool arguments that are no string. go-openai refuses a whole response for any of them. So
// each field is read by itself here, and what can't be read is left out.
type wireResponse struct {
	Model   json.RawMessage `json:"model"`
	Choices json.RawMessage `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type wireChoice struct {
	Message      json.RawMessage `json:"message"`
	FinishReason json.RawMessage `json:"finish_reason"`
	Error        json.RawMessage `json:"error"`
}

type wireMessage struct {
	Content   json.RawMessage `json:"content"`
	Refusal   json.RawMessage `json:"refusal"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// mend reads the body of a successful response, its first JSON value alone, and makes of it what the API has. The
// failure is for a body that is no chat completion, or one that reports an error of the model's provider.
func mend(body []byte) (*openai.ChatCompletionResponse, *failure) {
	if f := notCompletion(body); f != nil {
		return nil, f
	}
	var in wireResponse
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&in); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, &failure{cause: CauseTransport, passing: true, said: "the response was cut off: " + quote(string(body))}
		}
		return nil, &failure{cause: CauseEndpointNotOpenAI, said: "the response is not the JSON of a chat completion: " + quote(string(body))}
	}
	var choices []wireChoice
	if present(in.Choices) {
		if err := json.Unmarshal(in.Choices, &choices); err != nil {
			return nil, &failure{cause: CauseEndpointNotOpenAI, said: "choices in the response is not a list: " + quote(string(body))}
		}
	}
	switch {
	case len(choices) == 0 && present(in.Error):
		return nil, embedded(in.Error)
	case len(in.Choices) == 0:
		return nil, &failure{cause: CauseEndpointNotOpenAI, said: "the response is JSON without choices: " + quote(string(body))}
	case len(choices) == 0:
		return nil, &failure{cause: CauseServerError, passing: true, said: "the response has no choice in it"}
	case text(choices[0].FinishReason) == "error" || present(choices[0].Error):
		return nil, embedded(choices[0].Error)
	}
	return &openai.ChatCompletionResponse{
		Model:   text(in.Model),
		Usage:   usage(in.Usage),
		Choices: []openai.ChatCompletionChoice{choice(choices[0])},
	}, nil
}

// notCompletion recognises bodies that are not JSON at all.
func notCompletion(body []byte) *failure {
	trimmed := bytes.TrimSpace(body)
	switch {
	case len(trimmed) == 0:
		return &failure{cause: CauseServerError, passing: true, said: "the response is empty"}
	case trimmed[0] == '<':
		return &failure{cause: CauseEndpointNotOpenAI, said: "the response is a web page: " + quote(string(trimmed))}
	}
	return nil
}

// embedded classifies an error that came under status 200, by the status that it names or that its names mean; a model's
// provider broke down, if there are none.
func embedded(raw json.RawMessage) *failure {
	var e struct {
		Code json.RawMessage `json:"code"`
	}
	body, err := json.Marshal(map[string]json.RawMessage{"error": raw})
	if err != nil || len(raw) == 0 {
		body = []byte("the model's provider broke off the reply")
	}
	status := statusMeant(readError(body))
	if json.Unmarshal(raw, &e) == nil {
		if code := number(e.Code); code >= 400 && code <= 599 {
			status = code
		}
	}
	return classify(status, nil, body, timeZero)
}

func choice(in wireChoice) openai.ChatCompletionChoice {
	var m wireMessage
	if json.Unmarshal(in.Message, &m) != nil {
		m = wireMessage{}
	}
	content, refusal := content(m.Content)
	if r := text(m.Refusal); r != "" {
		refusal = r
	}
	return openai.ChatCompletionChoice{
		FinishReason: openai.FinishReason(finish(text(in.FinishReason))),
		Message: openai.ChatCompletionMessage{
			Role:      openai.ChatMessageRoleAssistant,
			Content:   content,
			Refusal:   refusal,
			ToolCalls: toolCalls(m.ToolCalls),
		},
	}
}

// finish returns the finish reason, which is a word.
func finish(reason string) string {
	if strings.ContainsFunc(reason, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return "other"
	}
	return reason
}

// content reads a message's content: text; a list of parts, whose texts are joined; or an object, where a proxy has
// parsed the model's JSON already.
func content(raw json.RawMessage) (content, refusal string) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", ""
	}
	switch raw[0] {
	case '{':
		return string(raw), ""
	case '[':
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return "", ""
		}
		for _, p := range parts {
			c, r := part(p)
			content, refusal = content+c, refusal+r
		}
		return content, refusal
	}
	return text(raw), ""
}

// part reads one part of a list. Parts that are no words to the reader, reasoning above all, are left out.
func part(raw json.RawMessage) (content, refusal string) {
	var p struct {
		Type    json.RawMessage `json:"type"`
		Text    json.RawMessage `json:"text"`
		Refusal json.RawMessage `json:"refusal"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return text(raw), "" // a list of plain strings
	}
	switch text(p.Type) {
	case "text", "output_text", "":
		return text(p.Text), ""
	case "refusal":
		return "", text(p.Refusal)
	}
	return "", ""
}

func toolCalls(raw json.RawMessage) []openai.ToolCall {
	var in []struct {
		ID       json.RawMessage `json:"id"`
		Function struct {
			Name      json.RawMessage `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return nil
	}
	var out []openai.ToolCall
	for _, c := range in {
		args := text(c.Function.Arguments)
		if args == "" && present(c.Function.Arguments) && c.Function.Arguments[0] != '"' {
			args = string(c.Function.Arguments) // an object where the API has its text
		}
		out = append(out, openai.ToolCall{
			ID:       text(c.ID),
			Type:     openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: text(c.Function.Name), Arguments: args},
		})
	}
	return out
}

func usage(raw json.RawMessage) openai.Usage {
	var u struct {
		Prompt     json.RawMessage `json:"prompt_tokens"`
		Completion json.RawMessage `json:"completion_tokens"`
	}
	if json.Unmarshal(raw, &u) != nil {
		return openai.Usage{}
	}
	return openai.Usage{PromptTokens: number(u.Prompt), CompletionTokens: number(u.Completion)}
}

// failedGeneration returns what the model wrote where the endpoint checked it for JSON and refused it: that is a reply
// to correct, not a failure of the call.
func failedGeneration(status int, body []byte) (string, bool) {
	var in struct {
		Error struct {
			Code   json.RawMessage `json:"code"`
			Failed json.RawMessage `json:"failed_generation"`
		} `json:"error"`
	}
	if status != http.StatusBadRequest || json.Unmarshal(body, &in) != nil || text(in.Error.Code) != "json_validate_failed" {
		return "", false
	}
	return text(in.Error.Failed), true
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// text reads a JSON string; empty for anything else.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// number reads a JSON number, or a string with one in it, as an int that is not negative; 0 for anything else.
func number(raw json.RawMessage) int {
	var f float64
	if json.Unmarshal(bytes.Trim(raw, `"`), &f) != nil || f < 0 || f > math.MaxInt32 {
		return 0
	}
	return int(f)
}
