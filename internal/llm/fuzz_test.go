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

// FuzzResponse: whatever an endpoint sends becomes a failure with a cause and a text, or a completion that go-openai
// reads and that has a choice.
func FuzzResponse(f *testing.F) {
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var c struct {
			Kind  string
			Input json.RawMessage
		}
		if err := json.Unmarshal(data, &c); err != nil {
			f.Fatal(err)
		}
		var in struct {
			Status int
			Body   string
		}
		if c.Kind == "http" && json.Unmarshal(c.Input, &in) == nil {
			f.Add(in.Status, in.Body)
		}
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		tr := &transport{now: time.Now}
		completion, failed := tr.read(&http.Response{StatusCode: status, Header: http.Header{}}, []byte(body), &exchange{})
		if failed != nil {
			if advice[failed.cause] == "" || failed.said == "" || len(failed.Error()) > 2000 {
				t.Errorf("not a failure that helps anybody: %+v", failed)
			}
			return
		}
		mended := encode(completion)
		var resp openai.ChatCompletionResponse
		if err := json.Unmarshal(mended, &resp); err != nil || len(resp.Choices) != 1 {
			t.Errorf("go-openai can't read %s: %v", mended, err)
		}
	})
}

// FuzzStream: whatever comes as a stream, in reads of whatever size, becomes a failure that helps, or pieces that
// are the reply.
func FuzzStream(f *testing.F) {
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var c struct {
			Kind  string
			Input json.RawMessage
		}
		if err := json.Unmarshal(data, &c); err != nil {
			f.Fatal(err)
		}
		var in struct{ Body string }
		if c.Kind == "sse" && json.Unmarshal(c.Input, &in) == nil {
			f.Add(in.Body)
		}
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

func readStream(body io.Reader) (string, error) {
	var out pieces
	out.hand = func(string) {}
	c, err := New(Config{BaseURL: "http://model/v1", Transport: oneResponse{body}})
	if err != nil {
		return "", err
	}
	ex := &exchange{alive: func(phase) {}}
	resp, err := c.stream(context.Background(), ex, openai.ChatCompletionRequest{Model: "m"}, &out)
	if err != nil {
		return "", err
	}
	if got := resp.Choices[0].Message.Content; ex.stream != nil && got != out.text.String() {
		return "", fmt.Errorf("the pieces are %q, the reply is %q", out.text.String(), got)
	}
	if ex.stream == nil {
		return resp.Choices[0].Message.Content, nil
	}
	return out.text.String(), nil
}

type oneResponse struct{ body io.Reader }

func (r oneResponse) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(r.body)}, nil
}
