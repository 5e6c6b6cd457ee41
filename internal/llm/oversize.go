package llm

import (
	"bytes"
	"fmt"

	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// A reply may be longer than anybody wants to read: a model that repeats itself until its limit, or an endpoint that
// never ends. It is read up to a bound and told to the caller as what it is, a reply that is too long, so that the model is
// asked for a shorter one. What has no reply in it is a failure of the endpoint.

// beginning makes of the first bytes of a whole response that is longer than is read the text that its reply begins with.
func beginning(body []byte) (string, *failure) {
	if f := notCompletion(body); f != nil {
		if f.cause == CauseServerError {
			f.said = fmt.Sprintf("the response is white space, and was not read further after %d KiB", len(body)>>10)
		}
		return "", f
	}
	if !replyLike(body) {
		return "", &failure{
			cause: CauseEndpointNotOpenAI,
			said:  fmt.Sprintf("the response has no choices in its first %d KiB and was not read further: %s", len(body)>>10, quote(string(body))),
		}
	}
	_, content, found := bytes.Cut(body, []byte(`"content"`))
	content = bytes.TrimLeft(content, ": \t\r\n")
	if !found || len(content) == 0 || content[0] != '"' {
		return "", nil
	}
	content = content[1:min(len(content), plan.MaxReply)]
	if end := endOfString(content); end >= 0 {
		content = content[:end]
	} else {
		content = content[:wholeEscapes(content)]
	}
	return unquote(content), nil
}

// replyLike reports whether the first bytes of JSON are those of a chat completion or of a piece of one.
func replyLike(json []byte) bool {
	start := bytes.IndexByte(json, '{')
	return start >= 0 && bytes.Contains(json[start:], []byte(`"choices"`))
}

// endOfString is the place of the quotation mark that ends the inside of a JSON string, or -1.
func endOfString(inside []byte) int {
	for i := 0; i < len(inside); i++ {
		switch inside[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// wholeEscapes is how much of the inside of a JSON string, cut anywhere, is whole escapes and characters.
func wholeEscapes(inside []byte) int {
	whole := 0
	for i := 0; i < len(inside); {
		n := 1
		if inside[i] == '\\' {
			n = 2
			if i+1 < len(inside) && inside[i+1] == 'u' {
				n = 6
			}
		}
		if i += n; i <= len(inside) {
			whole = i
		}
	}
	return wholeCharacters(inside[:whole])
}

// trim cuts a reply that is too long, and marks it as such.
func trim(reply *loop.ModelReply, oversize bool) {
	size := len(reply.Text)
	for _, c := range reply.Calls {
		size += len(c.Name) + len(c.Arguments)
	}
	reply.Oversize = oversize || size > plan.MaxReply
	if len(reply.Text) > plan.MaxReply {
		reply.Text = clip(reply.Text, plan.MaxReply)
	}
	if reply.Oversize {
		reply.Calls = nil // a cut call must not be taken for a whole one
	}
}

// completionOf is a completion with this text.
func completionOf(text string) *openai.ChatCompletionResponse {
	return &openai.ChatCompletionResponse{Choices: []openai.ChatCompletionChoice{{
		FinishReason: openai.FinishReasonStop,
		Message:      openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant, Content: text},
	}}}
}
