package llm_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

// corpusCase is one file of testdata/corpus. The kind content is about the reading of replies; here the kinds http and sse
// are driven, each case with a response and through the real client.
type corpusCase struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Input struct {
		Status    int               `json:"status"`
		Headers   map[string]string `json:"headers"`
		Body      string            `json:"body"`
		Transport string            `json:"transport"`
		Close     string            `json:"close"`
	} `json:"input"`
	Expect string   `json:"expect"`
	AlsoOK []string `json:"also_ok"`
	Detail struct {
		Type   string `json:"type"`
		Answer string `json:"answer"`
		Name   string `json:"name"`
		Cause  string `json:"cause"`
		WaitMS int64  `json:"wait_ms"`
		Resend string `json:"resend"`
	} `json:"expect_detail"`
}

// settled names the cases in which something other than the first choice was settled on.
var settled = map[string]string{
	"J1-138": "reject", // what the model wrote is in the error: it is the reply
	"J1-144": "fail",   // a server that cut the prompt will cut it again
}

const good = `{"type":"final_answer","thought":"t","plan":[{"step":"a","status":"done","result":"r"}],"answer":"good"}`

// outcome is what the engine makes of a call.
func outcome(t *testing.T, requests int, reply loop.ModelReply, err error) string {
	t.Helper()
	var me *loop.ModelError
	switch {
	case errors.As(err, &me) && me.Passing:
		return "retry"
	case errors.As(err, &me):
		return "fail"
	case err != nil:
		t.Fatalf("the error is not a ModelError: %v", err)
	case requests > 1:
		return "retry"
	}
	var m struct{ Type, Answer string }
	if json.Unmarshal([]byte(reply.Text), &m) != nil || m.Type == "" {
		return "reject" // no message of the protocol
	}
	return "accept"
}

func corpus(t *testing.T, kind string) map[string]corpusCase {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]corpusCase{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c corpusCase
		var k struct{ Kind string }
		if err := json.Unmarshal(data, &k); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if k.Kind != kind {
			continue
		}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		cases[filepath.Base(file)] = c
	}
	return cases
}

func (c corpusCase) reply() llmtest.Reply {
	if c.Input.Status == 0 {
		return llmtest.Reply{Hangup: true}
	}
	header := map[string]string{}
	for name, value := range c.Input.Headers {
		header[name] = strings.ReplaceAll(value, "{{HTTP_DATE+12s}}", clock.Add(12*time.Second).Format(http.TimeFormat))
	}
	return llmtest.Reply{Status: c.Input.Status, Header: header, Body: &c.Input.Body, Cut: c.Input.Close == "reset"}
}

// request is what the case answers. shown checks what came of it in pieces, where it asks for some.
func (c corpusCase) request(t *testing.T) (r loop.ModelRequest, shown func(reply loop.ModelReply, err error)) {
	r = stepRequest()
	r.JSON = true
	r.Schema = &loop.ReplySchema{Name: "message", Schema: json.RawMessage(`{"type":"object"}`)}
	r.Options = map[string]json.RawMessage{"max_tokens": json.RawMessage("500")}
	if c.Kind != "sse" {
		return r, func(loop.ModelReply, error) {}
	}
	p := &pieces{}
	r.Tokens = p.add
	return r, func(reply loop.ModelReply, err error) { p.check(t, reply, err) }
}

func TestCorpusSSE(t *testing.T) {
	cases := corpus(t, "sse")
	if len(cases) != 10 {
		t.Fatalf("%d sse cases, want 10", len(cases))
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Run("once", func(t *testing.T) { c.driveOnce(t) })
			t.Run("always", func(t *testing.T) { c.driveAlways(t) })
		})
	}
}

func TestCorpusHTTP(t *testing.T) {
	cases := corpus(t, "http")
	if len(cases) != 39 {
		t.Fatalf("%d http cases, want 39", len(cases))
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Run("once", func(t *testing.T) { c.driveOnce(t) })
			t.Run("always", func(t *testing.T) { c.driveAlways(t) })
		})
	}
}

