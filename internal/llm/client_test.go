package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var clock = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// testClock stands still but for the waits, which take no time.
type testClock struct {
	mu    sync.Mutex
	now   time.Time
	waits []time.Duration
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Timer() backoff.Timer { return &quickTimer{c, make(chan time.Time, 1)} }

// quickTimer fires at once, and moves its clock on by the time that it was meant to take.
type quickTimer struct {
	clock *testClock
	c     chan time.Time
}

func (q *quickTimer) Start(d time.Duration) {
	q.clock.mu.Lock()
	defer q.clock.mu.Unlock()
	q.clock.waits = append(q.clock.waits, d)
	q.clock.now = q.clock.now.Add(d)
	q.c <- q.clock.now
}
func (q *quickTimer) Stop()               {}
func (q *quickTimer) C() <-chan time.Time { return q.c }

// newClient returns a client of the server, and the waits of its calls, which take no time.
func newClient(t *testing.T, server *llmtest.Fake, change func(*llm.Config)) (*llm.Client, *[]time.Duration) {
	t.Helper()
	at := &testClock{now: clock}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	conf := llm.Config{BaseURL: server.URL, APIKey: "sk-secret", Transport: transport, Now: at.Now, Timer: at.Timer}
	if change != nil {
		change(&conf)
	}
	c, err := llm.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	return c, &at.waits
}

func stepRequest() loop.ModelRequest {
	return loop.ModelRequest{
		Run: loop.RunID{Tenant: "default", Run: "r1"}, Purpose: loop.PurposeStep, Model: "m",
		Messages: []loop.Message{{Role: "system", Content: "Reply with JSON."}, {Role: "user", Content: "Hello"}},
	}
}

func modelError(t *testing.T, err error) *loop.ModelError {
	t.Helper()
	var me *loop.ModelError
	if !errors.As(err, &me) {
		t.Fatalf("error %v, want a ModelError", err)
	}
	return me
}

func TestRequestAndReply(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(llmtest.Reply{Text: "Hi", Prompt: 7, Output: 3}))
	client, _ := newClient(t, server, nil)
	r := stepRequest()
	r.JSON, r.Stop = true, []string{"PAUSE"}
	r.Options = map[string]json.RawMessage{"temperature": json.RawMessage("0"), "top_k": json.RawMessage("40"), "seed": json.RawMessage("null")}
	reply, err := client.Complete(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := loop.ModelReply{Text: "Hi", Model: "test-model", Usage: loop.Usage{PromptTokens: 7, CompletionTokens: 3}}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
	got := server.Requests()[0]
	body := map[string]string{}
	for k, v := range got.Body {
		body[k] = string(v)
	}
	wantBody := map[string]string{
		"model": `"m"`, "stream": "false", "stop": `["PAUSE"]`, "response_format": `{"type":"json_object"}`,
		"temperature": "0", "top_k": "40",
		"messages": `[{"role":"system","content":"Reply with JSON."},{"role":"user","content":"Hello"}]`,
	}
	if diff := cmp.Diff(wantBody, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	headers := []string{got.Header.Get("Authorization"), got.Header.Get("X-Ratchet-Run"), got.Header.Get("X-Ratchet-Purpose")}
	if diff := cmp.Diff([]string{"Bearer sk-secret", "default/r1", "step"}, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestHeadersCanBeSwitchedOff(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(llmtest.Text("Hi")))
	client, _ := newClient(t, server, func(c *llm.Config) { c.NoHeaders = true })
	if _, err := client.Complete(t.Context(), stepRequest()); err != nil {
		t.Fatal(err)
	}
	for name := range server.Requests()[0].Header {
		if strings.HasPrefix(name, "X-Ratchet") {
			t.Errorf("the header %s was sent", name)
		}
	}
}

func TestJSONModeIsNamedInThePrompt(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(llmtest.Text("{}")))
	client, _ := newClient(t, server, nil)
	r := stepRequest()
	r.JSON, r.Messages = true, []loop.Message{{Role: "user", Content: "Hello"}}
	if _, err := client.Complete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := server.Requests()[0].Last(); !strings.Contains(got, "JSON") {
		t.Errorf("the prompt %q does not say JSON, which endpoints demand", got)
	}
}

func TestRefusedOptions(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies())
	client, _ := newClient(t, server, nil)
	for _, name := range []string{"stream", "n", "response_format", "Model"} {
		r := stepRequest()
		r.Options = map[string]json.RawMessage{name: json.RawMessage("1")}
		_, err := client.Complete(t.Context(), r)
		me := modelError(t, err)
		if me.Passing || me.Cause != llm.CauseRequestRejected || !strings.Contains(me.Message, name) {
			t.Errorf("%s: %v", name, me)
		}
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// A refused parameter is changed or dropped, sent again at once, and not sent again by a later call.
func TestAdaptsToRefusals(t *testing.T) {
	opts := func(pairs ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = json.RawMessage(pairs[i+1])
		}
		return m
	}
	tests := []struct {
		name    string
		refusal llmtest.Reply
		options map[string]json.RawMessage
		stop    []string
		json    bool
		gone    string // a member that the second body lacks
		has     string // text that the second body has
	}{
		{
			name: "temperature", refusal: refusal("Unsupported value: 'temperature' does not support 0.2 with this model.", "temperature"),
			options: opts("temperature", "0.2"), gone: "temperature",
		},
		{
			name: "reasoning effort", refusal: refusal("Unrecognized request argument supplied: reasoning_effort", ""),
			options: opts("reasoning_effort", `"low"`), gone: "reasoning_effort",
		},
		{
			name: "stop", refusal: refusal("Unsupported parameter: 'stop' is not supported with this model.", "stop"),
			stop: []string{"PAUSE"}, gone: "stop",
		},
		{
			name: "old server", refusal: refusal("body.max_completion_tokens: Extra inputs are not permitted", ""),
			options: opts("max_completion_tokens", "9"), gone: "max_completion_tokens", has: `"max_tokens":9`,
		},
		{
			name: "json mode", refusal: refusal("'json_object' is not supported by this model", "response_format"),
			json: true, gone: "response_format",
		},
		{
			name: "developer", refusal: refusal("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "messages[0].role"),
			has: `"role":"developer"`,
		},
		{
			name: "no system role", refusal: refusal("System role not supported", ""),
			has: `[{"role":"user","content":"Reply with JSON.\n\nHello"}]`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := llmtest.Server(t, llmtest.Replies(test.refusal, llmtest.Text("Hi"), llmtest.Text("Hi")))
			client, waits := newClient(t, server, nil)
			r := stepRequest()
			r.Options, r.Stop, r.JSON = test.options, test.stop, test.json
			for range 2 {
				if _, err := client.Complete(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			requests := server.Requests()
			if len(requests) != 3 || len(*waits) != 0 {
				t.Fatalf("%d requests and waits %v, want 3 and none", len(requests), *waits)
			}
			for _, req := range requests[1:] {
				var body bytes.Buffer
				for name, v := range req.Body {
					body.WriteString(`"` + name + `":` + string(v) + "\n")
				}
				if _, ok := req.Body[test.gone]; ok || !strings.Contains(body.String(), test.has) {
					t.Errorf("body lacks %s or still has %s:\n%s", test.has, test.gone, body.String())
				}
			}
		})
	}
}

// A value that is out of bounds is the task's mistake: it is reported, not dropped in silence.
func TestBadValueIsNotDropped(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(llmtest.Raw(400, `{"error":{"message":"temperature must be between 0 and 2","param":"temperature"}}`)))
	client, _ := newClient(t, server, nil)
	r := stepRequest()
	r.Options = map[string]json.RawMessage{"temperature": json.RawMessage("9")}
	_, err := client.Complete(t.Context(), r)
	if me := modelError(t, err); me.Cause != llm.CauseRequestRejected || !strings.Contains(me.Message, "between 0 and 2") {
		t.Error(me)
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestBackoffDoublesWithinPatience(t *testing.T) {
	bounds := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
	for range 20 {
		server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return llmtest.Raw(503, "") })
		client, waits := newClient(t, server, func(c *llm.Config) { c.Patience = time.Minute })
		_, err := client.Complete(t.Context(), stepRequest())
		if me := modelError(t, err); !me.Passing || me.After != 0 || me.Cause != llm.CauseServerError {
			t.Fatal(me)
		}
		if n := len(server.Requests()); n != 5 || len(*waits) != 4 {
			t.Fatalf("%d requests, waits %v, want 5 and 4", n, *waits)
		}
		for i, w := range *waits {
			if w < 0 || w > bounds[i] {
				t.Errorf("wait %d is %v, want at most %v", i+1, w, bounds[i])
			}
		}
	}
}

func TestFallbackModels(t *testing.T) {
	server := llmtest.Server(t, func(r llmtest.Request) llmtest.Reply {
		switch r.Model {
		case "gone":
			return llmtest.Raw(404, `{"error":{"message":"no","code":"model_not_found"}}`)
		case "busy":
			return llmtest.Reply{Status: 429, Header: map[string]string{"Retry-After": "90"}, Body: new(string)}
		}
		return llmtest.Text("from " + r.Model)
	})
	ask := func(conf func(*llm.Config), model string, fallback ...string) (loop.ModelReply, error) {
		client, _ := newClient(t, server, conf)
		r := stepRequest()
		r.Model, r.Fallback = model, fallback
		return client.Complete(t.Context(), r)
	}
	reply, err := ask(nil, "gone", "busy", "third")
	if err != nil || reply.Text != "from third" {
		t.Errorf("reply %q, error %v, want one from third", reply.Text, err)
	}
	reply, err = ask(func(c *llm.Config) { c.Model, c.Fallback = "busy", []string{"spare"} }, "")
	if err != nil || reply.Text != "from spare" {
		t.Errorf("reply %q, error %v, want one from spare", reply.Text, err)
	}
	_, err = ask(nil, "gone", "busy")
	me := modelError(t, err)
	if !me.Passing || me.After < 90*time.Second || me.Cause != llm.CauseRateLimit || !strings.Contains(me.Message, "model gone: model_not_found") {
		t.Errorf("%+v, want the one that may pass, and what became of the other", me)
	}
}

func TestRaisedLimitThatIsRefusedKeepsTheCutReply(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(
		llmtest.Reply{Text: "Once upon", Finish: "length"},
		llmtest.Raw(400, `{"error":{"message":"max_tokens is too large: 4096"}}`)))
	client, _ := newClient(t, server, nil)
	reply, err := client.Complete(t.Context(), stepRequest())
	if err != nil {
		t.Fatal(err)
	}
	if reply.Text != "Once upon" || !reply.Truncated {
		t.Errorf("reply %+v, want the cut text, marked", reply)
	}
}

func TestUsageOfBothTriesIsCounted(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(
		llmtest.Reply{Text: "Once", Finish: "length", Prompt: 10, Output: 5}, llmtest.Reply{Text: "Once more", Prompt: 10, Output: 6}))
	client, _ := newClient(t, server, nil)
	reply, err := client.Complete(t.Context(), stepRequest())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(loop.Usage{PromptTokens: 20, CompletionTokens: 11}, reply.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestOddBodies(t *testing.T) {
	tests := []struct {
		name    string
		reply   llmtest.Reply
		cause   string
		passing bool
		said    string
	}{
		{"huge nothing", llmtest.Raw(200, strings.Repeat(" ", 5<<20)), llm.CauseServerError, true, "white space"},
		{"huge page", llmtest.Raw(200, "<html>"+strings.Repeat("x", 5<<20)), llm.CauseEndpointNotOpenAI, false, "web page"},
		{"huge garbage", llmtest.Raw(200, `{"x":"`+strings.Repeat("x", 5<<20)), llm.CauseEndpointNotOpenAI, false, "no choices"},
		{"huge error", llmtest.Raw(500, strings.Repeat("x", 5<<20)), llm.CauseServerError, true, "xxx"},
		{"empty", llmtest.Raw(200, ""), llm.CauseServerError, true, "empty"},
		{"garbage", llmtest.Raw(200, "pong"), llm.CauseEndpointNotOpenAI, false, "pong"},
		{"other json", llmtest.Raw(200, `{"status":"ok"}`), llm.CauseEndpointNotOpenAI, false, "without choices"},
		{"list", llmtest.Raw(200, `[1]`), llm.CauseEndpointNotOpenAI, false, "[1]"},
		{"redirect", llmtest.Reply{Status: 302, Header: map[string]string{"Location": "/login"}, Body: new(string)}, llm.CauseEndpointNotOpenAI, false, "/login"},
		{"wrong path", llmtest.Raw(404, `{"detail":"Not Found"}`), llm.CauseEndpointNotOpenAI, false, "OPENAI_BASE_URL"},
		{"error under 200", llmtest.Raw(200, `{"error":{"code":429,"message":"slow down"}}`), llm.CauseRateLimit, true, "slow down"},
		{"key echoed", llmtest.Raw(401, `{"error":{"message":"bad key sk-secret"}}`), llm.CauseAuth, false, "bad key [key]"},
		{"no credit", llmtest.Raw(402, `{"error":{"message":"Insufficient credits"}}`), llm.CauseQuota, false, "billing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return test.reply })
			client, _ := newClient(t, server, nil)
			_, err := client.Complete(t.Context(), stepRequest())
			me := modelError(t, err)
			if me.Cause != test.cause || me.Passing != test.passing || !strings.Contains(me.Message, test.said) {
				t.Errorf("%+v, want cause %s, passing %v, saying %q", me, test.cause, test.passing, test.said)
			}
			if strings.Contains(me.Message, "sk-secret") || len(me.Message) > 1000 {
				t.Errorf("the message shows the key or is too long: %s", me.Message)
			}
		})
	}
}

// It is repeated once, not as often as quick faults.
func TestAttemptTimeoutPasses(t *testing.T) {
	never := make(chan struct{})
	server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Wait: never} })
	client, _ := newClient(t, server, func(c *llm.Config) { c.Timeout = 20 * time.Millisecond })
	_, err := client.Complete(t.Context(), stepRequest())
	if me := modelError(t, err); !me.Passing || me.Cause != llm.CauseTransport || !strings.Contains(me.Message, "20ms") {
		t.Error(me)
	}
	if n := len(server.Requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

func TestCancelReturnsTheCause(t *testing.T) {
	never := make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("cancelled by a person")
	server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply {
		cancel(why)
		return llmtest.Reply{Wait: never}
	})
	client, _ := newClient(t, server, nil)
	r := stepRequest()
	r.Fallback = []string{"other"}
	if _, err := client.Complete(ctx, r); !errors.Is(err, why) {
		t.Errorf("error %v, want the context's cause", err)
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestConfigErrorsNameTheSetting(t *testing.T) {
	tests := []struct {
		conf llm.Config
		name string
	}{
		{llm.Config{}, "OPENAI_API_KEY"},
		{llm.Config{APIKey: "a b"}, "OPENAI_API_KEY"},
		{llm.Config{BaseURL: "localhost:11434"}, "OPENAI_BASE_URL"},
		{llm.Config{BaseURL: "http://h/v1/chat/completions"}, "OPENAI_BASE_URL"},
		{llm.Config{BaseURL: "http://u:p@h/v1"}, "OPENAI_BASE_URL"},
		{llm.Config{APIKey: "k", Model: " m"}, "--model"},
		{llm.Config{APIKey: "k", Fallback: []string{""}}, "--fallback-model"},
		{llm.Config{APIKey: "k", Timeout: -1}, "timeout"},
		{llm.Config{APIKey: "k", TokensPerMinute: -1}, "tokens per minute"},
		{llm.Config{APIKey: "k", Prices: map[string]llm.Price{"big": {PromptPerMillion: -1}}}, `"big"`},
	}
	for _, test := range tests {
		if _, err := llm.New(test.conf); err == nil || !strings.Contains(err.Error(), test.name) {
			t.Errorf("%+v: error %v, want one that names %s", test.conf, err, test.name)
		}
	}
	if _, err := llm.New(llm.Config{BaseURL: "http://localhost:11434/v1/"}); err != nil {
		t.Errorf("an endpoint without a key: %v", err)
	}
}
