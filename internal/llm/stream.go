package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/plan"
)

// Bounds of a streamed response. One word of text travels in a few hundred bytes of JSON, hence the factor.
const (
	maxStreamText  = plan.MaxReply // bytes of text and tool calls together
	maxStreamBytes = 32 << 20      // bytes on the wire, comments and reasoning included
	maxStreamLine  = maxBody       // bytes of one line
)

// looksStreamed reports whether a response is a stream of events and not one JSON value or a web page. It looks at the
// first bytes: there are endpoints that send either under the other's content type.
func looksStreamed(h http.Header, body *bufio.Reader) bool {
	for n := 1; ; n++ {
		start, err := body.Peek(n)
		if err != nil {
			return false // nothing but space: read as a whole, which says that it is empty
		}
		switch start[n-1] {
		case ' ', '\t', '\r', '\n':
			continue
		case '{', '[', '<':
			return false
		case ':':
			return true
		}
		if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
			return true
		}
		start, _ = body.Peek(n + len("event:") - 1) // shorter at the end of the body
		word := start[n-1:]
		return bytes.HasPrefix(word, []byte("data:")) || bytes.HasPrefix(word, []byte("event:")) || bytes.HasPrefix(word, []byte("id:"))
	}
}

// replyStream reads a streamed reply. go-openai makes the request, but its reader is not used: it
// takes the end of a broken connection for the end of the reply, gives up at an empty data line and after 300 comments,
// loses the status of an error, and refuses a chunk for one field it does not need.
type replyStream struct {
	events eventReader
	chunks chunkMender
	alive  func(phase) // called for each event
	hide   func(*failure) *failure
	done   bool // [DONE] came
	ended  bool

	oversize bool // the reply is longer than is read
}

// next returns the next piece of the reply that has something in it. The error is [io.EOF] at the end of a complete reply,
// which has a finish reason or the [DONE] mark; everything else is a *failure, however cleanly the connection was closed.
func (s *replyStream) next() (openai.ChatCompletionStreamChoiceDelta, error) {
	for !s.ended {
		e, err := s.events.next()
		switch {
		case errors.Is(err, errTooLong) && (s.chunks.any || s.events.replyLike):
			s.oversize, s.ended = true, true
			return s.chunks.rest(), nil
		case err != nil && (s.done || s.chunks.finish != ""):
			s.ended = true
			if !s.chunks.any {
				return none(&failure{cause: CauseServerError, passing: true, said: "the stream has no reply in it"})
			}
			return s.chunks.rest(), nil
		case err != nil:
			return none(s.hide(s.brokenOff(err)))
		case e.done:
			// The last bytes of the response are read too, so that the connection can be used again.
			s.done = true
			s.alive(phaseOver)
		case !s.done:
			d, f := s.chunks.mend(e)
			if f != nil && s.chunks.finish == "" { // later on it does not make the reply incomplete
				return none(s.hide(f))
			}
			if s.chunks.finish == "" {
				s.alive(phaseReply)
			} else {
				s.alive(phaseEpilogue)
			}
			if s.chunks.size > maxStreamText {
				s.oversize, s.ended = true, true
			}
			if d.Content != "" || d.Refusal != "" || len(d.ToolCalls) > 0 {
				return d, nil
			}
		}
	}
	return none(io.EOF)
}

func none(err error) (openai.ChatCompletionStreamChoiceDelta, error) {
	return openai.ChatCompletionStreamChoiceDelta{}, err
}

func (s *replyStream) brokenOff(err error) *failure {
	switch {
	case errors.Is(err, errTooLong):
		return s.events.unread()
	case errors.Is(err, io.EOF):
		return &failure{
			cause: CauseTransport, passing: true,
			said: fmt.Sprintf("the stream ended after %d bytes of the reply, without the mark of its end", s.chunks.size),
		}
	}
	return classifyTransport(fmt.Errorf("the stream broke off after %d bytes of the reply: %w", s.chunks.size, err))
}