// driveOnce serves the odd response once and good ones after it.
func (c corpusCase) driveOnce(t *testing.T) {
	server := llmtest.Server(t, func(r llmtest.Request) llmtest.Reply {
		if r.N == 1 {
			return c.reply()
		}
		return llmtest.Text(good)
	})
	client, waits := newClient(t, server, nil)
	request, shown := c.request(t)
	reply, err := client.Complete(t.Context(), request)
	shown(reply, err)
	requests := server.Requests()

	got := outcome(t, len(requests), reply, err)
	want := c.Expect
	if s, ok := settled[c.ID]; ok {
		want = s
		if s != c.Expect && !slices.Contains(c.AlsoOK, s) {
			t.Fatalf("settled on %q, which the case does not allow", s)
		}
	}
	if got != want {
		t.Fatalf("outcome %s, want %s (text %q, error %v)", got, want, reply.Text, err)
	}
	if got == "accept" {
		var m struct{ Type, Answer, Name string }
		if err := json.Unmarshal([]byte(reply.Text), &m); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(struct{ Type, Answer, Name string }{c.Detail.Type, c.Detail.Answer, c.Detail.Name}, m); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
	}
	var me *loop.ModelError
	switch {
	case errors.As(err, &me):
		c.checkError(t, me)
		if me.Passing && me.After < time.Duration(c.Detail.WaitMS)*time.Millisecond {
			t.Errorf("to wait %v, want %d ms at least", me.After, c.Detail.WaitMS)
		}
	case got == "retry":
		c.checkResend(t, client, server, *waits)
	}
}

func (c corpusCase) checkError(t *testing.T, me *loop.ModelError) {
	t.Helper()
	if c.Detail.Cause != "" && me.Cause != c.Detail.Cause {
		t.Errorf("cause %q, want %q: %s", me.Cause, c.Detail.Cause, me.Message)
	}
	if !strings.Contains(me.Message, "model m at http") {
		t.Errorf("the message does not say which model failed, and where: %s", me.Message)
	}
}

// checkResend looks at the second request: how long it waited, and what was changed in it.
func (c corpusCase) checkResend(t *testing.T, client *llm.Client, server *llmtest.Fake, waits []time.Duration) {
	t.Helper()
	requests := server.Requests()
	if len(requests) != 2 {
		t.Fatalf("%d requests, want 2", len(requests))
	}
	var waited time.Duration
	for _, w := range waits {
		waited += w
	}
	if waited < time.Duration(c.Detail.WaitMS)*time.Millisecond {
		t.Errorf("waited %v, want %d ms at least", waited, c.Detail.WaitMS)
	}
	first, second := requests[0].Body, requests[1].Body
	switch c.Detail.Cause {
	case llm.CauseOutputTruncated:
		if got := string(second["max_tokens"]); got != "1000" {
			t.Errorf("the raised limit is %s, want 1000", got)
		}
		return
	case llm.CauseRequestRejected:
	default:
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("not the same request again (-first +second):\n%s", diff)
		}
		return
	}
	if len(waits) != 0 {
		t.Errorf("waited %v before a changed request, which need not wait", waits)
	}
	changed := func(body map[string]json.RawMessage) bool {
		if strings.HasPrefix(c.Detail.Resend, "max_completion_tokens") {
			return string(body["max_completion_tokens"]) == "500" && body["max_tokens"] == nil
		}
		return string(body["response_format"]) == `{"type":"json_object"}`
	}
	if changed(first) || !changed(second) {
		t.Errorf("resent %v, want %s", second, c.Detail.Resend)
	}
	request, _ := c.request(t)
	if _, err := client.Complete(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if third := server.Requests()[2].Body; !changed(third) {
		t.Errorf("the change was forgotten: %v", third)
	}
}

// driveAlways serves the odd response to every request: the call must end, within its bounds and with the right cause.
func (c corpusCase) driveAlways(t *testing.T) {
	server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return c.reply() })
	client, waits := newClient(t, server, nil)
	request, shown := c.request(t)
	reply, err := client.Complete(t.Context(), request)
	shown(reply, err)

	var waited time.Duration
	for _, w := range *waits {
		waited += w
	}
	if n := len(server.Requests()); n > 5 || waited > 5*time.Second {
		t.Errorf("%d requests and %v of waiting, want 5 and 5s at most", n, waited)
	}
	var me *loop.ModelError
	if !errors.As(err, &me) {
		if c.Expect == "retry" && !reply.Truncated {
			t.Errorf("text %q although every response was broken", reply.Text)
		}
		return
	}
	c.checkError(t, me)
	passing := c.Expect == "retry" && settled[c.ID] == "" && c.Detail.Resend == "" && c.Detail.Cause != llm.CauseOutputTruncated
	if me.Passing != passing {
		t.Errorf("passing %v, want %v: %s", me.Passing, passing, me.Message)
	}
}
