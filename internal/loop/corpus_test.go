package loop_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// oddReply is one file of the corpus of package llm: what a model says, and what must come of it.
type oddReply struct {
	Kind    string          `json:"kind"`
	Context string          `json:"context"`
	Input   json.RawMessage `json:"input"`
	Expect  string          `json:"expect"`
	AlsoOK  []string        `json:"also_ok"`
	Detail  struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"expect_detail"`
}

func oddReplies(t *testing.T) map[string]oddReply {
	t.Helper()
	files, err := filepath.Glob("../llm/testdata/corpus/*.json")
	if err != nil {
		t.Fatal(err)
	}
	replies := map[string]oddReply{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r oddReply
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if r.Kind == "content" {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			replies["J"+name] = r
		}
	}
	if len(replies) != 58 {
		t.Fatalf("%d replies, want 58", len(replies))
	}
	return replies
}

// corpusTools are the tools of every case.
func corpusTools() []tools.Tool {
	tool := func(name, schema string) tools.Tool {
		return tools.Tool{
			Spec: loop.ToolSpec{Name: name, Description: name, Effect: loop.EffectRead, Schema: json.RawMessage(schema)},
			Run:  func(context.Context, loop.Invocation) (any, error) { return "done", nil },
		}
	}
	return []tools.Tool{
		tool("search", `{"type":"object","additionalProperties":false,"required":["query"],"properties":{"query":{"type":"string"},"max_results":{"type":"integer"}}}`),
		tool("calc", `{"type":"object","additionalProperties":false,"required":["expr"],"properties":{"expr":{"type":"string"}}}`),
		tool("send_email", `{"type":"object","additionalProperties":false,"required":["to","subject","body"],"properties":{"to":{"type":"string"},"subject":{"type":"string"},"body":{"type":"string"}}}`),
		tool("now", `{"type":"object","additionalProperties":false,"properties":{}}`),
	}
}

// eventOf is the event that records an accepted message.
var eventOf = map[string]string{
	"create_plan": "plan", "update_plan": "plan", "tool_call": "call", "reasoning_step": "thought", "ask_user": "thought", "final_answer": "thought",
}

// TestCorpusThroughTheEngine lets a scripted server say every odd reply to a run of a whole engine, by the real client, in one
// piece and streamed, and looks at the event that records it.
func TestCorpusThroughTheEngine(t *testing.T) {
	const lookUp = `{"type": "create_plan", "thought": "t", "plan": [{"step": "Look it up", "status": "pending", "result": null}, ` +
		`{"step": "Answer", "status": "pending", "result": null}]}`
	cases := oddReplies(t)
	for name, stream := range map[string]func(loop.RunID, int, string){"whole": nil, "streamed": func(loop.RunID, int, string) {}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(q llmtest.Request) llmtest.Reply {
				_, id, _ := strings.Cut(q.Header.Get("X-Ratchet-Run"), "/")
				script := cases[id].script(t, lookUp)
				turn := 0 // by the prompt, so that a call that is repeated gets the same reply
				for _, msg := range q.Messages {
					if msg.Role == "assistant" {
						turn++
					}
				}
				if turn >= len(script) {
					return llmtest.Raw(400, `{"error": {"message": "the script is over"}}`)
				}
				return llmtest.Text(script[turn])
			}, corpusTools()...)
			r.tools = corpusTools()
			conf := r.config()
			conf.Stream = stream
			r.start(conf)
			for id, c := range cases {
				strategy := "plan_react"
				if c.Context == "dag" {
					strategy = "plan_execute"
				}
				r.submit(id, `{"goal": "g", "strategy": "`+strategy+`"}`)
				c.check(t, r, id)
			}
		})
	}
}

// script is what the model says to a run of the case.
func (o oddReply) script(t *testing.T, before string) []string {
	var text string
	if err := json.Unmarshal(o.Input, &text); err != nil {
		t.Errorf("the input is no text: %v", err)
	}
	if o.Context == "second" {
		return []string{before, text}
	}
	return []string{text}
}

func (o oddReply) check(t *testing.T, r *rig, id string) {
	t.Helper()
	at := len(o.script(t, "")) + 1 // after accepted, facts and the plan before it
	var events []loop.Event
	r.eventually("the reply of "+id, func() bool {
		events = r.events(id)
		return len(events) > at
	})
	got, outcome := events[at], "accept"
	if got.Type() == "rejection" {
		outcome = "reject"
	}
	switch {
	case outcome != o.Expect && !slices.Contains(o.AlsoOK, outcome):
		t.Errorf("%s: %s, want %s: %+v", id, outcome, o.Expect, got.Data)
	case outcome == "accept" && o.Context != "dag" && got.Type() != eventOf[o.Detail.Type]:
		t.Errorf("%s: recorded as %s, want %s", id, got.Type(), eventOf[o.Detail.Type])
	}
	call, called := got.Data.(loop.Call)
	if called && o.Detail.Name != "" && (len(call.Calls) != 1 || call.Calls[0].Tool != o.Detail.Name) {
		t.Errorf("%s: calls %+v, want one of %s", id, call.Calls, o.Detail.Name)
	}
}
