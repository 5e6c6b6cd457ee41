package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// helper is a tool of which there are several versions.
func helper(name, description, schema string) tools.Tool {
	return tools.Tool{
		Spec: loop.ToolSpec{Name: name, Description: description, Schema: json.RawMessage(schema), Effect: loop.EffectRead},
		Run:  func(context.Context, loop.Invocation) (any, error) { return "helped", nil },
	}
}

// counted counts what is stored, and fails where it is told to.
type counted struct {
	loop.Catalogues
	fail bool
	mu   sync.Mutex
	puts []string
}

func (c *counted) PutCatalogue(ctx context.Context, digest string, data []byte) error {
	if c.fail {
		return errors.New("no room")
	}
	c.mu.Lock()
	c.puts = append(c.puts, digest)
	c.mu.Unlock()
	return c.Catalogues.PutCatalogue(ctx, digest, data)
}

const anyText = `{
  "type": "object",
  "properties": {"text": {"type": "string"}}
}`

// TestAPromptStaysTheSameWhereToolsChange: a run goes on with what the tools said when it began, on a worker whose tools
// say something else, take other arguments, or are gone. What is the same can be called, what is not fails in words.
func TestAPromptStaysTheSameWhereToolsChange(t *testing.T) {
	t.Parallel()
	script := converse(planned, asks, call("reworded", `{"text": "x"}`), call("changed", `{"text": "x"}`), call("changed", `{"text": 1}`),
		call("gone", `{"text": "x"}`), answered)
	var p prompts
	r := newRig(t, p.keep(script), helper("reworded", "Helps.", anyText), helper("changed", "Changes.", anyText), helper("gone", "Goes.", anyText))
	s := &sent{Model: r.model}
	r.model = s
	before := r.tools
	first := r.start(r.config())
	r.submit("a", `{"goal": "g", "limits": {"max_steps": 20}}`)
	accepted := r.until("a", "accepted").Data.(loop.Accepted)
	r.until("a", "question")
	first.stop()

	r.tools = append(before[:len(before)-3:len(before)-3], helper("reworded", "Helps <b>otherwise</b>.", anyText),
		helper("changed", "Changes.", `{"type": "object", "properties": {"number": {"type": "number"}}, "additionalProperties": false}`))
	second := r.start(r.config())
	r.reply("a", `{"text": "200"}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts plan thought question reply call observation call observation rejection call observation thought answer")
	for n, want := range map[int]string{8: "helped", 10: "changed since this run began", 13: `there is no tool "gone"`} {
		if o := events[n-1].Data.(loop.Observation); !strings.Contains(strings.ReplaceAll(string(o.Result), `\"`, `"`), want) {
			t.Errorf("event %d is %s %s, want %s", n, o.Status, o.Result, want)
		}
	}
	opening := s.to("a")[0].Messages[0].Content
	for turn, q := range s.to("a") {
		if q.Messages[0].Content != opening {
			t.Errorf("at turn %d the run was shown other tools:\n%s", turn+1, q.Messages[0].Content)
		}
	}
	madeAgain(t, second, s, "a")

	r.submit("b", `{"goal": "g", "limits": {"max_steps": 20}}`)
	r.until("b", "question")
	if b := r.until("b", "accepted").Data.(loop.Accepted); b.Catalogue == accepted.Catalogue || b.Catalogue == "" || accepted.Catalogue == "" {
		t.Errorf("the runs name the catalogues %q and %q", accepted.Catalogue, b.Catalogue)
	}
	if text := s.to("b")[0].Messages[0].Content; !strings.Contains(text, "Helps <b>otherwise</b>.") || strings.Contains(text, "gone") {
		t.Errorf("a new run is shown %s", text)
	}
}

// TestACatalogueIsStoredOnce: a worker stores it once, and no run costs a write, nor one that has some of the tools only.
func TestACatalogueIsStoredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, answered))
	var stored []string
	for range 2 {
		c := r.config()
		kept := &counted{Catalogues: r.bus}
		c.Catalogues = kept
		w := r.start(c)
		names := []string{"a", "b", "c", "d"}
		for i, id := range names {
			names[i] = id + c.Name
			r.submit(names[i], []string{`{"goal": "g"}`, `{"goal": "g", "tools": ["calculate"]}`}[i%2])
		}
		for _, id := range names {
			if a := r.untilClosed(id)[0].Data.(loop.Accepted); a.Catalogue == "" {
				t.Errorf("run %s names no catalogue", id)
			}
		}
		w.stop()
		stored = append(stored, kept.puts...)
	}
	if len(stored) != 2 || stored[0] != stored[1] { // once by each worker, for all it knows
		t.Errorf("stored were %v", stored)
	}
}

// TestARunWithoutItsCatalogueGoesOn: one of an earlier version that names none, one whose catalogue is gone, and one that
// began when none could be stored. Each says so where its prompt is looked at.
func TestARunWithoutItsCatalogueGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, converse(planned, answered))
	w := r.start(r.config())
	r.submit("whole", `{"goal": "g"}`)
	r.untilClosed("whole")
	accepted := r.events("whole")[0]
	r.begin("old", accepted, func(a *loop.Accepted) { a.Catalogue = "" })
	r.begin("gone", accepted, func(a *loop.Accepted) { a.Catalogue = strings.Repeat("0", 64) })
	r.untilClosed("old")
	r.untilClosed("gone")
	w.stop()

	c := r.config()
	c.Catalogues = &counted{Catalogues: r.bus, fail: true}
	w = r.start(c)
	r.submit("unstored", `{"goal": "g"}`)
	if a := r.untilClosed("unstored")[0].Data.(loop.Accepted); a.Catalogue != "" {
		t.Errorf("a run names the catalogue %s, which could not be stored", a.Catalogue)
	}
	w.stop()
	w = r.start(r.config())
	for id, want := range map[string]string{"whole": "", "old": "was not kept", "gone": "can't be read any more", "unstored": "was not kept"} {
		v, err := w.Prompt(t.Context(), run(id), 1)
		if err != nil || (v.Note == "") != (want == "") || !strings.Contains(v.Note, want) || !strings.Contains(v.Messages[0].Content, "calculate") {
			t.Errorf("the prompt of %s says %q, %v", id, v.Note, err)
		}
	}
}

// Runs of one worker that were offered different tools are each told of their own, whichever came first.
func TestRunsAreToldOfTheirOwnTools(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"all", "one", "none"}, {"none", "one", "all"}} {
		r := newRig(t, func(llmtest.Request) llmtest.Reply { return llmtest.Text("{}") })
		s := &sent{Model: r.model}
		r.model = s
		r.start(r.config())
		for _, strategy := range loop.Strategies() {
			for _, which := range order {
				id := strategy + "-" + which
				tools := map[string]string{"all": ``, "one": `, "tools": ["calculate"]`, "none": `, "tools": []`}[which]
				r.submit(id, fmt.Sprintf(`{"goal": "g", "strategy": %q%s}`, strategy, tools))
				r.untilClosed(id) // nobody can use what the model says
				q := s.to(id)[0]
				told := textOf(q)
				if q.Schema != nil {
					told += string(q.Schema.Schema)
				}
				for _, tool := range q.Tools {
					told += tool.Name
				}
				if knows := strings.Contains(told, "current_time"); knows != (which == "all") {
					t.Errorf("after %v: %s is told of the tool current_time: %t", order, id, knows)
				}
				if knows := strings.Contains(told, "calculate"); knows != (which != "none") {
					t.Errorf("after %v: %s is told of the tool calculate: %t", order, id, knows)
				}
			}
		}
	}
}
