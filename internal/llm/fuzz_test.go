package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// FuzzResponse: whatever an endpoint sends becomes a failure with a cause and a text, or a completion that has a choice.
func FuzzResponse(f *testing.F) {
	for _, in := range corpus(f, "http") {
		f.Add(in.Status, in.Body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		tr := &transport{now: time.Now}
		completion, failed := tr.read([]byte(body), &exchange{response: &http.Response{StatusCode: status, Header: http.Header{}}})
		if failed != nil {
			if advice[failed.cause] == "" || failed.said == "" || len(failed.Error()) > 2000 {
				t.Errorf("not a failure that helps anybody: %+v", failed)
			}
			return
		}
		if len(completion.Choices) != 1 {
			t.Errorf("%d choices", len(completion.Choices))
		}
	})
}

// FuzzStream: whatever comes as a stream, in reads of whatever size, becomes a failure that helps, or pieces that
// are the reply.
func FuzzStream(f *testing.F) {
	for _, in := range corpus(f, "sse") {
		f.Add(in.Body)
	}
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"a\\ud83d\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\\ude42\"},\"finish_reason\":\"stop\"}]}\n\n")
	f.Add("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}},{\"index\":7,\"function\":{\"arguments\":{}}}]}}]}\rdata: [DONE]\r")
	f.Add("event: error\ndata: {\"code\":\ndata: 429}\n\nerror: {}\n\n{\"error\":{}}\n")
	f.Add("{\"choices\":[{\"message\":{\"content\":\"whole\"}}]}")
	f.Fuzz(func(t *testing.T, body string) {
		whole, err := readStream(strings.NewReader(body))
		slow, slowErr := readStream(iotest.OneByteReader(strings.NewReader(body)))
		if whole != slow || (err == nil) != (slowErr == nil) {
			t.Errorf("read at once: %q, %v; byte by byte: %q, %v", whole, err, slow, slowErr)
		}
		var failed *failure
		if err != nil && (!errors.As(err, &failed) || advice[failed.cause] == "" || failed.said == "") {
			t.Errorf("not a failure that helps anybody: %v", err)
		}
	})
}

// response is one of the corpus.
type response struct {
	Status int
	Body   string
}

// corpus returns the responses of a kind.
func corpus(t testing.TB, kind string) (all []response) {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Kind  string
			Input json.RawMessage
		}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		var in response
		if c.Kind == kind && json.Unmarshal(c.Input, &in) == nil {
			all = append(all, in)
		}
	}
	return all
}

func readStream(body io.Reader) (string, error) {
	var out pieces
	out.hand = func(string) {}
	c, err := New(Config{BaseURL: "http://model/v1", Transport: oneResponse{body}})
	if err != nil {
		return "", err
	}
	ex := &exchange{alive: func(phase) {}, request: &request{chat: openai.ChatCompletionRequest{Model: "m", Stream: true}}}
	if err := c.callForStream(context.WithValue(context.Background(), exchangeKey{}, ex), ex.request); err != nil {
		return "", err
	}
	stream, whole, err := c.transport.receive(ex)
	if stream == nil {
		if err != nil {
			return "", err
		}
		return whole.Choices[0].Message.Content, nil
	}
	resp, err := collect(stream, ex, &out)
	if err != nil {
		return "", err
	}
	if got := resp.Choices[0].Message.Content; got != out.text.String() {
		return "", fmt.Errorf("the pieces are %q, the reply is %q", out.text.String(), got)
	}
	return out.text.String(), nil
}

type oneResponse struct{ body io.Reader }

func (r oneResponse) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(r.body)}, nil
}
