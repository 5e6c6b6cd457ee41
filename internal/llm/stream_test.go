package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

// pieces is what a reader of the stream has on the screen.
type pieces struct {
	text     strings.Builder
	n        int
	restarts int
}

func (p *pieces) add(piece string) {
	p.n++
	if piece == "" {
		p.restarts++
		p.text.Reset()
	}
	p.text.WriteString(piece)
}

func (p *pieces) check(t *testing.T, reply loop.ModelReply, err error) {
	t.Helper()
	if got := p.text.String(); err == nil && got != reply.Text {
		t.Errorf("the pieces are %q, the reply is %q", got, reply.Text)
	}
}

// chunk is an event with a piece of text.
func chunk(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s}}]}\n\n", data)
}

const stopChunk = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"

func delta(d string) string { return "data: {\"choices\":[{\"index\":0,\"delta\":" + d + "}]}\n\n" }

func TestStreamIsHandedOn(t *testing.T) {
	text := "One piece after the other – 🙂 and all of them in the reply."
	server := llmtest.Server(t, llmtest.Replies(llmtest.Reply{Text: text, Prompt: 7, Output: 3}))
	client, _ := newClient(t, server, nil)
	p := &pieces{}
	r := stepRequest()
	r.Tokens = p.add
	reply, err := client.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := loop.ModelReply{Text: text, Model: "test-model", Usage: loop.Usage{PromptTokens: 7, CompletionTokens: 3}}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
	p.check(t, reply, err)
	if p.n < 5 || p.restarts != 0 {
		t.Errorf("%d pieces and %d restarts, want some and none", p.n, p.restarts)
	}
	body := server.Requests()[0].Body
	if string(body["stream"]) != "true" || string(body["stream_options"]) != `{"include_usage":true}` {
		t.Errorf("asked with stream %s and stream_options %s", body["stream"], body["stream_options"])
	}
}

