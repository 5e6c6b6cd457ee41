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
)

// Bounds of a streamed response. One word of text travels in a few hundred bytes of JSON, hence the factor.
const (
	maxStreamText  = maxBody      // bytes of text and tool calls together
	maxStreamBytes = 64 * maxBody // bytes on the wire, comments included
	maxStreamLine  = maxBody      // bytes of one line
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

// streamBody is the body of a streamed response in the form that go-openai reads without fault. go-openai by itself
// takes the end of a broken connection for the end of the reply, gives up at an empty data line and after 300 comments,
// loses the status of an error, and refuses a chunk for one field it does not need. So the events are read here, and each
// is written anew as a clean one. Read ends with [io.EOF] after a complete reply only: one with a finish reason or the
// [DONE] mark. All else is a *failure, however cleanly the connection was closed.
type streamBody struct {
	events eventReader
	chunks chunkMender
	closer io.Closer
	alive  func(phase) // called for each event
	hide   func(*failure) *failure

	out  bytes.Buffer // mended and not read yet
	done bool         // [DONE] came
	err  error        // how it ended, for when out is empty
}

func (s *streamBody) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.next()
	}
	return s.out.Read(p)
}

func (s *streamBody) Close() error { return s.closer.Close() }

// next reads one event.
func (s *streamBody) next() {
	e, err := s.events.next()
	switch {
	case err != nil && (s.done || s.chunks.finish != ""):
		s.end()
	case err != nil:
		s.fail(s.brokenOff(err))
	case e.done:
		// The last bytes of the response are read too, so that the connection can be used again.
		s.done = true
		s.alive(phaseOver)
	case s.done:
	default:
		s.piece(e)
	}
}

func (s *streamBody) piece(e event) {
	chunk, f := s.chunks.mend(e)
	if f != nil {
		if s.chunks.finish == "" {
			s.fail(f)
		}
		return // what goes wrong after the reply's end does not make it incomplete
	}
	if s.chunks.finish == "" {
		s.alive(phaseReply)
	} else {
		s.alive(phaseEpilogue)
	}
	if chunk != nil {
		s.write(*chunk)
	}
}

func (s *streamBody) end() {
	if !s.chunks.any {
		s.fail(&failure{cause: CauseServerError, passing: true, said: "the stream has no reply in it"})
		return
	}
	s.write(s.chunks.last())
	s.out.WriteString("data: [DONE]\n\n")
	s.err = io.EOF
}

func (s *streamBody) fail(f *failure) { s.err = s.hide(f) }

func (s *streamBody) brokenOff(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, io.EOF):
		return &failure{
			cause: CauseTransport, passing: true,
			said: fmt.Sprintf("the stream ended after %d bytes of the reply, without the mark of its end", s.chunks.size),
		}
	}
	return classifyTransport(fmt.Errorf("the stream broke off after %d bytes of the reply: %w", s.chunks.size, err))
}

func (s *streamBody) write(chunk openai.ChatCompletionStreamResponse) {
	s.out.Write(encodeChunk(chunk))
}

func encodeChunk(chunk openai.ChatCompletionStreamResponse) []byte {
	data, err := json.Marshal(chunk)
	if err != nil {
		panic(err) // strings and numbers, which were cleaned
	}
	return fmt.Appendf(nil, "data: %s\n\n", data)
}

// streamOf is the stream of a reply that came as a whole although it was asked for as a stream.
func streamOf(r openai.ChatCompletionResponse) []byte {
	choice := r.Choices[0]
	calls := choice.Message.ToolCalls
	for i := range calls {
		calls[i].Index = &i
	}
	chunk := encodeChunk(openai.ChatCompletionStreamResponse{
		Model: r.Model, Usage: &r.Usage,
		Choices: []openai.ChatCompletionStreamChoice{{
			Delta:        openai.ChatCompletionStreamChoiceDelta{Content: choice.Message.Content, Refusal: choice.Message.Refusal, ToolCalls: calls},
			FinishReason: choice.FinishReason,
		}},
	})
	return append(chunk, "data: [DONE]\n\n"...)
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
	lines [][]byte // read and not used yet
}

// next returns the next event whose data is not empty. Data that is whole after its first line is an event without
// waiting for the line after it. The error is [io.EOF] at the end, or how the connection broke.
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
			return event{}, r.tooLong()
		}
	}
}

// add adds a line of data and reports whether the event is whole by that.
func (e *event) add(line []byte) bool {
	if len(e.data) > 0 {
		e.data = append(append(e.data, '\n'), line...)
		return false // at the end of the event, not at each of its lines: that would take time in their number's square
	}
	e.data = append(e.data, line...)
	e.done = bytes.EqualFold(bytes.TrimSpace(line), []byte("[DONE]"))
	return e.done || json.Valid(line)
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
			return nil, r.tooLong()
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

func (r *eventReader) tooLong() *failure {
	return &failure{cause: CauseOutputTruncated, said: fmt.Sprintf("the stream was not read further after %d KiB", r.size>>10)}
}
