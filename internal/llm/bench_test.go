package llm_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ratchet/internal/llm"
	"ratchet/internal/loop"
)

// BenchmarkComplete is a call of a server that answers at once, beside the same exchange by net/http alone: what the
// client adds is the difference.
func BenchmarkComplete(b *testing.B) {
	text := strings.Repeat("All work and no play makes a dull reply. ", 50) // 2 KB
	whole := strings.Replace(completionBody, `"Hi"`, `"`+text+`"`, 1)
	var streamed strings.Builder
	for word := range strings.SplitAfterSeq(text, " ") {
		streamed.WriteString(chunk(word))
	}
	streamed.WriteString(stopChunk + "data: [DONE]\n\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, streamed.String())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, whole)
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := llm.New(llm.Config{BaseURL: server.URL + "/v1", Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	prompt := strings.Repeat("What is asked, in a prompt of eight kilobytes. ", 170)
	request := loop.ModelRequest{
		Run: loop.RunID{Tenant: "default", Run: "r1"}, Purpose: loop.PurposeStep, Model: "m", JSON: true,
		Messages: []loop.Message{{Role: "system", Content: "Reply with JSON."}, {Role: "user", Content: prompt}},
	}
	bare := func(b *testing.B, body string) {
		for b.Loop() {
			if err := post(b.Context(), transport, server.URL+"/v1/chat/completions", body); err != nil {
				b.Fatal(err)
			}
		}
	}
	complete := func(b *testing.B, r loop.ModelRequest) {
		for b.Loop() {
			reply, err := client.Complete(b.Context(), r)
			if err != nil || reply.Text != text {
				b.Fatalf("reply %q, error %v", reply.Text, err)
			}
		}
	}
	body := `{"model":"m","messages":[{"role":"system","content":"Reply with JSON."},{"role":"user","content":"` + prompt + `"}]`
	b.Run("whole/bare", func(b *testing.B) { bare(b, body+"}") })
	b.Run("whole/client", func(b *testing.B) { complete(b, request) })
	b.Run("stream/bare", func(b *testing.B) { bare(b, body+`,"stream":true}`) })
	b.Run("stream/client", func(b *testing.B) {
		r := request
		r.Tokens = func(string) {}
		complete(b, r)
	})
}

func post(ctx context.Context, transport http.RoundTripper, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
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