// Shapes of streams that endpoints send, each complete.
func TestOddStreams(t *testing.T) {
	many := strings.Repeat(": keep-alive\n\n", 2000)
	call := func(fields string) string { return delta(`{"tool_calls":[` + fields + `]}`) }
	tests := []struct {
		name, body, text string
		calls            []loop.NativeCall
	}{
		{
			name: "pair of surrogates in two pieces", text: "a🙂b",
			body: delta(`{"content":"a\ud83d"}`) + delta(`{"content":"\ude42b"}`) + stopChunk,
		},
		{
			name: "bytes of a character in two pieces", text: "é!",
			body: delta("{\"content\":\"\xc3\"}") + delta("{\"content\":\"\xa9!\"}") + stopChunk,
		},
		{name: "half a pair at the end", text: "a\ufffd", body: delta(`{"content":"a\ud83d"}`) + stopChunk},
		{
			name: "a backslash before what looks like half a pair", text: `\ud83d!`,
			body: delta(`{"content":"\\ud83d"}`) + delta(`{"content":"!"}`) + stopChunk,
		},
		{
			name: "carriage returns alone", text: "ab",
			body: strings.ReplaceAll(chunk("a")+chunk("b")+stopChunk, "\n", "\r"),
		},
		{
			name: "no empty lines between events", text: "ab",
			body: strings.ReplaceAll(chunk("a")+chunk("b")+stopChunk, "\n\n", "\n"),
		},
		{name: "no line break at the end", text: "a", body: strings.TrimSpace(chunk("a") + stopChunk)},
		{
			name: "data on several lines", text: "a b",
			body: "data: {\"choices\":[{\"delta\":\ndata:  {\"content\":\"a b\"}}\ndata: ]}\n\n" + stopChunk,
		},
		{name: "no space after data", text: "a", body: strings.ReplaceAll(chunk("a")+stopChunk, "data: ", "data:")},
		{name: "byte order mark", text: "a", body: "\ufeff" + chunk("a") + stopChunk},
		{name: "thousands of comments", text: "a", body: many + chunk("a") + many + stopChunk},
		{name: "done only", text: "a", body: chunk("a") + "data: [DONE]\n\n"},
		{name: "an error after the end", text: "a", body: chunk("a") + stopChunk + "data: {\"error\":{\"code\":500}}\n\n"},
		{name: "garbage after the end", text: "a", body: chunk("a") + "data: [DONE]\n\nnonsense\n\ndata: {\n\n" + chunk("b")},
		{name: "text after the finish reason", text: "ab", body: chunk("a") + stopChunk + chunk("b") + "data: [DONE]\n\n"},
		{
			name: "empty and unknown chunks", text: "a",
			body: "data: {}\n\ndata:\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nid: 7\nretry: 10\n" + chunk("a") +
				"data: {\"choices\":[],\"prompt_filter_results\":[]}\n\ndata: {\"choices\":null}\n\n" + stopChunk,
		},
		{name: "another choice", text: "a", body: chunk("a") + "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n" + stopChunk},
		{
			name: "content in parts", text: "ab",
			body: delta(`{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"}]}`) + delta(`{"content":[{"type":"text","text":"b"}]}`) + stopChunk,
		},
		{name: "reasoning is not text", text: "a", body: delta(`{"reasoning_content":"hm","content":null}`) + chunk("a") + stopChunk},
		{name: "a whole message", text: "all", body: "data: {\"choices\":[{\"message\":{\"content\":\"all\"},\"finish_reason\":\"stop\"}]}\n\n"},
		{
			name: "a whole message after its pieces", text: "all",
			body: chunk("a") + chunk("ll") + "data: {\"choices\":[{\"message\":{\"content\":\"all\"},\"finish_reason\":\"stop\"}]}\n\n",
		},
		{name: "only empty text", text: "", body: delta(`{"role":"assistant","content":""}`) + stopChunk},
		{name: "a web page's content type", text: "a", body: " \n" + chunk("a") + stopChunk},
		{
			name: "calls in pieces", calls: []loop.NativeCall{{ID: "c1", Name: "search", Arguments: json.RawMessage(`{"q":"a"}`)}, {ID: "c2", Name: "now", Arguments: json.RawMessage(`{}`)}},
			body: call(`{"index":0,"id":"c1","type":"function","function":{"name":"search","arguments":""}}`) +
				call(`{"index":0,"function":{"arguments":"{\"q\":"}}`) + call(`{"index":0,"id":"","function":{"arguments":"\"a\"}"}}`) +
				call(`{"index":1,"id":"c2","function":{"name":"now","arguments":"{}"}}`) + stopChunk,
		},
		{
			name: "calls under the same index", calls: []loop.NativeCall{{ID: "a", Name: "f", Arguments: json.RawMessage(`{}`)}, {ID: "b", Name: "f", Arguments: json.RawMessage(`{}`)}},
			body: call(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}`) + stopChunk,
		},
		{
			name: "a new id with each piece, the name repeated", calls: []loop.NativeCall{{ID: "a", Name: "f", Arguments: json.RawMessage(`{"x":1}`)}},
			body: call(`{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}`) + call(`{"index":0,"id":"b","function":{"arguments":":"}}`) +
				call(`{"index":0,"id":"a","function":{"name":"f","arguments":"1}"}}`) + stopChunk,
		},
		{
			name: "calls without an index", calls: []loop.NativeCall{{ID: "a", Name: "f", Arguments: json.RawMessage(`{"x":"🙂"}`)}, {ID: "b", Name: "g", Arguments: json.RawMessage(`{"y":2}`)}},
			body: call(`{"id":"a","function":{"name":"f","arguments":"{\"x\":\"\ud83d"}}`) + call(`{"function":{"arguments":"\ude42\"}"}}`) +
				call(`{"id":"b","function":{"name":"g","arguments":{"y":2}}}`) + stopChunk,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			header := map[string]string{"Content-Type": "text/event-stream"}
			if strings.Contains(test.name, "web page") {
				header["Content-Type"] = "text/html"
			}
			server := llmtest.Server(t, llmtest.Replies(llmtest.Reply{Header: header, Body: &test.body}))
			client, _ := newClient(t, server, nil)
			p := &pieces{}
			r := stepRequest()
			r.Tokens, r.Tools = p.add, []loop.ToolSpec{{Name: "search"}}
			reply, err := client.Complete(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			want := loop.ModelReply{Text: test.text, Calls: test.calls}
			if diff := cmp.Diff(want, loop.ModelReply{Text: reply.Text, Calls: reply.Calls}); diff != "" {
				t.Errorf("reply (-want +got):\n%s", diff)
			}
			p.check(t, reply, err)
			if p.restarts != 0 {
				t.Errorf("begun anew %d times", p.restarts)
			}
		})
	}
}

// roundTrip is a transport made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func streamResponse(body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body),
	}
}

// A stream that is cut at any byte, by a clean end or a reset, is a passing fault or the whole reply: never a part of it.
func TestStreamCutAnywhere(t *testing.T) {
	const text = `{"to":"Zoë 🙂"}`
	whole := delta(`{"role":"assistant"}`) + chunk(`{"to":"Zo`) + chunk("ë ") + delta(`{"content":"\ud83d"}`) + delta(`{"content":"\ude42"}`) + chunk(`"}`) +
		stopChunk + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\ndata: [DONE]\n\n"
	reset := errors.New("connection reset by peer")
	var complete int
	for _, end := range []error{io.EOF, reset} {
		for n := range len(whole) + 1 {
			client, err := llm.New(llm.Config{
				BaseURL: "http://model/v1", Attempts: 1,
				Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					return streamResponse(io.MultiReader(strings.NewReader(whole[:n]), endWith{end})), nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			p := &pieces{}
			r := stepRequest()
			r.Tokens = p.add
			reply, err := client.Complete(t.Context(), r)
			if err == nil {
				complete++
				p.check(t, reply, nil)
				if reply.Text != text {
					t.Fatalf("cut after %d bytes, the reply is %q", n, reply.Text)
				}
				continue
			}
			if me := modelError(t, err); !me.Passing || me.Cause != llm.CauseTransport && me.Cause != llm.CauseServerError {
				t.Fatalf("cut after %d bytes by %v: %v", n, end, me)
			}
			if !strings.HasPrefix(text, strings.TrimRight(p.text.String(), "\ufffd")) {
				t.Fatalf("cut after %d bytes, the pieces are %q", n, p.text.String())
			}
		}
	}
	after := len(whole) - strings.Index(whole, stopChunk) - len(stopChunk) + len("\n\n") + 1
	if complete != 2*after {
		t.Errorf("%d of the cut streams were complete, want the %d cut after the finish reason", complete, 2*after)
	}
}

type endWith struct{ err error }

func (e endWith) Read([]byte) (int, error) { return 0, e.err }

// A stream that breaks is repeated: what was shown of it is called back, and nothing of it is in the reply.
func TestBrokenStreamIsRepeated(t *testing.T) {
	body := chunk("half a")
	server := llmtest.Server(t, llmtest.Replies(llmtest.Reply{Body: &body}, llmtest.Reply{Body: &body, Cut: true}, llmtest.Text("the whole reply")))
	client, waits := newClient(t, server, nil)
	p := &pieces{}
	r := stepRequest()
	r.Tokens = p.add
	reply, err := client.Complete(t.Context(), r)
	if err != nil || reply.Text != "the whole reply" {
		t.Fatalf("reply %q, error %v", reply.Text, err)
	}
	p.check(t, reply, err)
	if p.restarts != 2 || len(*waits) != 2 {
		t.Errorf("begun anew %d times after waits %v, want 2", p.restarts, *waits)
	}
}

func TestStreamsThatFail(t *testing.T) {
	tests := []struct {
		name, body string
		cause      string
		passing    bool
		said       string
	}{
		{"nothing", "", llm.CauseServerError, true, "empty"},
		{"comments only", ": hello\n\n", llm.CauseTransport, true, "without the mark of its end"},
		{"done and nothing else", "data: [DONE]\n\n", llm.CauseServerError, true, "no reply"},
		{"broken piece", chunk("a") + "data: {\"choices\":[{\n\n" + stopChunk, llm.CauseTransport, true, "can't be read"},
		{"other delta", delta(`7`) + stopChunk, llm.CauseTransport, true, "can't be read"},
		{"no list", "data: {\"choices\":7}\n\n", llm.CauseEndpointNotOpenAI, false, "not a list"},
		{"error event", chunk("a") + "event: error\ndata: {\"code\":429,\"message\":\"slow down\"}\n\n", llm.CauseRateLimit, true, "slow down"},
		{"error line", chunk("a") + "error: {\"code\":500,\"message\":\"out of memory\"}\n\n", llm.CauseServerError, true, "out of memory"},
		{"error without a frame", chunk("a") + "{\"error\":{\"message\":\"overloaded\",\"code\":\"503\"}}\n", llm.CauseServerError, true, "overloaded"},
		{"error without a status", "data: {\"error\":{\"message\":\"Incorrect API key\",\"type\":\"invalid_request_error\",\"code\":\"invalid_api_key\"}}\n\n", llm.CauseAuth, false, "Incorrect"},
		{"error without a name", "data: {\"error\":{\"message\":\"oops\"}}\n\n", llm.CauseServerError, true, "oops"},
		{"error that is text", "data: {\"error\":\"oops\"}\n\n", llm.CauseServerError, true, "oops"},
		{"error in the choice", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\",\"error\":{\"code\":502,\"message\":\"gone\"}}]}\n\n", llm.CauseServerError, true, "gone"},
		{"filter", chunk("a") + strings.Replace(stopChunk, "stop", "content_filter", 1), llm.CauseContentFilter, false, "filter"},
		{"refusal", delta(`{"refusal":"I can't "}`) + delta(`{"refusal":"do that"}`) + stopChunk, llm.CauseRefusal, false, "I can't do that"},
		{"too long a line", "data: " + strings.Repeat("x", 5<<20), llm.CauseEndpointNotOpenAI, false, "not read further"},
		{"too many lines", strings.Repeat("data: 1 2\n", 1000<<10), llm.CauseEndpointNotOpenAI, false, "not read further"},
		{"key echoed", "data: {\"error\":{\"code\":401,\"message\":\"bad key sk-secret\"}}\n\n", llm.CauseAuth, false, "bad key [key]"},
		{"web page", "<html>", llm.CauseEndpointNotOpenAI, false, "web page"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			header := map[string]string{"Content-Type": "text/event-stream"}
			server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Header: header, Body: &test.body} })
			client, _ := newClient(t, server, func(c *llm.Config) { c.Attempts = 1 })
			r := stepRequest()
			r.Tokens = func(string) {}
			reply, err := client.Complete(t.Context(), r)
			if err == nil {
				t.Fatalf("reply %q", reply.Text)
			}
			me := modelError(t, err)
			if me.Cause != test.cause || me.Passing != test.passing || !strings.Contains(me.Message, test.said) {
				t.Errorf("%+v, want cause %s, passing %v, saying %q", me, test.cause, test.passing, test.said)
			}
		})
	}
}

// endless is a body without end.
type endless struct {
	piece string
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.piece[e.at:])
	e.at = (e.at + n) % len(e.piece)
	return n, nil
}

func TestEndlessStreamsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		piece   string
		cause   string // empty: a reply that is too long
		passing bool
	}{
		"comments":     {": " + strings.Repeat("keep-alive", 500) + "\n", llm.CauseServerError, true},
		"empty chunks": {`data: {"x":"` + strings.Repeat("x", 5000) + "\"}\n\n", llm.CauseEndpointNotOpenAI, false},
		"one line":     {strings.Repeat("x", 10000), llm.CauseEndpointNotOpenAI, false},
		"text":         {chunk(strings.Repeat("and so on", 500)), "", false},
		"reasoning":    {delta(`{"reasoning_content":"` + strings.Repeat("and so on", 500) + `"}`), "", false},
		"refusal":      {delta(`{"refusal":"` + strings.Repeat("and so on", 500) + `"}`), llm.CauseRefusal, false},
		"arguments": {
			delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"` + strings.Repeat("9", 5000) + `"}}]}`), "", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := llm.New(llm.Config{BaseURL: "http://model/v1", Attempts: 1, Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return streamResponse(&endless{piece: test.piece}), nil
			})})
			if err != nil {
				t.Fatal(err)
			}
			r := stepRequest()
			p := &pieces{}
			r.Tokens, r.Tools = p.add, []loop.ToolSpec{{Name: "n"}}
			reply, err := client.Complete(t.Context(), r)
			p.check(t, reply, err)
			if test.cause == "" {
				checkOversize(t, reply, err)
				return
			}
			if me := modelError(t, err); me.Passing != test.passing || me.Cause != test.cause {
				t.Error(me)
			}
		})
	}
}

// silentBody gives its bytes, then nothing until the request ends.
type silentBody struct {
	io.Reader
	ctx context.Context
}

func (b silentBody) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// A stream may last as long as pieces come, within bounds. It is not waited for after its end, nor when it falls silent.
func TestTimeLimitsOfStreams(t *testing.T) {
	tests := []struct {
		name  string
		body  func(ctx context.Context) io.Reader
		text  string // empty: it times out
		least time.Duration
		most  time.Duration
	}{
		{"silent from the start", func(ctx context.Context) io.Reader { return silentBody{strings.NewReader(":\n\n"), ctx} }, "", time.Minute, time.Minute},
		{"silent in the middle", func(ctx context.Context) io.Reader { return silentBody{strings.NewReader(chunk("a")), ctx} }, "", time.Minute, time.Minute},
		{"silent after the end", func(ctx context.Context) io.Reader { return silentBody{strings.NewReader(chunk("a") + stopChunk), ctx} }, "a", time.Second, 3 * time.Second},
		{"silent after the mark", func(ctx context.Context) io.Reader {
			return silentBody{strings.NewReader(chunk("a") + "data: [DONE]\n\n"), ctx}
		}, "a", 0, time.Second},
		{"slow", func(ctx context.Context) io.Reader {
			return &slowBody{ctx, []byte(strings.Repeat(chunk("a"), 4) + stopChunk), 50 * time.Second}
		}, "aaaa", 200 * time.Second, 260 * time.Second},
		{"comments for ever", func(ctx context.Context) io.Reader {
			return &slowBody{ctx, bytes.Repeat([]byte(": wait\n\n"), 1000), time.Second}
		}, "", time.Minute, time.Minute},
		{"slow for ever", func(ctx context.Context) io.Reader {
			return &slowBody{ctx, []byte(strings.Repeat(chunk("a"), 1000)), 50 * time.Second}
		}, "", 5 * time.Minute, 5 * time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := llm.New(llm.Config{
					BaseURL: "http://model/v1", Timeout: time.Minute, Attempts: 1,
					Transport: roundTrip(func(r *http.Request) (*http.Response, error) { return streamResponse(test.body(r.Context())), nil }),
				})
				if err != nil {
					t.Fatal(err)
				}
				r := stepRequest()
				r.Tokens = func(string) {}
				began := time.Now()
				reply, err := client.Complete(t.Context(), r)
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("took %v, want %v to %v", took, test.least, test.most)
				}
				if test.text == "" {
					if me := modelError(t, err); !me.Passing || me.Cause != llm.CauseTransport {
						t.Error(me)
					}
				} else if err != nil || reply.Text != test.text {
					t.Errorf("reply %q, error %v, want %q", reply.Text, err, test.text)
				}
			})
		})
	}
}

// slowBody gives one event at a time.
type slowBody struct {
	ctx  context.Context
	rest []byte
	wait time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.wait): // on the test's clock
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	event, _, _ := bytes.Cut(b.rest, []byte("\n\n"))
	n := copy(p, b.rest[:min(len(event)+2, len(b.rest))])
	b.rest = b.rest[n:]
	return n, nil
}

// A caller who goes away in the middle of a stream gets the reason, and the endpoint's work is cut off.
func TestCancelInAStream(t *testing.T) {
	why := errors.New("cancelled by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	client, err := llm.New(llm.Config{BaseURL: "http://model/v1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return streamResponse(silentBody{strings.NewReader(chunk("a")), r.Context()}), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	r := stepRequest()
	r.Tokens = func(string) { cancel(why) }
	if _, err := client.Complete(ctx, r); !errors.Is(err, why) {
		t.Errorf("error %v, want the context's cause", err)
	}
}

// The reply that a call returns is the one that was shown last, also where it came as a whole or from an earlier attempt.
func TestWhatIsShownIsTheReply(t *testing.T) {
	whole := `{"choices":[{"message":{"content":"in one piece"},"finish_reason":"stop"}]}`
	refused := llmtest.Raw(400, `{"error":{"message":"max_tokens is too large"}}`)
	half := llmtest.Raw(200, chunk("Twice up"))
	tests := []struct {
		name    string
		replies []llmtest.Reply
		text    string
	}{
		{"whole", []llmtest.Reply{llmtest.Raw(200, whole)}, "in one piece"},
		{"cut, and longer the second time", []llmtest.Reply{{Text: "Once upon", Finish: "length"}, {Text: "Once upon a time"}}, "Once upon a time"},
		{"cut, and the higher limit is refused", []llmtest.Reply{{Text: "Once upon", Finish: "length"}, refused}, "Once upon"},
		{"cut, and then broken every time", []llmtest.Reply{{Text: "Once upon", Finish: "length"}, half, half, half, half, half}, "Once upon"},
		{"calls that nobody offered", []llmtest.Reply{{Calls: []llmtest.Call{{ID: "c", Name: "f", Arguments: "{}"}}}}, `{"tool_calls":[{"name":"f","arguments":"{}"}]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := llmtest.Server(t, llmtest.Replies(test.replies...))
			client, _ := newClient(t, server, func(c *llm.Config) { c.Patience = time.Minute })
			p := &pieces{}
			r := stepRequest()
			r.Tokens = p.add
			reply, err := client.Complete(t.Context(), r)
			if err != nil || reply.Text != test.text {
				t.Fatalf("reply %q, error %v, want %q", reply.Text, err, test.text)
			}
			p.check(t, reply, err)
		})
	}
}
