package llm_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

// checkOversize checks a reply that is longer than is read: it is told as that, not as a failure, and nobody can take it for
// a whole one.
func checkOversize(t *testing.T, reply loop.ModelReply, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !reply.Oversize || reply.Truncated || len(reply.Text) > plan.MaxReply+8 || reply.Calls != nil || reply.Usage.Total() == 0 {
		t.Errorf("oversize %v, truncated %v, %d bytes of text, %d calls, usage %+v", reply.Oversize, reply.Truncated, len(reply.Text),
			len(reply.Calls), reply.Usage)
	}
}

// Replies that are too long, in one piece and streamed, with their end within what is read and beyond it.
func TestRepliesThatAreTooLong(t *testing.T) {
	const beyond = 5 << 20
	for name, reply := range map[string]llmtest.Reply{
		"text":                 {Text: strings.Repeat("Grüezi ", plan.MaxReply/7)},
		"escaped text":         {Text: strings.Repeat("\u0001", plan.MaxReply+1)},
		"endless text":         {Text: strings.Repeat("a \"word\" \\ 🙂\n", beyond/16)},
		"arguments":            {Calls: []llmtest.Call{{ID: "a", Name: "n", Arguments: `"` + strings.Repeat("x", plan.MaxReply) + `"`}}},
		"endless arguments":    {Calls: []llmtest.Call{{ID: "a", Name: "n", Arguments: `"` + strings.Repeat("x", beyond) + `"`}}},
		"cut off at the limit": {Text: strings.Repeat("x", plan.MaxReply+1), Finish: "length"},
	} {
		t.Run(name, func(t *testing.T) {
			server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return reply })
			client, _ := newClient(t, server, nil)
			both(t, func(t *testing.T, stream func(*loop.ModelRequest) *pieces) {
				r := stepRequest()
				r.Tools = []loop.ToolSpec{{Name: "n"}}
				p := stream(&r)
				got, err := client.Complete(t.Context(), r)
				if name == "cut off at the limit" {
					got.Truncated = false
				}
				checkOversize(t, got, err)
				if p != nil {
					p.check(t, got, err)
				}
				if begins := strings.TrimSuffix(got.Text, "…"); !strings.HasPrefix(reply.Text, begins) || len(begins) < min(len(reply.Text), 40<<10) {
					t.Errorf("%d bytes of text, which are not the beginning of the reply: %.40q", len(got.Text), got.Text)
				}
			})
			if n := len(server.Requests()); n != 2 {
				t.Errorf("%d requests, want one for each call", n)
			}
		})
	}
}

// Reasoning is not the reply: it may be longer, and where it never ends the reply is too long.
func TestLongReasoning(t *testing.T) {
	body := func(size int) string {
		return `{"model":"m","choices":[{"message":{"reasoning_content":"` + strings.Repeat("x", size) +
			`","content":"Hi"},"finish_reason":"stop"}]}`
	}
	for size, oversize := range map[int]bool{1 << 20: false, 5 << 20: true} {
		server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return llmtest.Raw(http.StatusOK, body(size)) })
		client, _ := newClient(t, server, nil)
		reply, err := client.Complete(t.Context(), stepRequest())
		switch {
		case oversize && (err != nil || !reply.Oversize):
			t.Errorf("%d bytes of reasoning: %+v, %v", size, reply, err)
		case !oversize && (err != nil || reply.Text != "Hi" || reply.Oversize):
			t.Errorf("%d bytes of reasoning: %+v, %v", size, reply, err)
		}
	}
}

// A whole response without an end is read up to its bound.
func TestEndlessResponseEnds(t *testing.T) {
	client, err := llm.New(llm.Config{BaseURL: "http://model/v1", Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(`{"choices":[{"message":{"content":"`), &endless{piece: "and so on "})
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Complete(t.Context(), stepRequest())
	checkOversize(t, reply, err)
	if !strings.HasPrefix(reply.Text, "and so on and so on") {
		t.Errorf("text %.40q", reply.Text)
	}
}
