package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"ratchet/internal/llm"
	"ratchet/internal/loop"
)

// BenchmarkComplete is a call of a server that answers at once, with a prompt of 24 KB, beside the same exchange by net/http
// alone: what the client adds is the difference. ×bare is the ratio of their times. Both are of this process, in which the
// server runs too.
func BenchmarkComplete(b *testing.B) {
	text := `{"type": "tool_call", "thought": "` + strings.Repeat("All work and no play makes a dull reply. ", 30) + `", "name": "add_numbers"}` // 1.3 KB
	server := newEcho(text)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := llm.New(llm.Config{BaseURL: server.URL + "/v1", Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	ask := func(b *testing.B, r loop.ModelRequest) {
		reply, err := client.Complete(b.Context(), r)
		if err != nil || reply.Text != text {
			b.Fatalf("reply %q, error %v", reply.Text, err)
		}
	}
	for _, way := range []struct {
		name   string
		tokens func(string)
	}{{"whole", nil}, {"stream", func(string) {}}} {
		request := longRequest()
		request.Tokens = way.tokens
		ask(b, request)
		sent := *server.body.Load()
		var bare float64
		b.Run(way.name+"/bare", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := post(b.Context(), transport, server.URL+"/v1/chat/completions", sent); err != nil {
					b.Fatal(err)
				}
			}
			bare = float64(b.Elapsed()) / float64(b.N)
		})
		b.Run(way.name+"/client", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(b, request)
			}
			if bare > 0 { // 0 where only this one was asked for
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/bare, "×bare")
			}
		})
	}
}

// longRequest is one of a run's later steps.
func longRequest() loop.ModelRequest {
	r := loop.ModelRequest{
		Run: loop.RunID{Tenant: "default", Run: "r1"}, Purpose: loop.PurposeStep, Model: "m", JSON: true,
		Schema: &loop.ReplySchema{
			Name: "message", Told: true,
			Schema: json.RawMessage(`{"type":"object","anyOf":[` + strings.Repeat(`{"type":"object","required":["type"]},`, 60) + `{"type":"object"}]}`),
		},
		Messages: []loop.Message{{Role: "system", Content: strings.Repeat("Reply with one JSON object, as \"type\" says.\n", 180)}}, // 8 KB
	}
	for range 10 {
		r.Messages = append(r.Messages,
			loop.Message{Role: "assistant", Content: `{"type": "tool_call", "thought": "` + strings.Repeat("More is needed. ", 60) + `"}`},
			loop.Message{Role: "user", Content: "The tool's result:\n" + strings.Repeat(`{"a": 1, "b": "two"}, `, 25)})
	}
	return r
}

// echo is an endpoint that says the same each time, whole or word by word, and keeps what it was sent first in each way.
type echo struct {
	*httptest.Server
	whole, stream []byte
	body          atomic.Pointer[[]byte] // the last
}

func newEcho(text string) *echo {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	e := &echo{whole: []byte(strings.Replace(completionBody, `"Hi"`, string(quoted), 1))}
	for word := range strings.SplitAfterSeq(text, " ") {
		e.stream = append(e.stream, chunk(word)...)
	}
	e.stream = append(e.stream, stopChunk+"data: [DONE]\n\n"...)
	e.Server = httptest.NewServer(e)
	return e
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return
	}
	e.body.Store(&body)
	if bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(e.stream)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(e.whole)
}

func post(ctx context.Context, transport http.RoundTripper, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
