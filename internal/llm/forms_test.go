package llm_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

func refusal(message, param string) llmtest.Reply {
	body, err := json.Marshal(map[string]any{"error": map[string]any{"message": message, "param": param, "type": "invalid_request_error"}})
	if err != nil {
		panic(err)
	}
	return llmtest.Raw(http.StatusBadRequest, string(body))
}

func schemaRequest(schema string) loop.ModelRequest {
	r := stepRequest()
	r.JSON, r.Schema = true, &loop.ReplySchema{Name: "message", Schema: json.RawMessage(schema)}
	return r
}

// formsSent lists the response_format of each request, and whether the prompt holds the schema.
func formsSent(server *llmtest.Fake, schema string) []string {
	var forms []string
	for _, r := range server.Requests() {
		var f struct{ Type string }
		if raw := r.Body["response_format"]; raw != nil && json.Unmarshal(raw, &f) != nil {
			f.Type = string(raw)
		}
		form := f.Type
		if form == "" {
			form = "plain"
		}
		if strings.Contains(r.Messages[0].Content, schema) {
			form += ", schema in the prompt"
		}
		forms = append(forms, form)
	}
	return forms
}

func TestFormOfTheReply(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}}}`
	good := llmtest.Text(`{"a":"b"}`)
	tests := []struct {
		name    string
		replies []llmtest.Reply
		want    []string // of the requests of two calls
	}{
		{"taken", []llmtest.Reply{good, good}, []string{"json_schema", "json_schema"}},
		{
			"no schemas",
			[]llmtest.Reply{refusal("This response_format type is unavailable now", ""), good, good},
			[]string{"json_schema", "json_object, schema in the prompt", "json_object, schema in the prompt"},
		},
		{
			"no schemas, in other words",
			[]llmtest.Reply{refusal("Invalid value: 'json_schema'. Supported values are: 'text' and 'json_object'.", "response_format.type"), good, good},
			[]string{"json_schema", "json_object, schema in the prompt", "json_object, schema in the prompt"},
		},
		{
			"nothing of the kind",
			[]llmtest.Reply{
				refusal("Unsupported parameter: 'response_format' is not supported with this model", "response_format"),
				refusal("Unsupported parameter: 'response_format' is not supported with this model", "response_format"), good, good,
			},
			[]string{"json_schema", "json_object, schema in the prompt", "plain, schema in the prompt", "plain, schema in the prompt"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := llmtest.Server(t, llmtest.Replies(test.replies...))
			client, waits := newClient(t, server, nil)
			for range 2 {
				if _, err := client.Complete(t.Context(), schemaRequest(schema)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, formsSent(server, schema)); diff != "" {
				t.Errorf("forms (-want +got):\n%s", diff)
			}
			if len(*waits) != 0 {
				t.Errorf("waited %v for changed requests", *waits)
			}
		})
	}
}

func TestSchemaAsItIsSent(t *testing.T) {
	for _, strict := range []string{"true", "false"} {
		server := llmtest.Server(t, llmtest.Replies(llmtest.Text("{}")))
		client, _ := newClient(t, server, nil)
		r := schemaRequest(`{"type":"object","x-big":12345678901234567890}`)
		r.Schema.Strict = strict == "true"
		if _, err := client.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		want := `{"type":"json_schema","json_schema":{"name":"message","schema":{"type":"object","x-big":12345678901234567890},"strict":` + strict + `}}`
		if diff := cmp.Diff(want, string(server.Requests()[0].Body["response_format"])); diff != "" {
			t.Errorf("response_format (-want +got):\n%s", diff)
		}
	}
}

// A complaint about one schema is remembered for that schema: another is still tried, and the first not again.
func TestOneBadSchema(t *testing.T) {
	good := llmtest.Text("{}")
	server := llmtest.Server(t, llmtest.Replies(
		refusal("Invalid schema for response_format 'message': In context=(), 'additionalProperties' is required to be supplied and to be false.", "response_format"),
		good, good, good))
	client, _ := newClient(t, server, nil)
	for _, schema := range []string{`{"a":1}`, `{"b":2}`, `{"a":1}`} {
		if _, err := client.Complete(t.Context(), schemaRequest(schema)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"json_schema", "json_object, schema in the prompt", "json_schema", "json_object, schema in the prompt"}
	if diff := cmp.Diff(want, formsSent(server, `{"a":1}`)); diff != "" {
		t.Errorf("forms (-want +got):\n%s", diff)
	}
}

// An endpoint that takes schemas but no JSON mode still gets schemas.
func TestJSONModeRefusedSchemasTaken(t *testing.T) {
	server := llmtest.Server(t, llmtest.Replies(
		refusal("'response_format.type' must be 'json_schema' or 'text'", ""), llmtest.Text("{}"), llmtest.Text("{}")))
	client, _ := newClient(t, server, nil)
	r := stepRequest()
	r.JSON = true
	for _, r := range []loop.ModelRequest{r, schemaRequest(`{"a":1}`)} {
		if _, err := client.Complete(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"json_object", "plain", "json_schema"}, formsSent(server, `{"a":1}`)); diff != "" {
		t.Errorf("forms (-want +got):\n%s", diff)
	}
}

func TestStreamingThatIsRefused(t *testing.T) {
	tests := []struct {
		name    string
		refusal llmtest.Reply
		stream  string
		options string
	}{
		{"the count of tokens", refusal("Unrecognized request argument supplied: stream_options", ""), "true", ""},
		{"extra field", refusal("body.stream_options: Extra inputs are not permitted", ""), "true", ""},
		{"streams", refusal("Streaming is not supported for this model", ""), "false", ""},
		{"the parameter", refusal("Unsupported value: 'stream' does not support true with this model.", "stream"), "false", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := llmtest.Server(t, llmtest.Replies(test.refusal, llmtest.Text("Hi there, you"), llmtest.Text("Hi there, you")))
			client, _ := newClient(t, server, nil)
			for range 2 {
				p := &pieces{}
				r := stepRequest()
				r.Tokens = p.add
				reply, err := client.Complete(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				p.check(t, reply, err)
			}
			requests := server.Requests()
			if len(requests) != 3 {
				t.Fatalf("%d requests, want 3", len(requests))
			}
			for _, r := range requests[1:] {
				if string(r.Body["stream"]) != test.stream || string(r.Body["stream_options"]) != test.options {
					t.Errorf("stream %s and stream_options %s, want %s and %q", r.Body["stream"], r.Body["stream_options"], test.stream, test.options)
				}
			}
		})
	}
}

func TestNativeCalls(t *testing.T) {
	calls := []llmtest.Call{{ID: "c1", Name: "search", Arguments: `{"q": 12345678901234567890}`}, {ID: "c2", Name: "search", Arguments: `{"q": `}}
	for _, streamed := range []bool{false, true} {
		server := llmtest.Server(t, llmtest.Replies(llmtest.Reply{Text: "Let me look.", Calls: calls}))
		client, _ := newClient(t, server, nil)
		r := stepRequest()
		if streamed {
			r.Tokens = func(string) {}
		}
		r.Tools = []loop.ToolSpec{
			{Name: "search", Description: "Looks it up.", Schema: json.RawMessage(`{"type":"object","maximum":12345678901234567890}`)},
			{Name: "now"},
		}
		reply, err := client.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		want := []loop.NativeCall{
			{ID: "c1", Name: "search", Arguments: json.RawMessage(calls[0].Arguments)},
			{ID: "c2", Name: "search", Arguments: json.RawMessage(calls[1].Arguments)},
		}
		if diff := cmp.Diff(want, reply.Calls); diff != "" {
			t.Errorf("streamed %v: calls (-want +got):\n%s", streamed, diff)
		}
		if reply.Text != "Let me look." || reply.Truncated {
			t.Errorf("streamed %v: reply %+v", streamed, reply)
		}
		sent := `[{"type":"function","function":{"name":"search","description":"Looks it up.","parameters":{"type":"object","maximum":12345678901234567890}}},` +
			`{"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}]`
		if diff := cmp.Diff(sent, string(server.Requests()[0].Body["tools"])); diff != "" {
			t.Errorf("streamed %v: tools (-want +got):\n%s", streamed, diff)
		}
	}
}

// A model without native calls is asked once, fails for good in a way that can be told apart, and leaves it to a fallback.
func TestToolsThatAreRefused(t *testing.T) {
	for _, refusal := range []llmtest.Reply{
		llmtest.Raw(400, `{"error":{"message":"tiny:latest does not support tools","type":"api_error"}}`),
		llmtest.Raw(400, `{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","code":400}`),
		llmtest.Raw(500, `{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}`),
		llmtest.Raw(404, `{"error":{"message":"No endpoints found that support tool use.","code":404}}`),
		llmtest.Raw(400, `{"error":{"message":"Unsupported parameter: 'tools' is not supported with this model.","param":"tools"}}`),
	} {
		server := llmtest.Server(t, func(r llmtest.Request) llmtest.Reply {
			if r.Model == "m" && r.Body["tools"] != nil {
				return refusal
			}
			return llmtest.Text("from " + r.Model)
		})
		client, _ := newClient(t, server, nil)
		r := stepRequest()
		r.Tools = []loop.ToolSpec{{Name: "now"}}
		for range 2 {
			_, err := client.Complete(t.Context(), r)
			if me := modelError(t, err); me.Cause != llm.CauseToolsUnsupported || me.Passing {
				t.Errorf("%s: %+v", *refusal.Body, me)
			}
		}
		r.Fallback = []string{"other"}
		if reply, err := client.Complete(t.Context(), r); err != nil || reply.Text != "from other" {
			t.Errorf("reply %q, error %v, want one from the fallback", reply.Text, err)
		}
		r.Tools, r.Fallback = nil, nil
		if reply, err := client.Complete(t.Context(), r); err != nil || reply.Text != "from m" {
			t.Errorf("reply %q, error %v, want one without tools", reply.Text, err)
		}
		if n := len(server.Requests()); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	}
}

func TestCost(t *testing.T) {
	prices := map[string]llm.Price{"m": {PromptPerMillion: 2, CompletionPerMillion: 8}}
	server := llmtest.Server(t, llmtest.Replies(
		llmtest.Reply{Text: "Once", Finish: "length", Prompt: 1000, Output: 500}, llmtest.Reply{Text: "Once more", Prompt: 1000, Output: 1000},
		llmtest.Reply{Text: "Hi"}))
	client, _ := newClient(t, server, func(c *llm.Config) { c.Prices = prices })
	reply, err := client.Complete(t.Context(), stepRequest())
	if err != nil {
		t.Fatal(err)
	}
	want := loop.Usage{PromptTokens: 2000, CompletionTokens: 1500, CostUSD: 0.016}
	if diff := cmp.Diff(want, reply.Usage, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	r := stepRequest()
	r.Model = "without a price"
	if reply, err := client.Complete(t.Context(), r); err != nil || reply.Usage.CostUSD != 0 {
		t.Errorf("usage %+v, error %v, want no cost", reply.Usage, err)
	}
}
