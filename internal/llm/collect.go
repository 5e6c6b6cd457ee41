package llm

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// pieces hands a streamed reply on as it comes. The pieces since the last empty one, joined, are the reply so far, and
// once the call has returned a reply they are its text.
type pieces struct {
	hand func(string)    // nil: nobody asked
	text strings.Builder // since the last empty piece
}

func (p *pieces) add(piece string) {
	if p.hand != nil && piece != "" {
		p.text.WriteString(piece)
		p.hand(piece)
	}
}

// restart says that what was handed on is void.
func (p *pieces) restart() {
	if p.hand != nil && p.text.Len() > 0 {
		p.text.Reset()
		p.hand("")
	}
}

// settle makes good where the reply is not what was handed on: it came as a whole, or is that of an earlier attempt.
func (p *pieces) settle(text string) {
	if p.hand != nil && p.text.String() != text {
		p.restart()
		p.add(text)
	}
}

// streamFactor is how often the time limit of an attempt fits into that of a streamed one: as long as pieces come, it may
// go on.
const streamFactor = 5

// How long to wait for what may follow a complete reply.
const (
	forEpilogue = 2 * time.Second        // the tokens used
	forEnd      = 100 * time.Millisecond // the response's end, by which the connection can be used again
)

// limit bounds the time of an attempt: a streamed one by the silence between two events, and as a whole.
func (c *Client) limit(ctx context.Context, ex *exchange) (context.Context, func()) {
	if !ex.request.streamed() {
		ctx, cancel := context.WithTimeoutCause(ctx, c.conf.Timeout, errAttemptTimeout)
		return ctx, cancel
	}
	ctx, cancelAll := context.WithTimeoutCause(ctx, streamFactor*c.conf.Timeout, errAttemptTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	silence := time.AfterFunc(c.conf.Timeout, func() { cancel(errAttemptTimeout) })
	last := phaseReply
	ex.alive = func(p phase) {
		switch {
		case p == phaseReply:
			silence.Reset(c.conf.Timeout)
		case p == last: // the wait has begun
		case p == phaseEpilogue:
			silence.Reset(min(forEpilogue, c.conf.Timeout))
		case p == phaseOver:
			silence.Reset(forEnd)
		}
		last = p
	}
	return ctx, func() {
		silence.Stop()
		cancel(nil)
		cancelAll()
	}
}

// collect reads a reply that comes in pieces, hands them on and joins them.
func collect(stream *replyStream, ex *exchange, out *pieces) (*openai.ChatCompletionResponse, error) {
	var text, refusal strings.Builder
	var calls []openai.ToolCall
	for {
		piece, err := stream.next()
		if errors.Is(err, io.EOF) {
			break // after a complete reply only
		}
		if err != nil {
			return nil, err
		}
		text.WriteString(piece.Content)
		refusal.WriteString(piece.Refusal)
		calls = joinCalls(calls, piece.ToolCalls)
		out.add(piece.Content)
	}
	chunks := &stream.chunks
	ex.oversize = stream.oversize
	return &openai.ChatCompletionResponse{Model: chunks.model, Usage: chunks.usage, Choices: []openai.ChatCompletionChoice{{
		FinishReason: openai.FinishReason(chunks.finish),
		Message: openai.ChatCompletionMessage{
			Role: openai.ChatMessageRoleAssistant, Content: text.String(), Refusal: refusal.String(), ToolCalls: calls,
		},
	}}}, nil
}

// joinCalls adds pieces of tool calls, which say by their index which call they belong to, to the calls so far.
func joinCalls(calls, pieces []openai.ToolCall) []openai.ToolCall {
	for _, p := range pieces {
		if *p.Index == len(calls) {
			calls = append(calls, openai.ToolCall{ID: p.ID, Type: p.Type})
		}
		c := &calls[*p.Index]
		if p.Function.Name != c.Function.Name { // some repeat the name with each piece
			c.Function.Name += p.Function.Name
		}
		c.Function.Arguments += p.Function.Arguments
	}
	return calls
}
