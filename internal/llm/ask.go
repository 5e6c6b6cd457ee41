package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/loop"
)

// ask gets a reply from one model. A parameter that the model refuses is changed or dropped, remembered, and the request
// sent again: each change happens at most once, so this ends. A reply that the endpoint cut off at its token limit is
// asked for once more with a higher limit. What all of it cost is in the reply's usage.
func (c *Client) ask(ctx context.Context, model string, r *loop.ModelRequest, out *pieces) (*loop.ModelReply, error) {
	tries := c.newTries()
	var cut *loop.ModelReply // the reply that was too long for the first limit
	limit := 0               // the raised limit; 0: as the request says
	for changes := 0; ; changes++ {
		req := c.buildRequest(model, r, limit)
		if req.offers && req.quirks.noTools != nil {
			return nil, req.quirks.noTools
		}
		reply, err := c.send(ctx, tries, req, out)
		if err != nil {
			if changes < maxChanges && ctx.Err() == nil && c.adapt(req, r, asFailure(err), limit) {
				continue
			}
			if cut != nil {
				return finishCut(cut)
			}
			return nil, err
		}
		if cut != nil {
			reply.Usage = cut.Usage.Add(reply.Usage)
		}
		switch {
		case !reply.Truncated || reply.Oversize || r.JSON && json.Valid([]byte(reply.Text)):
			return reply, nil
		case cut != nil:
			return finishCut(reply)
		}
		cut, limit = reply, raisedLimit(r.Options, reply.Usage.CompletionTokens)
	}
}

// adapt learns from a failure how the model wants its requests, and reports whether there was something to learn.
func (c *Client) adapt(req *request, r *loop.ModelRequest, f *failure, limit int) bool {
	next, changed := req.quirks.adapt(f, r, limit)
	if changed == "" {
		return false
	}
	model := req.chat.Model
	c.quirks.learn(model, next)
	c.conf.Log.Info("the model refuses a part of the request, which is left out or changed from now on", "model", model, "change", changed)
	return true
}

// maxChanges bounds how often one request is sent again changed: more than any endpoint has been seen to need.
const maxChanges = 8

// finishCut returns a reply that is cut off even with the higher limit. Its beginning may be of use to whoever asked;
// where there is none, hidden reasoning used the whole limit up, and that is a failure.
func finishCut(reply *loop.ModelReply) (*loop.ModelReply, error) {
	if reply.Text != "" || len(reply.Calls) > 0 {
		return reply, nil
	}
	return nil, &failure{
		cause: CauseOutputTruncated,
		said:  fmt.Sprintf("the reply reached the limit of output tokens (%d used) before its first word", reply.Usage.CompletionTokens),
	}
}

// errAttemptTimeout tells an attempt that took too long from a caller who went away.
var errAttemptTimeout = errors.New("the attempt took too long")

// attempt makes one HTTP exchange.
func (c *Client) attempt(ctx context.Context, req *request, out *pieces) (*loop.ModelReply, error) {
	out.restart()
	ex := &exchange{request: req, header: c.header(ctx, req)}
	limited, stop := c.limit(ctx, ex)
	defer stop()
	resp, err := c.exchange(context.WithValue(limited, exchangeKey{}, ex), ex, out)
	if err != nil {
		if errors.Is(context.Cause(limited), errAttemptTimeout) {
			return nil, c.tooSlow(req)
		}
		return nil, err
	}
	reply, err := readReply(resp, req)
	if err != nil {
		return nil, err
	}
	trim(reply, ex.oversize)
	reply.Usage.CostUSD = c.conf.Prices[req.chat.Model].cost(reply.Usage)
	return reply, nil
}

// header is what goes with a request beside go-openai's; nil: nothing.
func (c *Client) header(ctx context.Context, req *request) http.Header {
	if c.conf.NoHeaders {
		return nil
	}
	h := http.Header{"X-Ratchet-Run": {req.run.String()}, "X-Ratchet-Purpose": {string(req.purpose)}}
	if trace := loop.Traceparent(ctx); trace != "" {
		h["Traceparent"] = []string{trace}
	}
	return h
}

// exchange has go-openai make the exchange, and reads what came.
func (c *Client) exchange(ctx context.Context, ex *exchange, out *pieces) (*openai.ChatCompletionResponse, error) {
	err := c.call(ctx, ex.request)
	if ex.response != nil {
		defer ex.response.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	stream, whole, err := c.transport.receive(ex)
	if stream == nil {
		return whole, err
	}
	return collect(stream, ex, out)
}

func (c *Client) call(ctx context.Context, req *request) error {
	if req.streamed() {
		return c.callForStream(ctx, req)
	}
	_, err := c.api.CreateChatCompletion(ctx, req.chat)
	return err
}

func (c *Client) callForStream(ctx context.Context, req *request) error {
	from, err := c.api.CreateChatCompletionStream(ctx, req.chat)
	if err == nil {
		err = from.Close()
	}
	return err
}

// tooSlow is the failure of an attempt that took too long.
func (c *Client) tooSlow(req *request) *failure {
	ofStream := ""
	if req.streamed() {
		ofStream = fmt.Sprintf(" of the last piece, or %s of the request", streamFactor*c.conf.Timeout)
	}
	return &failure{
		cause: CauseTransport, passing: true, slow: true,
		said: fmt.Sprintf("no complete response within %s%s; the model may have run and cost tokens all the same", c.conf.Timeout, ofStream),
	}
}

// readReply takes what a run needs out of a response that the transport has mended: it has at least one choice.
func readReply(resp *openai.ChatCompletionResponse, req *request) (*loop.ModelReply, error) {
	choice := resp.Choices[0]
	reply := &loop.ModelReply{Text: choice.Message.Content, Model: resp.Model, Usage: loop.Usage{
		PromptTokens:     resp.Usage.PromptTokens,
		CompletionTokens: resp.Usage.CompletionTokens,
	}}
	if reply.Model == "" {
		reply.Model = req.chat.Model
	}
	calls := choice.Message.ToolCalls
	if reply.Usage.Total() == 0 {
		reply.Usage = loop.Usage{PromptTokens: req.prompt, CompletionTokens: tokensIn(len(reply.Text))}
		for _, c := range calls {
			reply.Usage.CompletionTokens += tokensIn(len(c.Function.Name) + len(c.Function.Arguments))
		}
	}
	switch {
	case req.offers:
		for _, c := range calls {
			reply.Calls = append(reply.Calls, loop.NativeCall{ID: c.ID, Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
		}
	case reply.Text == "" && len(calls) > 0:
		reply.Text = toolCallsAsText(calls)
	}
	switch {
	case choice.Message.Refusal != "" && reply.Text == "" && len(reply.Calls) == 0:
		return nil, &failure{cause: CauseRefusal, said: quote(choice.Message.Refusal)}
	case choice.FinishReason == openai.FinishReasonContentFilter:
		return nil, &failure{cause: CauseContentFilter, said: "a filter stopped the reply; what came of it is not used"}
	case choice.FinishReason == openai.FinishReasonLength:
		reply.Truncated = true
	}
	return reply, nil
}

// toolCallsAsText writes native tool calls as a JSON object. Nobody asked for them: the strategy refuses the text, and it
// is kept in the run's journal as what the model said.
func toolCallsAsText(calls []openai.ToolCall) string {
	type call struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var list []call
	for _, c := range calls {
		list = append(list, call{c.Function.Name, c.Function.Arguments})
	}
	text, err := json.Marshal(map[string]any{"tool_calls": list})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}
