package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

func framed(t *testing.T, frame string) *http.Request {
	t.Helper()
	out, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://model/v1/chat/completions", strings.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is written into go-openai's request is what the texts say, every time that it is asked for, and of the length told.
func TestBodyIsWritten(t *testing.T) {
	texts := []string{"plain", "", "\"\\\n\t\x00\x1f\x7f", "<b>&</b>", "ünïcode \u2028 🙂", `"messages":null}`, "broken \xff\xc3"}
	r := &request{
		note: "\n\nReply with JSON.", form: formSchema, extras: []byte(`,"temperature":0`),
		schema: &loop.ReplySchema{Name: "answer", Schema: json.RawMessage(`{"type":"object","properties":{"messages":null}}`), Strict: true},
	}
	for _, text := range texts {
		r.messages = append(r.messages, loop.Message{Role: "user", Content: text})
	}
	out := framed(t, `{"model":"\"messages\":null","messages":null,"stream":false}`)
	if err := r.complete(out); err != nil {
		t.Fatal(err)
	}
	first, err := io.ReadAll(out.Body)
	if err != nil || int64(len(first)) != out.ContentLength {
		t.Fatalf("%d bytes, told %d, error %v", len(first), out.ContentLength, err)
	}
	var got struct {
		Model       string
		Messages    []loop.Message
		Stream      *bool
		Temperature *int
		Format      json.RawMessage `json:"response_format"`
	}
	if err := json.Unmarshal(first, &got); err != nil {
		t.Fatalf("%v: %s", err, first)
	}
	texts[0] += r.note
	texts[len(texts)-1] = "broken \ufffd\ufffd"
	var said []string
	for _, m := range got.Messages {
		said = append(said, m.Content)
	}
	if diff := cmp.Diff(texts, said); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	wantFormat := `{"type":"json_schema","json_schema":{"name":"answer","schema":{"type":"object","properties":{"messages":null}},"strict":true}}`
	if got.Model != `"messages":null` || got.Stream == nil || got.Temperature == nil || string(got.Format) != wantFormat {
		t.Errorf("body %s", first)
	}
	for range 2 {
		again, err := out.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		copied, err := io.ReadAll(again)
		if err = errors.Join(err, again.Close(), again.Close()); err != nil || !bytes.Equal(first, copied) {
			t.Errorf("another time it is %s, error %v", copied, err)
		}
	}
	if err := out.Body.Close(); err != nil {
		t.Error(err)
	}
	if n, err := out.Body.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("after the end %d bytes can be read, error %v", n, err)
	}
}

// A later go-openai may write something else.
func TestUnknownFrameIsRefused(t *testing.T) {
	for _, frame := range []string{``, `{"model":"m"}`, `{"messages":[]}`, `{"messages":null`} {
		if err := new(request).complete(framed(t, frame)); err == nil {
			t.Errorf("%s was completed", frame)
		}
	}
}
