package loop_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// optionalTool has an argument that may be left out, and no use for null.
func optionalTool() tools.Tool {
	return tools.Tool{
		Spec: loop.ToolSpec{
			Name: "look", Description: "looks", Effect: loop.EffectRead,
			Schema: json.RawMessage(`{"type":"object","required":["at"],"properties":{"at":{"type":"string"},"deep":{"type":"boolean"}}}`),
		},
		Run: func(_ context.Context, i loop.Invocation) (any, error) { return json.RawMessage(i.Arguments), nil },
	}
}

// freeTool takes any object.
func freeTool() tools.Tool {
	return tools.Tool{
		Spec: loop.ToolSpec{Name: "free", Description: "takes anything", Effect: loop.EffectRead, Schema: json.RawMessage(`{"type":"object"}`)},
		Run:  func(_ context.Context, i loop.Invocation) (any, error) { return json.RawMessage(i.Arguments), nil },
	}
}

const closedMessage = `{"type": "create_plan", "thought": "t", "plan": [{"step": "a", "status": "pending", "result": null}, ` +
	`{"step": "b", "status": "pending", "result": null}], "calls": null, "question": null, "answer_schema": null, "answer": null}`

// message is a plan_react message as a model writes it that is held to a strict schema.
func message(change func(map[string]any)) string {
	var msg map[string]any
	if err := json.Unmarshal([]byte(closedMessage), &msg); err != nil {
		panic(err)
	}
	change(msg)
	b, err := json.Marshal(msg)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func calling(tool string, args map[string]any) string {
	return message(func(msg map[string]any) {
		msg["type"], msg["calls"] = "tool_call", []any{map[string]any{"name": tool, "arguments": args}}
	})
}

func answering() string {
	return message(func(msg map[string]any) {
		msg["type"], msg["answer"] = "final_answer", "42"
		for _, s := range msg["plan"].([]any) {
			s.(map[string]any)["status"], s.(map[string]any)["result"] = "done", "r"
		}
	})
}

// form is the response_format of a request.
type form struct {
	Type   string `json:"type"`
	Schema struct {
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	} `json:"json_schema"`
}

func formOf(t *testing.T, q llmtest.Request) form {
	t.Helper()
	var f form
	if err := json.Unmarshal(q.Body["response_format"], &f); err != nil {
		t.Fatalf("response_format %s: %v", q.Body["response_format"], err)
	}
	return f
}

// TestSchemasOfReplies runs each strategy with replies that satisfy the schemas it asks for: what a model held to them can
// say is what the run needs. The schema of a conversation is the same at every turn.
func TestSchemasOfReplies(t *testing.T) {
	for name, c := range map[string]struct {
		task    string
		replies []string
		names   string // of the schemas, a ! for strict ones
		want    string
	}{
		"strict": {
			`{"goal": "g", "tools": ["look", "calculate"]}`,
			[]string{
				closedMessage, calling("look", map[string]any{"at": "x", "deep": nil}), calling("calculate", map[string]any{"expression": "6*7"}),
				message(func(msg map[string]any) {
					msg["type"], msg["question"], msg["answer_schema"] = "ask_user", "How many?", map[string]any{"type": "integer"}
				}), answering(),
			},
			"message! message! message! message! message!",
			"accepted facts plan call observation call observation thought question reply thought answer",
		},
		"no tools": {`{"goal": "g", "tools": []}`, []string{closedMessage, answering()}, "message! message!", "accepted facts plan thought answer"},
		"free": {
			`{"goal": "g", "tools": ["free", "calculate"]}`,
			[]string{closedMessage, calling("free", map[string]any{"any": []any{1}}), answering()},
			"message message message", "accepted facts plan call observation thought answer",
		},
		"plan_execute": {
			`{"goal": "g", "strategy": "plan_execute", "tools": ["look", "calculate"]}`,
			[]string{
				`{"type": "create_plan", "thought": "t", "plan": [{"id": "1", "tool": "calculate", "args": {"expression": "6*7"}, "after": [], "open": []},
					{"id": "2", "tool": "look", "args": {}, "after": ["1"], "open": ["at"]}]}`,
				`{"type": "fill", "fields": {"at": "there"}}`, finished,
			},
			"plan fill! answer!", "accepted facts plan call observation call observation thought answer",
		},
		"plan_act_reflect": {
			`{"goal": "g", "strategy": "plan_act_reflect", "tools": ["look"], "model_options": {"native_tools": false}}`,
			[]string{
				`{"type": "tool_call", "thought": "t", "calls": [{"name": "look", "arguments": {"at": "x", "deep": true}}], "answer": null}`,
				`{"done": true, "guidance": ""}`, finished,
			},
			"move! verdict! answer!", "accepted facts call observation reflection thought answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p prompts
			r := newRig(t, p.keep(say(c.replies...)), optionalTool(), freeTool())
			conf := r.config()
			r.start(conf)
			r.submit("a", c.task)
			if strings.Contains(c.want, "question") {
				q := r.until("a", "question").Data.(loop.Question)
				r.reply("a", `{"question": "`+q.Question+`", "text": "7"}`)
			}
			wantTypes(t, r.untilClosed("a"), c.want)
			var names []string
			schemas := map[string]string{}
			for i, q := range p.all() {
				f := formOf(t, q)
				name := f.Schema.Name
				if f.Schema.Strict {
					name += "!"
				}
				names = append(names, name)
				if before, seen := schemas[name]; seen && before != string(f.Schema.Schema) {
					t.Errorf("the schema of request %d is another than before:\n%s", i+1, cmp.Diff(before, string(f.Schema.Schema)))
				}
				schemas[name] = string(f.Schema.Schema)
				problems, err := conf.Tools.Validate(f.Schema.Schema, json.RawMessage(c.replies[i]))
				if err != nil || len(problems) > 0 {
					t.Errorf("reply %d does not satisfy the schema: %v %v\n%s", i+1, problems, err, f.Schema.Schema)
				}
			}
			if got := strings.Join(names, " "); got != c.names {
				t.Errorf("schemas %s, want %s", got, c.names)
			}
		})
	}
}

// TestSchemaThatIsRefused: an endpoint that does not take schemas is asked without from then on, by all runs. The prompt says
// the same in words anyway, so it does not grow.
func TestSchemaThatIsRefused(t *testing.T) {
	var p prompts
	script := say(planned, answered)
	r := newRig(t, p.keep(func(q llmtest.Request) llmtest.Reply {
		if strings.Contains(string(q.Body["response_format"]), "json_schema") {
			return llmtest.Raw(http.StatusBadRequest, `{"error":{"message":"response_format of type json_schema is not supported by this model"}}`)
		}
		return script(q)
	}))
	r.start(r.config())
	for _, id := range []string{"a", "b"} {
		r.submit(id, `{"goal": "g"}`)
		wantTypes(t, r.untilClosed(id), "accepted facts plan thought answer")
	}
	var types []string
	for _, q := range p.all() {
		types = append(types, formOf(t, q).Type)
	}
	if diff := cmp.Diff([]string{"json_schema", "json_object", "json_object", "json_object", "json_object"}, types); diff != "" {
		t.Error(diff)
	}
	all := p.all()
	if first, second := all[0].Messages[0].Content, all[1].Messages[0].Content; first != second {
		t.Errorf("the prompt is another without the schema:\n%s", cmp.Diff(first, second))
	}
}