// event is one server-sent event with data.
type event struct {
	data   []byte
	failed bool // it reports an error
	done   bool // it is the mark of the end
}

// eventReader reads server-sent events as https://html.spec.whatwg.org/multipage/server-sent-events.html has them, and
// forgives what endpoints leave out: the empty line between events, and the line break after the last.
type eventReader struct {
	r     *bufio.Reader
	size  int      // bytes read
	any   bool     // there was data among them
	lines [][]byte // read and not used yet

	replyLike bool // what was too long began as a piece of a reply does
}

// next returns the next event whose data is not empty. It is valid until the next call. Data that is whole after its first
// line is an event without waiting for the line after it. The error is [io.EOF] at the end, or how the connection broke.
func (r *eventReader) next() (event, error) {
	var e event
	for {
		line, err := r.line()
		if err != nil || len(line) == 0 {
			data := bytes.TrimSpace(e.data)
			if err == nil && len(data) > 0 || len(data) > 0 && json.Valid(data) {
				return e, nil
			}
			if err != nil {
				return event{}, err
			}
			e = event{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "event":
			e.failed = string(bytes.TrimSpace(value)) == "error"
			continue
		case "error": // llama.cpp
			e.failed = true
		case "data":
			r.any = true
		default:
			if line[0] != '{' || !json.Valid(line) {
				continue
			}
			value = line // an error that a proxy writes without the frame of an event
		}
		if e.add(value) {
			return e, nil
		}
		if len(e.data) > maxStreamLine {
			return event{}, errTooLong
		}
	}
}

// add adds a line of data and reports whether the event is whole by that.
func (e *event) add(line []byte) bool {
	if len(e.data) > 0 {
		e.data = append(append(e.data, '\n'), line...)
		return false // at the end of the event, not at each of its lines: that would take time in their number's square
	}
	if e.done = bytes.EqualFold(bytes.TrimSpace(line), []byte("[DONE]")); e.done || json.Valid(line) {
		e.data = line
		return true
	}
	e.data = append(e.data, line...)
	return false
}

// line returns the next line without its end, which is a line feed, a carriage return or both. It is valid until the next
// call.
func (r *eventReader) line() ([]byte, error) {
	if len(r.lines) == 0 {
		whole, err := r.feed()
		if len(whole) == 0 && err != nil {
			return nil, err
		}
		if r.size == len(whole) {
			whole = bytes.TrimPrefix(whole, []byte("\ufeff"))
		}
		whole = bytes.TrimSuffix(bytes.TrimSuffix(whole, []byte("\n")), []byte("\r"))
		if bytes.IndexByte(whole, '\r') < 0 {
			return whole, nil
		}
		r.lines = bytes.Split(whole, []byte("\r"))
	}
	line := r.lines[0]
	r.lines = r.lines[1:]
	return line, nil
}

// feed reads up to and including the next line feed, or to the end.
func (r *eventReader) feed() ([]byte, error) {
	var long []byte
	for {
		part, err := r.r.ReadSlice('\n')
		if r.size += len(part); r.size > maxStreamBytes || len(long)+len(part) > maxStreamLine {
			long = append(long, part...)
			r.any = r.any || long[0] != ':'
			r.replyLike = replyLike(long)
			return nil, errTooLong
		}
		if long == nil && err == nil {
			return part, nil
		}
		long = append(long, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return long, err
		}
	}
}

// errTooLong says that a stream, or a line of it, is longer than is read.
var errTooLong = errors.New("the stream is too long")

// unread is the failure of a stream that is too long and has no reply in it: nothing but signs of life, after which another
// try may get one, or something else than a reply.
func (r *eventReader) unread() *failure {
	f := &failure{
		cause: CauseServerError, passing: true,
		said: fmt.Sprintf("the stream has no reply in it, and was not read further after %d KiB", r.size>>10),
	}
	if r.any {
		f.cause, f.passing = CauseEndpointNotOpenAI, false
	}
	return f
}
