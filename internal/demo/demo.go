// Package demo is a model that needs no network: an HTTP handler that speaks the OpenAI chat API and carries out a few
// examples by rules, following the protocol of whichever strategy asks. It is for first steps and for tests, and says that it is a demo.
//
// It keeps nothing between requests. Each request's messages are read into a conversation (what was planned, called,
// asked, and what came of it), the goal selects a scene, and the scene says what comes next. The same messages always get
// the same reply.
package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"ratchet/internal/plan"
)

// Model is the name under which the demo model answers, whatever name it is asked for, and Fingerprint the
// system_fingerprint of its responses.
const (
	Model       = "demo"
	Fingerprint = "ratchet-demo"
)

// maxRequest bounds the body of a request.
const maxRequest = 8 << 20

// created is the time in all responses: the model has no clock.
const created = 1790000000

// Handler returns the demo model's endpoint: POST /v1/chat/completions, whole or as a stream, and GET /v1/models.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", complete)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{
			"object": "list",
			"data":   []any{map[string]any{"id": Model, "object": "model", "created": created, "owned_by": Fingerprint}},
		})
	})
	return mux
}

type chatRequest struct {
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Stream  bool `json:"stream"`
	Options struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is a message's text; a list of parts is read as the texts of its parts.
type content string

// UnmarshalJSON reads a string or a list of parts; anything else is no text.
func (c *content) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = content(text)
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(data, &parts) == nil {
		for _, p := range parts {
			*c += content(p.Text)
		}
	}
	return nil
}

func complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		status := http.StatusBadRequest
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, fmt.Sprintf("the request could not be read: %v", err))
		return
	}
	var req chatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the request is not a chat completion request: %v", err))
		return
	}
	if len(req.Messages) == 0 {
		refuse(w, http.StatusBadRequest, "messages is empty")
		return
	}
	said := reply(r.Header.Get("X-Ratchet-Purpose"), req)
	if req.Stream {
		stream(w, req, said)
		return
	}
	message := map[string]any{"role": "assistant", "content": said.text}
	if len(said.calls) > 0 {
		message["tool_calls"] = said.native()
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"id": "demo-1", "object": "chat.completion", "created": created, "model": Model, "system_fingerprint": Fingerprint,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": said.finish(), "message": message,
		}},
		"usage": usage(req.Messages, said.text),
	})
}

// spoken is what the model says: text, and calls in the API's own form.
type spoken struct {
	text  string
	calls []plan.Call
}

// native are the calls as the API writes them.
func (s spoken) native() []any {
	list := make([]any, len(s.calls))
	for i, c := range s.calls {
		list[i] = map[string]any{
			"index": i, "id": fmt.Sprintf("call_%d", i+1), "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": string(c.Arguments)},
		}
	}
	return list
}

func (s spoken) finish() string {
	if len(s.calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// reply is what the model says. Purposes that are no part of a strategy get what does no harm: nothing learnt. Which
// strategy asks shows in the system prompt, by the words of its protocol.
func reply(purpose string, req chatRequest) spoken {
	system := ""
	for _, m := range req.Messages {
		if m.Role == "system" || m.Role == "developer" {
			system += string(m.Content)
		}
	}
	var offered []string
	for _, t := range req.Tools {
		offered = append(offered, t.Function.Name)
	}
	switch {
	case purpose == "learn":
		return spoken{text: `{"add":[],"replace":{}}`}
	case purpose == "summarize":
		return spoken{text: "The demo model summarizes nothing."}
	case purpose == "reflect" || strings.Contains(system, `"guidance"`):
		return spoken{text: critic(req.Messages)}
	case purpose == "fill" || strings.Contains(system, `{"type": "fill"`):
		return spoken{text: fill(req.Messages)}
	case strings.Contains(system, "Action Input:"):
		return spoken{text: react(req.Messages)}
	case strings.Contains(system, `"after"`):
		return spoken{text: graph(req.Messages)}
	case strings.Contains(system, `{"type": "tool_call", "thought"`):
		return planner(req.Messages, nil, false)
	case len(offered) > 0 || strings.Contains(system, "Call the tools that you were given."):
		return planner(req.Messages, offered, true)
	}
	return spoken{text: next(read(req.Messages)).Encode()}
}

// usage estimates tokens: one for four bytes, and four for the frame of each message.
func usage(messages []chatMessage, text string) map[string]int {
	prompt := 0
	for _, m := range messages {
		prompt += 4 + (len(m.Content)+3)/4
	}
	output := (len(text) + 3) / 4
	return map[string]int{"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
}

// stream sends the text in chunks of a few words, as server-sent events.
func stream(w http.ResponseWriter, req chatRequest, said spoken) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w)
	send := func(choices []any, extra map[string]int) {
		chunk := map[string]any{
			"id": "demo-1", "object": "chat.completion.chunk", "created": created, "model": Model, "system_fingerprint": Fingerprint,
			"choices": choices,
		}
		if extra != nil {
			chunk["usage"] = extra
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", encode(chunk)) // a client that has gone is no concern of ours
		_ = flush.Flush()
	}
	delta := func(d map[string]any, finish any) []any {
		return []any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}}
	}
	send(delta(map[string]any{"role": "assistant", "content": ""}, nil), nil)
	for rest := said.text; rest != ""; {
		n := min(40, len(rest))
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n++
		}
		send(delta(map[string]any{"content": rest[:n]}, nil), nil)
		rest = rest[n:]
	}
	if len(said.calls) > 0 {
		send(delta(map[string]any{"tool_calls": said.native()}, nil), nil)
	}
	send(delta(map[string]any{}, said.finish()), nil)
	if req.Options.Usage {
		send([]any{}, usage(req.Messages, said.text))
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
	_ = flush.Flush()
}

// refuse answers with an error in the API's form.
func refuse(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"message": "demo model: " + message, "type": "invalid_request_error", "param": nil, "code": nil,
	}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, encode(v))
}

// encode writes JSON without the escapes that HTML needs.
func encode(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("demo: %T does not encode: %v", v, err)) // all that is written here is plain data
	}
	return strings.TrimSuffix(b.String(), "\n")
}
