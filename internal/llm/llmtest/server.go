// Package llmtest is an HTTP server that speaks the OpenAI chat API from a script, for tests that use the real client.
package llmtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"ratchet/internal/llm"
)

// Request is one request as the server got it.
type Request struct {
	N        int // 1 for the server's first request
	Header   http.Header
	Model    string
	Messages []Message
	JSON     bool // response_format asks for an object, of some or of any schema
	Stream   bool // the reply is to be streamed
	Stop     []string
	Body     map[string]json.RawMessage // the whole body
}

// Message is one message of the prompt.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Last returns the content of the last message; empty where there is none.
func (r Request) Last() string {
	if len(r.Messages) == 0 {
		return ""
	}
	return r.Messages[len(r.Messages)-1].Content
}

// Reply is what the server sends back.
type Reply struct {
	Text   string // the model's reply, sent as a completion, whole or streamed as asked for, unless Status or Body is set
	Calls  []Call // native tool calls
	Finish string // finish reason; stop
	Prompt int    // tokens of the prompt; 100
	Output int    // tokens of the reply; 20

	Status int               // HTTP status; 200
	Header map[string]string // in addition to a Content-Type of application/json
	Body   *string           // sent as it is, in place of a completion

	Wait   <-chan struct{} // the reply is sent when this is closed or the client has gone; nil: at once
	Hangup bool            // the connection is closed without a response
	Cut    bool            // the connection is broken after the body
}

// Call is a native tool call. Arguments are sent as they are, as text.
type Call struct{ ID, Name, Arguments string }

// Text is a reply with this text.
func Text(s string) Reply { return Reply{Text: s} }

// Raw is a reply with this status and body.
func Raw(status int, body string) Reply { return Reply{Status: status, Body: &body} }

// Replies is a script of these replies in order. A request after the last is answered with status 400, which ends the
// call, and says so.
func Replies(replies ...Reply) func(Request) Reply {
	return func(r Request) Reply {
		if r.N > len(replies) {
			return Raw(http.StatusBadRequest, fmt.Sprintf(`{"error":{"message":"the script ends after %d replies"}}`, len(replies)))
		}
		return replies[r.N-1]
	}
}

// Fake is a running server.
type Fake struct {
	URL string // base URL for [llm.Config], up to /v1

	mu       sync.Mutex
	requests []Request
}

// Server starts a server that answers by the script, which may be called by several requests at the same time. It is
// stopped at the end of the test.
func Server(t testing.TB, script func(Request) Reply) *Fake {
	t.Helper()
	f := &Fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		req, err := f.record(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		serve(w, r, req.Stream, script(req))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL + "/v1"
	return f
}

// Requests returns a copy of the requests so far, in the order of their arrival.
func (f *Fake) Requests() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Client returns a real client of the server, with the model "test-model". It makes one attempt of each request, so that
// passing faults come back at once.
func (f *Fake) Client(t testing.TB) *llm.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := llm.New(llm.Config{BaseURL: f.URL, Model: "test-model", Attempts: 1, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *Fake) record(r *http.Request) (Request, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return Request{}, err
	}
	var in struct {
		Model    string    `json:"model"`
		Messages []Message `json:"messages"`
		Stream   bool      `json:"stream"`
		Stop     []string  `json:"stop"`
		Format   struct {
			Type string `json:"type"`
		} `json:"response_format"`
	}
	req := Request{Header: r.Header.Clone()}
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, err
	}
	if err := json.Unmarshal(body, &req.Body); err != nil {
		return Request{}, err
	}
	req.Model, req.Messages, req.Stream, req.Stop = in.Model, in.Messages, in.Stream, in.Stop
	req.JSON = in.Format.Type == "json_object" || in.Format.Type == "json_schema"
	f.mu.Lock()
	defer f.mu.Unlock()
	req.N = len(f.requests) + 1
	f.requests = append(f.requests, req)
	return req, nil
}

func serve(w http.ResponseWriter, r *http.Request, stream bool, reply Reply) {
	if reply.Wait != nil {
		select {
		case <-reply.Wait:
		case <-r.Context().Done():
			return
		}
	}
	if reply.Hangup {
		panic(http.ErrAbortHandler) // closes the connection, and logs nothing
	}
	stream = stream && reply.Body == nil && reply.Status == 0
	w.Header().Set("Content-Type", "application/json")
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for name, value := range reply.Header {
		w.Header().Set(name, value)
	}
	if reply.Status != 0 {
		w.WriteHeader(reply.Status)
	}
	switch {
	case reply.Body != nil:
		_, _ = io.WriteString(w, *reply.Body) // a client that has gone is no concern of the server's
	case stream:
		writeStream(w, reply.withDefaults())
	default:
		_, _ = io.WriteString(w, completion(reply.withDefaults()))
	}
	if reply.Cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func (r Reply) withDefaults() Reply {
	if r.Finish == "" && len(r.Calls) > 0 {
		r.Finish = "tool_calls"
	}
	r.Finish, r.Prompt, r.Output = cmp.Or(r.Finish, "stop"), cmp.Or(r.Prompt, 100), cmp.Or(r.Output, 20)
	return r
}

type object = map[string]any

func (r Reply) calls() []any {
	var list []any
	for i, c := range r.Calls {
		list = append(list, object{
			"index": i, "id": c.ID, "type": "function",
			"function": object{"name": c.Name, "arguments": c.Arguments},
		})
	}
	return list
}

func (r Reply) usage() object {
	return object{"prompt_tokens": r.Prompt, "completion_tokens": r.Output, "total_tokens": r.Prompt + r.Output}
}

func completion(reply Reply) string {
	message := object{"role": "assistant", "content": reply.Text}
	if calls := reply.calls(); calls != nil {
		message["tool_calls"] = calls
	}
	return encode(object{
		"id": "cmpl-test", "object": "chat.completion", "created": 1790000000, "model": "test-model",
		"choices": []any{object{"index": 0, "finish_reason": reply.Finish, "message": message}},
		"usage":   reply.usage(),
	})
}

// writeStream sends the reply in pieces of about eight bytes, as OpenAI's endpoint frames them.
func writeStream(w http.ResponseWriter, reply Reply) {
	send := func(choices []any, usage any) {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", encode(object{
			"id": "cmpl-test", "object": "chat.completion.chunk", "created": 1790000000, "model": "test-model",
			"choices": choices, "usage": usage,
		}))
	}
	delta := func(d object, finish any) { send([]any{object{"index": 0, "delta": d, "finish_reason": finish}}, nil) }
	delta(object{"role": "assistant", "content": ""}, nil)
	for rest := reply.Text; rest != ""; {
		n := min(8, len(rest))
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n++
		}
		delta(object{"content": rest[:n]}, nil)
		rest = rest[n:]
	}
	if calls := reply.calls(); calls != nil {
		delta(object{"tool_calls": calls}, nil)
	}
	delta(object{}, reply.Finish)
	send([]any{}, reply.usage())
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func encode(v object) string {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(body)
}
