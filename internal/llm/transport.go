package llm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// maxBody bounds what is read of one whole response. A reply of the greatest length has room in it with every character
// escaped, and with reasoning beside it that is longer than the reply.
const maxBody = 4 << 20

// exchange travels in the context of one HTTP request, through go-openai, to the transport.
type exchange struct {
	extras []byte      // members for the end of the body's JSON object, each with a comma before it
	header http.Header // in addition to go-openai's
	alive  func(phase) // set where the request asks for a stream: called for each event of it

	// What came where the request asks for a stream: a stream, or else a whole reply.
	stream *replyStream
	whole  openai.ChatCompletionResponse

	oversize bool // the reply is longer than is read, and what was read is its beginning
}

// phase says how far a stream has come.
type phase int

const (
	phaseReply    phase = iota // the reply comes
	phaseEpilogue              // it is complete; the tokens used may follow
	phaseOver                  // nothing more will be used
)

type exchangeKey struct{}

// transport stands between go-openai and the network. It completes requests, and what it lets through of the responses
// is always a chat completion with at least one choice, or a stream (stream.go); everything else is a *failure. Redirects are failures too: a
// followed one would become a GET and lose the prompt.
type transport struct {
	next   http.RoundTripper
	secret string // never shown
	now    func() time.Time
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ex, _ := req.Context().Value(exchangeKey{}).(*exchange)
	out, err := complete(req, ex)
	if err != nil {
		return nil, err
	}
	resp, err := t.next.RoundTrip(out)
	if err != nil {
		return nil, classifyTransport(err)
	}
	streamed := ex != nil && ex.alive != nil
	from := bufio.NewReader(resp.Body)
	if streamed && resp.StatusCode/100 == 2 && looksStreamed(resp.Header, from) {
		ex.stream = &replyStream{events: eventReader{r: from}, alive: ex.alive, hide: t.hide}
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(from, maxBody+1))
	if len(body) <= maxBody && err != nil {
		return nil, classifyTransport(fmt.Errorf("the response broke off after %d bytes: %w", len(body), err))
	}
	completion, f := t.read(resp, body, ex)
	if f != nil {
		return nil, t.hide(f)
	}
	mended := encode(completion)
	if streamed {
		ex.whole = completion
	}
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Body = io.NopCloser(bytes.NewReader(mended))
	resp.ContentLength = int64(len(mended))
	return resp, nil
}

// read turns a whole response into a chat completion, or a failure.
func (t *transport) read(resp *http.Response, body []byte, ex *exchange) (openai.ChatCompletionResponse, *failure) {
	none := openai.ChatCompletionResponse{}
	switch ok := resp.StatusCode/100 == 2; {
	case ok && len(body) > maxBody:
		text, f := beginning(body)
		if f == nil && ex != nil {
			ex.oversize = true
		}
		return completionOf(text), f
	case ok:
		return mend(body)
	}
	if text, ok := failedGeneration(resp.StatusCode, body); ok {
		return completionOf(text), nil
	}
	return none, classify(resp.StatusCode, resp.Header, body, t.now())
}

// hide takes the key out of what an endpoint said.
func (t *transport) hide(f *failure) *failure {
	if t.secret != "" {
		f.said = strings.ReplaceAll(f.said, t.secret, "[key]")
		f.param = strings.ReplaceAll(f.param, t.secret, "[key]")
	}
	return f
}

// complete returns the request with what its exchange adds.
func complete(req *http.Request, ex *exchange) (*http.Request, error) {
	if ex == nil || req.Body == nil {
		return req, nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request to send: %w", err)
	}
	end := bytes.LastIndexByte(body, '}')
	if end < 0 {
		return nil, errors.New("the request to send is no JSON object")
	}
	body = append(append(body[:end:end], ex.extras...), '}')
	out := req.Clone(req.Context())
	for name, values := range ex.header {
		out.Header[name] = values
	}
	out.ContentLength = int64(len(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, err = out.GetBody()
	return out, err
}
