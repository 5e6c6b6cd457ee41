package llm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"ratchet/internal/plan"
)

// noMessages stands in the body that go-openai writes where the prompt belongs. It can't be part of a text there, whose
// quotation marks have a backslash before them, and of members that could hold it none comes earlier.
const noMessages = `"messages":null`

// complete puts what go-openai leaves out into its request: the prompt, the form of the reply and the task's options. That
// library would encode each message by itself, check and copy it twice more, and keep the outcome until the reply has come.
// Here the body is written once, and kept until it has gone out.
func (r *request) complete(out *http.Request) error {
	frame, err := io.ReadAll(out.Body)
	if err != nil {
		return fmt.Errorf("read the request to send: %w", err)
	}
	head, rest, found := strings.Cut(string(frame), noMessages)
	rest, closed := strings.CutSuffix(rest, "}")
	if !found || !closed {
		return errors.New("the request to send is no JSON object without messages")
	}
	render := func() *body { return &body{buf: r.render(head, rest)} }
	first := render()
	out.Body, out.ContentLength = first, int64(first.buf.Len())
	out.GetBody = func() (io.ReadCloser, error) { return render(), nil }
	return nil
}

// render writes the body. head and rest are what comes before and after the messages.
func (r *request) render(head, rest string) *bytes.Buffer {
	b := takeBuffer()
	b.WriteString(head)
	b.WriteString(`"messages":[`)
	for i, m := range r.messages {
		if i > 0 {
			b.WriteByte(',')
		}
		content := m.Content
		if i == 0 {
			content += r.note
		}
		b.WriteString(`{"role":`)
		writeText(b, m.Role)
		b.WriteString(`,"content":`)
		writeText(b, content)
		b.WriteByte('}')
	}
	b.WriteByte(']')
	b.WriteString(rest)
	r.form.write(b, r.schema)
	b.Write(r.extras)
	b.WriteByte('}')
	return b
}

// writeText writes a JSON string.
func writeText(b *bytes.Buffer, s string) {
	b.Grow(len(s) + len(s)/8 + len(`""`)) // mostly that is enough
	b.Write(plan.AppendString(b.AvailableBuffer(), s))
}

// buffers are for bodies on their way.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled bounds the buffers that are kept, bytes.
const maxPooled = 1 << 20

func takeBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) }

func giveBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxPooled {
		b.Reset()
		buffers.Put(b)
	}
}

// body is a body on its way out. Whoever sends it closes it, at the end or before it, and perhaps while another goroutine
// reads; then its buffer serves another.
type body struct {
	mu  sync.Mutex
	buf *bytes.Buffer // nil once it is closed
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.buf.Read(p)
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf != nil {
		giveBuffer(b.buf)
	}
	b.buf = nil
	return nil
}
