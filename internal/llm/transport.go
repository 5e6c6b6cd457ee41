package llm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
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
	request *request    // whose body is written by us
	header  http.Header // in addition to go-openai's
	alive   func(phase) // set where the request asks for a stream: called for each event of it

	response *http.Response // what came, not read yet

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

// transport stands between go-openai and the network, in place of an [http.Client]: that would follow redirects, as a GET
// without the prompt. It completes requests, and keeps responses for us, who read them after go-openai: it would read each
// text twice more, and hides some of what endpoints say.
type transport struct {
	next   http.RoundTripper
	secret string // never shown
	now    func() time.Time
}

var _ openai.HTTPDoer = (*transport)(nil)

// Do implements [openai.HTTPDoer]. go-openai gets an empty object for the response. A call waits here for most of its time,
// thousands of them at once, so there should be little on the stack.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	ex, ours := req.Context().Value(exchangeKey{}).(*exchange)
	if !ours {
		return nil, errors.New("not a request of this client")
	}
	if err := ex.request.complete(req); err != nil {
		return nil, err
	}
	maps.Copy(req.Header, ex.header)
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, classifyTransport(err)
	}
	ex.response = resp
	return &http.Response{StatusCode: http.StatusOK, Header: resp.Header, Body: io.NopCloser(strings.NewReader("{}"))}, nil
}

// receive reads the response of an exchange: a stream, of which it reads the beginning only, where the request asks for one,
// or else a chat completion with at least one choice. Everything else is a *failure, redirects too.
func (t *transport) receive(ex *exchange) (*replyStream, *openai.ChatCompletionResponse, error) {
	resp := ex.response
	if !ex.request.streamed() || resp.StatusCode/100 != 2 {
		whole, err := t.receiveWhole(resp.Body, ex)
		return nil, whole, err
	}
	from := bufio.NewReader(resp.Body)
	if looksStreamed(resp.Header, from) {
		return &replyStream{events: eventReader{r: from}, alive: ex.alive, hide: t.hide}, nil, nil
	}
	whole, err := t.receiveWhole(from, ex)
	return nil, whole, err
}

func (t *transport) receiveWhole(from io.Reader, ex *exchange) (*openai.ChatCompletionResponse, error) {
	buf := takeBuffer()
	defer giveBuffer(buf)
	_, err := buf.ReadFrom(io.LimitReader(from, maxBody+1))
	if buf.Len() <= maxBody && err != nil {
		return nil, classifyTransport(fmt.Errorf("the response broke off after %d bytes: %w", buf.Len(), err))
	}
	whole, f := t.read(buf.Bytes(), ex)
	if f != nil {
		return nil, t.hide(f)
	}
	return whole, nil
}

// read turns a whole response into a chat completion, or a failure. Nothing of the body is kept.
func (t *transport) read(body []byte, ex *exchange) (*openai.ChatCompletionResponse, *failure) {
	resp := ex.response
	switch ok := resp.StatusCode/100 == 2; {
	case ok && len(body) > maxBody:
		text, f := beginning(body)
		ex.oversize = f == nil
		return completionOf(text), f
	case ok:
		if completion, clean := readClean(body); clean {
			return completion, nil
		}
		return mend(body)
	}
	if text, ok := failedGeneration(resp.StatusCode, body); ok {
		return completionOf(text), nil
	}
	return nil, classify(resp.StatusCode, resp.Header, body, t.now())
}

// hide takes the key out of what an endpoint said.
func (t *transport) hide(f *failure) *failure {
	if t.secret != "" {
		f.said = strings.ReplaceAll(f.said, t.secret, "[key]")
		f.param = strings.ReplaceAll(f.param, t.secret, "[key]")
	}
	return f
}
