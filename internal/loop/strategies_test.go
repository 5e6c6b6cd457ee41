package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/plan"
	"ratchet/internal/tools"
)

// steps writes a create_plan; each step is JSON.
func steps(list ...string) string {
	return `{"type": "create_plan", "thought": "t", "plan": [` + strings.Join(list, ", ") + `]}`
}

func step(id, tool, args, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"id": %q, "tool": %q, "args": %s%s}`, id, tool, args, more)
}

const (
	finished   = `{"type": "final_answer", "thought": "t", "answer": "It is 42."}`
	reacted    = "Thought: done\nFinal Answer: It is 42."
	verdictYes = `{"done": true}`
)

// prompts keeps all requests of the model.
type prompts struct {
	mu   sync.Mutex
	list []llmtest.Request
}

func (p *prompts) keep(script func(llmtest.Request) llmtest.Reply) func(llmtest.Request) llmtest.Reply {
	return func(q llmtest.Request) llmtest.Reply {
		p.mu.Lock()
		p.list = append(p.list, q)
		p.mu.Unlock()
		return script(q)
	}
}

func (p *prompts) all() []llmtest.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

// contain reports whether any request contains the text.
func (p *prompts) contain(text string) bool {
	return slices.ContainsFunc(p.all(), func(q llmtest.Request) bool { return strings.Contains(string(q.Body["messages"]), text) })
}

// observations returns status and result of each observation by the step or the call.
func observations(events []loop.Event) map[string]string {
	out := map[string]string{}
	step := map[string]string{}
	for _, e := range events {
		switch d := e.Data.(type) {
		case loop.Call:
			for _, c := range d.Calls {
				step[c.Call] = c.Call
				if c.Step != "" {
					step[c.Call] = c.Step
				}
			}
		case loop.Observation:
			id := d.Step
			if id == "" {
				id = step[d.Call]
			}
			out[id] = string(d.Status) + " " + string(d.Result)
		}
	}
	return out
}

// calls lists the calls of a run: step, tool and arguments.
func calls(events []loop.Event) (list []string) {
	for _, e := range events {
		if d, ok := e.Data.(loop.Call); ok {
			for _, c := range d.Calls {
				list = append(list, strings.TrimSpace(c.Step+" "+c.Tool+" "+string(c.Arguments)))
			}
		}
	}
	return list
}

func wantTypes(t *testing.T, events []loop.Event, want string) {
	t.Helper()
	if got := types(events); got != want {
		t.Fatalf("events are\n%s, want\n%s", got, want)
	}
}

func TestReact(t *testing.T) {
	var p prompts
	r := newRig(t, p.keep(say(
		"Thought: multiply\nAction: calculate\nAction Input: {\"expression\": \"6*7\"}\nPAUSE\nObservation: 41 of course\nFinal Answer: 41",
		"Thought: once more\nAction: calculate[6*8]",
		"Thought: broken\nAction: calculate\nAction Input: {\"expression\": \nPAUSE",
		"Action: no_such_tool[1]",
		"Thought: done\nFinal Answer: It is 42.",
	)))
	r.start(r.config())
	r.submit("a", `{"goal": "What is six times seven?", "strategy": "react"}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts call observation call observation rejection rejection thought answer")
	if diff := cmp.Diff([]string{`calculate {"expression":"6*7"}`, `calculate {"expression":"6*8"}`}, calls(events)); diff != "" {
		t.Error(diff)
	}
	if got := events[0].Data.(loop.Accepted).Prompt; got != "react/2" {
		t.Errorf("prompt version %s", got)
	}
	for _, q := range p.all() {
		if q.JSON || !slices.Equal(q.Stop, []string{"PAUSE"}) || q.Body["tools"] != nil {
			t.Errorf("JSON %t, stop %q, tools %s", q.JSON, q.Stop, q.Body["tools"])
		}
	}
	if p.contain("41 of course") {
		t.Error("an observation that the model made up was shown to it")
	}
	if last := p.all()[4].Last(); !strings.Contains(last, "Observation: ") || !strings.Contains(last, "no_such_tool") {
		t.Errorf("the unknown tool is answered with %q", last)
	}
}

func TestReactWithNativeCalls(t *testing.T) {
	var p prompts
	r := newRig(t, p.keep(llmtest.Replies(
		llmtest.Reply{Calls: []llmtest.Call{{ID: "x", Name: "calculate", Arguments: `{"expression": "6*7"}`}, {ID: "y", Name: "calculate", Arguments: `{"expression": "1+1"}`}}},
		llmtest.Reply{Calls: []llmtest.Call{{ID: "x", Name: "calculate", Arguments: `{"expression": `}}},
		llmtest.Text(reacted),
	)))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "react", "tools": ["calculate"], "model_options": {"native_tools": true, "temperature": 0}}`)
	wantTypes(t, r.untilClosed("a"), "accepted facts call observation observation rejection thought answer")
	body := p.all()[0].Body
	if body["native_tools"] != nil || body["tools"] == nil || string(body["temperature"]) != "0" {
		t.Errorf("the request has native_tools %s, tools %s", body["native_tools"], body["tools"])
	}
}

// injected is a courier's note that asks for what the person never asked for.
const tryRefund = "Action: refund_order[4420]"

func TestReactMayTryAndTheToolRefuses(t *testing.T) {
	r := newRig(t, say("Action: get_courier_note[4418]", tryRefund, "Final Answer: It was lost."))
	r.start(r.config())
	r.submit("a", `{"goal": "Where is my order 4418?", "strategy": "react", "vars": {"email": "ada@example.com"}}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts call observation call started observation thought answer")
	if got := observations(events)["c2"]; !strings.HasPrefix(got, `error "order 4420 belongs to another customer`) {
		t.Errorf("the refund: %s", got)
	}
}

// TestLockedMakesOnlyPlannedCalls: a fill reply that asks for another tool or field is refused, whatever the note says.
func TestLockedMakesOnlyPlannedCalls(t *testing.T) {
	r := newRig(t, say(
		steps(step("1", "get_courier_note", `{"order_id": "4418"}`, ""),
			step("2", "send_reply", `{"order_id": "4418"}`, `"after": ["1"], "open": ["text"]`)),
		`{"type": "tool_call", "name": "refund_order", "arguments": {"order_id": "4420"}}`,
		`{"type": "fill", "fields": {"text": "t", "order_id": "4420"}}`,
		`{"type": "fill", "fields": {"text": "It was lost."}}`,
		`{"type": "create_plan", "plan": [`+step("9", "refund_order", `{"order_id": "4420"}`, "")+`]}`,
		finished,
	))
	r.start(r.config())
	r.submit("a", `{"goal": "Where is my order 4418?", "strategy": "plan_execute", "vars": {"email": "ada@example.com"}}`)
	events := r.untilClosed("a")
	want := []string{`1 get_courier_note {"order_id":"4418"}`, `2 send_reply {"order_id":"4418","text":"It was lost."}`}
	if diff := cmp.Diff(want, calls(events)); diff != "" {
		t.Errorf("%s\n%s", diff, types(events))
	}
	wantTypes(t, events, "accepted facts plan call observation rejection rejection call started observation rejection thought answer")
}

func TestPlanExecute(t *testing.T) {
	var p prompts
	seen := make(chan string, 1)
	mail := tools.Tool{
		Spec: loop.ToolSpec{
			Name: "mail", Description: "mails", Effect: loop.EffectOnce,
			Schema: json.RawMessage(`{"type":"object","required":["to","text","total"],"properties":{"to":{"type":"string"},"text":{"type":"string"},"total":{"type":"number"}}}`),
		},
		Run: func(_ context.Context, c loop.Invocation) (any, error) {
			seen <- string(c.Arguments)
			return "sent to secret@example.org", nil
		},
	}
	r := newRig(t, p.keep(say(
		steps(step("1", "calculate", `{"expression": "6*7"}`, ""), step("2", "calculate", `{"expression": "1+1"}`, ""),
			step("3", "mail", `{"to": "$session.email", "total": "$1"}`, `"open": ["text"], "after": ["2"]`)),
		`{"type": "fill", "fields": {"text": 7}}`,
		`{"type": "fill", "fields": {"text": "The $1 is what you asked for."}}`,
		finished,
	)), mail)
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute", "vars": {"email": "secret@example.org"}}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts plan call observation observation rejection call started observation thought answer")
	if got, want := <-seen, `{"to":"secret@example.org","total":42,"text":"The $1 is what you asked for."}`; got != want {
		t.Errorf("mail got %s, want %s", got, want)
	}
	if p.contain("secret@example.org") {
		t.Error("the model was shown a value of the task")
	}
	for _, q := range p.all() {
		if (q.Header.Get("X-Ratchet-Purpose") == "fill") != strings.Contains(q.Last(), "text") && strings.Contains(q.Last(), "Open fields") {
			t.Errorf("purpose %s: %s", q.Header.Get("X-Ratchet-Purpose"), q.Last())
		}
	}
	first := events[2].Data.(loop.Plan)
	if !first.Created || len(first.Plan) != 3 || len(first.DAG) != 3 || first.Plan[0].Status != plan.Pending {
		t.Errorf("plan is %+v", first)
	}
	last := events[len(events)-2].Data.(loop.Thought).Plan
	if last[0].Status != plan.Done || last[0].Result != "42" || last[2].Status != plan.Done {
		t.Errorf("at the end the plan is %+v", last)
	}
}

func TestPlanExecuteNamesAllProblems(t *testing.T) {
	r := newRig(t, say(
		steps(step("1", "nope", `{}`, ""), step("2", "calculate", `{"expression": 7}`, `"after": ["3"]`), step("3", "calculate", `{"expression": "$9"}`, `"after": ["2"]`)),
		steps(step("1", "calculate", `{"expression": "6*7"}`, "")), finished,
	))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts rejection plan call observation thought answer")
	problem := events[2].Data.(loop.Rejection).Error
	for _, want := range []string{"no tool \"nope\"", "expression", "no step \"9\"", "circle"} {
		if !strings.Contains(problem, want) {
			t.Errorf("the rejection does not tell of %s: %s", want, problem)
		}
	}
}

// TestFailureIsolatesItsDownstream: what does not depend on the failed step goes on; a reference that leads nowhere and
// arguments of the wrong type are failures of their step.
func TestFailureIsolatesItsDownstream(t *testing.T) {
	r := newRig(t, say(
		steps(step("1", "get_temperature", `{"city": "Atlantis"}`, ""), step("2", "calculate", `{"expression": "6*7"}`, ""),
			step("3", "calculate", `{"expression": "$1.city"}`, ""), step("4", "calculate", `{"expression": "1"}`, `"after": ["3"]`),
			step("5", "calculate", `{"expression": "$2.nothing"}`, ""), step("6", "calculate", `{"expression": "$2"}`, ""),
			step("7", "calculate", `{"expression": "2"}`, `"after": ["2"]`)),
		finished,
	))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
	events := r.untilClosed("a")
	got := observations(events)
	for id, want := range map[string]string{
		"1": "error ", "2": "ok 42", "3": `skipped "Not run, because step 1 failed."`, "4": `skipped "Not run, because step 1 failed."`,
		"5": `error "The step was not called. step \"5\": The reference`, "6": `error "The step was not called. arguments.expression`, "7": "ok 2",
	} {
		if !strings.HasPrefix(got[id], want) {
			t.Errorf("step %s: %s, want %s", id, got[id], want)
		}
	}
	if n := len(calls(events)); n != 3 {
		t.Errorf("%d calls: %s", n, calls(events))
	}
}

// TestStepsStartTheMomentTheirInputsAreThere: a step runs while another one that it does not wait for still does.
func TestStepsStartTheMomentTheirInputsAreThere(t *testing.T) {
	started, release := make(chan string, 9), make(chan struct{})
	r := newRig(t, say(
		steps(step("1", "slow", `{}`, ""), step("2", "calculate", `{"expression": "6*7"}`, ""), step("3", "quick", `{}`, `"after": ["2"]`)), finished,
	), slowTool("slow", loop.EffectRead, started, release), tools.Tool{
		Spec: loop.ToolSpec{Name: "quick", Description: "lets slow go", Schema: json.RawMessage(`{"type":"object"}`), Effect: loop.EffectRead},
		Run:  func(context.Context, loop.Invocation) (any, error) { close(release); return "ok", nil },
	})
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
	wantTypes(t, r.untilClosed("a"), "accepted facts plan call observation call observation observation thought answer")
}

func noMonth(id, month string) string { return step(id, "load_sales", `{"month": "`+month+`"}`, "") }

const (
	retry  = `{"question": "q1", "value": {"action": "retry", "text": "Take July."}}`
	giveUp = `{"question": "q1", "value": {"action": "give_up"}}`
)

// TestReplans: a stubborn planner is asked three times for the rest of the plan, then a person.
func TestReplans(t *testing.T) {
	stubborn := steps(noMonth("1", "2025-08"))
	for name, c := range map[string]struct {
		task, reply string
		reason      loop.FailReason
		want        string
	}{
		"given up":     {`{"goal": "g", "strategy": "plan_execute", "locked": false}`, giveUp, loop.FailReplansExhausted, "question reply failed"},
		"tried again":  {`{"goal": "g", "strategy": "plan_execute", "locked": false}`, retry, "", "question reply plan call observation thought answer"},
		"nobody there": {`{"goal": "g", "strategy": "plan_execute", "locked": false, "ask": {"timeout": "50ms", "on_timeout": "continue"}}`, "", loop.FailReplansExhausted, "question timeout failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var p prompts
			r := newRig(t, p.keep(say(stubborn, stubborn, stubborn, stubborn, steps(noMonth("1", "2025-07")), finished)))
			r.start(r.config())
			r.submit("a", c.task)
			q := r.until("a", "question").Data.(loop.Question)
			if q.Kind != loop.KindEscalation || !strings.Contains(q.Text, "no sales for month") || len(q.AnswerSchema) == 0 {
				t.Errorf("question is %+v", q)
			}
			if c.reply != "" {
				if got := r.ask("a", `{"question": "q1", "text": "hm"}`); got != loop.OutcomeInvalid {
					t.Errorf("a reply that is no action is %s", got)
				}
				r.reply("a", c.reply)
			}
			events := r.untilClosed("a")
			wantTypes(t, events, "accepted facts"+strings.Repeat(" plan call observation", 4)+" "+c.want)
			if f, failed := events[len(events)-1].Data.(loop.Failed); failed != (c.reason != "") || failed && f.Reason != c.reason {
				t.Errorf("it ended with %+v", events[len(events)-1].Data)
			}
			if c.reply == retry && !p.contain("Take July.") {
				t.Error("the planner was not told what the person said")
			}
		})
	}
}

func TestDoneStepsStayInAReplan(t *testing.T) {
	r := newRig(t, say(
		steps(step("1", "calculate", `{"expression": "6*7"}`, ""), noMonth("2", "2025-08")),
		steps(step("1", "calculate", `{"expression": "1"}`, "")),
		steps(step("3", "add_numbers", `{"a": "$1", "b": 1}`, "")), finished,
	))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute", "locked": false}`)
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts plan call observation observation rejection plan call observation thought answer")
	if got := observations(events)["3"]; got != "ok 43" {
		t.Errorf("step 3: %s", got)
	}
}

func TestGuardStopsAWrongTotal(t *testing.T) {
	r := newRig(t, say(
		steps(noMonth("1", "2025-03"), step("2", "write_report", `{"title": "Sales", "summary": "s", "total": 1}`, `"after": ["1"]`),
			step("3", "send_email", `{"to": "ada@example.com", "subject": "s", "body": "$2.report"}`, "")), finished,
	))
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
	got := observations(r.untilClosed("a"))
	if !strings.Contains(got["2"], "total is 1, but the loaded rows add up to 58642.5") || !strings.HasPrefix(got["3"], "skipped") {
		t.Errorf("%v", got)
	}
}

func TestPlanActReflect(t *testing.T) {
	for name, c := range map[string]struct {
		task  string
		texts []llmtest.Reply
		want  string
	}{
		"native": {`{"goal": "g", "strategy": "plan_act_reflect"}`, []llmtest.Reply{
			{Text: "I multiply.", Calls: []llmtest.Call{{ID: "x", Name: "calculate", Arguments: `{"expression": "6*7"}`}, {ID: "y", Name: "calculate", Arguments: `{"expression": "1+1"}`}}},
			llmtest.Text(`{"done": false, "guidance": "Say it."}`), llmtest.Text("It is 42."), llmtest.Text("[DONE]"),
		}, "accepted facts call observation observation reflection thought reflection answer"},
		"JSON": {`{"goal": "g", "strategy": "plan_act_reflect", "model_options": {"native_tools": false}}`, []llmtest.Reply{
			llmtest.Text(`{"type": "tool_call", "calls": [{"name": "calculate", "arguments": {"expression": "6*7"}}]}`),
			llmtest.Text("Looks good to me."), llmtest.Text(verdictYes), llmtest.Text(finished),
		}, "accepted facts call observation rejection reflection thought answer"},
		"spent": {`{"goal": "g", "strategy": "plan_act_reflect", "limits": {"max_iterations": 1}, "prompts": {"plan": "Be a pirate.", "reflect": "Be a judge."}}`, []llmtest.Reply{
			llmtest.Text("Six."), llmtest.Text(`{"done": false, "guidance": "Wrong."}`), llmtest.Text("It is 42."),
		}, "accepted facts thought reflection thought answer"},
	} {
		t.Run(name, func(t *testing.T) {
			var p prompts
			r := newRig(t, p.keep(llmtest.Replies(c.texts...)))
			r.start(r.config())
			r.submit("a", c.task)
			events := r.untilClosed("a")
			wantTypes(t, events, c.want)
			if a := events[len(events)-1].Data.(loop.Answer); a.Answer != "It is 42." {
				t.Errorf("the answer is %q", a.Answer)
			}
			for _, q := range p.all() {
				critic := q.Header.Get("X-Ratchet-Purpose") == "reflect"
				prompt := string(q.Body["messages"])
				switch {
				case critic && (q.Body["tools"] != nil || strings.Contains(prompt, "<data") || strings.Contains(prompt, "current_time")):
					t.Errorf("the critic sees %s", prompt)
				case name == "spent" && !critic && !strings.Contains(prompt, "Be a pirate."):
					t.Errorf("the planner sees %s", prompt)
				case name == "spent" && critic && !strings.Contains(prompt, "Be a judge."):
					t.Errorf("the critic sees %s", prompt)
				}
			}
		})
	}
}

// act is one strategy's way to call one tool with these arguments and then to answer.
type act struct {
	strategy string
	texts    func(tool, args string) []string
	before   string // events before the call
	after    string // events after its outcome
}

var acts = []act{
	{"plan_react", func(tool, args string) []string { return []string{planned, call(tool, args), answered} }, "accepted facts plan call", "thought answer"},
	{"react", func(tool, args string) []string {
		return []string{"Action: " + tool + "\nAction Input: " + args, reacted}
	}, "accepted facts call", "thought answer"},
	{"plan_execute", func(tool, args string) []string { return []string{steps(step("1", tool, args, "")), finished} }, "accepted facts plan call", "thought answer"},
	{"plan_act_reflect", func(tool, args string) []string {
		return []string{`{"type": "tool_call", "name": "` + tool + `", "arguments": ` + args + `}`, verdictYes, "It is 42."}
	}, "accepted facts call", "reflection thought answer"},
}

// TestEveryStrategy: approvals, notes, cancel and unknown outcomes are the engine's, whatever the strategy.
func TestEveryStrategy(t *testing.T) {
	for _, a := range acts {
		t.Run(a.strategy, func(t *testing.T) {
			t.Run("approval", func(t *testing.T) {
				r := newRig(t, say(a.texts("buy_shares", `{"company": "Microsoft", "amount": 2, "price": 5}`)...))
				r.start(r.config())
				r.submit("a", `{"goal": "g", "strategy": "`+a.strategy+`", "approve": ["buy_*"]}`)
				q := r.until("a", "question").Data.(loop.Question)
				r.reply("a", `{"approve": true, "arguments_sha256": "`+q.ArgumentsSHA256+`"}`)
				wantTypes(t, r.untilClosed("a"), a.before+" question reply started observation "+a.after)
			})
			t.Run("refused", func(t *testing.T) {
				r := newRig(t, say(a.texts("buy_shares", `{"company": "Microsoft", "amount": 2, "price": 5}`)...))
				r.start(r.config())
				r.submit("a", `{"goal": "g", "strategy": "`+a.strategy+`", "approve": ["buy_*"]}`)
				r.until("a", "question")
				r.reply("a", `{"approve": false, "reason": "too dear"}`)
				wantTypes(t, r.untilClosed("a"), a.before+" question reply observation "+a.after)
			})
			t.Run("cancel", func(t *testing.T) {
				started := make(chan string, 1)
				r := newRig(t, say(a.texts("slow_once", `{}`)...), slowTool("slow_once", loop.EffectOnce, started, nil))
				r.start(r.config())
				r.submit("a", `{"goal": "g", "strategy": "`+a.strategy+`"}`)
				<-started
				r.control("a", "cancel")
				events := r.untilClosed("a")
				wantTypes(t, events, a.before+" started control observation cancelled")
				if o := events[len(events)-2].Data.(loop.Observation); o.Status != loop.ObservedUnknown {
					t.Errorf("the call is %s", o.Status)
				}
			})
			t.Run("note", func(t *testing.T) {
				started, release := make(chan string, 1), make(chan struct{})
				var p prompts
				r := newRig(t, p.keep(say(a.texts("slow", `{}`)...)), slowTool("slow", loop.EffectRead, started, release))
				r.start(r.config())
				r.submit("a", `{"goal": "g", "strategy": "`+a.strategy+`"}`)
				<-started
				r.reply("a", `{"text": "Mind the budget", "by": "u"}`)
				r.until("a", "note")
				close(release)
				wantTypes(t, r.untilClosed("a"), a.before+" note observation "+a.after)
				all := p.all()
				if last := all[len(all)-1]; !strings.Contains(string(last.Body["messages"]), "Mind the budget") {
					t.Error("the model answered without having seen the note")
				}
			})
			t.Run("steps", func(t *testing.T) {
				r := newRig(t, say(a.texts("calculate", `{"expression": "1"}`)...))
				r.start(r.config())
				r.submit("a", `{"goal": "g", "strategy": "`+a.strategy+`", "limits": {"max_steps": 1}}`)
				events := r.untilClosed("a")
				if f, ok := events[len(events)-1].Data.(loop.Failed); !ok || f.Reason != loop.FailStepsExhausted {
					t.Errorf("it ended with %s", types(events))
				}
			})
		})
	}
}

// TestUnknownOutcomeOfAStep: a person says what became of a call; done is the step's result, not_done sends it anew.
func TestUnknownOutcomeOfAStep(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"done":     {`{"outcome": "done", "result": 42}`, "question reply call observation thought answer"},
		"not done": {`{"outcome": "not_done"}`, "question reply call started observation call observation thought answer"},
		"given up": {`{"outcome": "give_up"}`, "question reply cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			var times atomic.Int64
			shaky := tools.Tool{
				Spec: loop.ToolSpec{Name: "shaky", Description: "d", Schema: json.RawMessage(`{"type":"object"}`), Effect: loop.EffectOnce, Timeout: 100 * time.Millisecond},
				Run: func(context.Context, loop.Invocation) (any, error) {
					if times.Add(1) == 1 {
						return nil, &tools.Fault{Err: context.DeadlineExceeded, Sent: true}
					}
					return 42, nil
				},
			}
			r := newRig(t, say(steps(step("1", "shaky", `{}`, ""), step("2", "add_numbers", `{"a": "$1", "b": 1}`, "")), finished), shaky)
			c2 := r.config()
			r.start(c2)
			r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
			r.until("a", "question")
			r.reply("a", `{"question": "q1", "value": `+c.value+`}`)
			events := r.untilClosed("a")
			if got := types(events); !strings.HasSuffix(got, c.want) {
				t.Errorf("events are %s, want %s", got, c.want)
			}
			if got := observations(events)["2"]; name != "given up" && got != "ok 43" {
				t.Errorf("step 2: %s", got)
			}
		})
	}
}

// TestCrashAmongParallelSteps kills a worker when two of five parallel steps are done. The next one repeats none of the
// finished ones.
func TestCrashAmongParallelSteps(t *testing.T) {
	var mu sync.Mutex
	times := map[string]int{}
	release := make(chan struct{})
	var slow sync.WaitGroup
	slow.Add(3)
	work := tools.Tool{
		Spec: loop.ToolSpec{Name: "work", Description: "d", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`), Effect: loop.EffectIdempotent},
		Run: func(ctx context.Context, c loop.Invocation) (any, error) {
			var a struct{ N int }
			if err := json.Unmarshal(c.Arguments, &a); err != nil {
				return nil, err
			}
			mu.Lock()
			times[c.Key()]++
			first := times[c.Key()] == 1
			mu.Unlock()
			if a.N < 2 {
				return a.N, nil
			}
			if first {
				slow.Done()
			}
			select {
			case <-release:
				return a.N, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	}
	var list []string
	for i := range 5 {
		list = append(list, step(fmt.Sprint(i), "work", fmt.Sprintf(`{"n": %d}`, i), ""))
	}
	r := newRig(t, say(steps(list...), finished), work)
	kill := newCrash(0, false)
	c := r.config()
	killable := crashBus{r.bus, kill}
	c.Journal, c.Heads, c.Wakes, c.Sessions = killable, killable, killable, killable
	c.Inbox, c.WakeQueue = crashSource{c.Inbox, kill}, crashSource{c.WakeQueue, kill}
	c.Grace = time.Millisecond
	first := r.start(c)
	r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
	slow.Wait()
	r.eventually("two steps are done", func() bool { return len(observations(r.events("a"))) == 2 })
	close(kill.dead)
	first.stop()
	close(release)
	r.start(r.config())
	events := r.untilClosed("a")
	wantTypes(t, events, "accepted facts plan call"+strings.Repeat(" observation", 5)+" thought answer")
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{"default/a/c1": 1, "default/a/c2": 1, "default/a/c3": 2, "default/a/c4": 2, "default/a/c5": 2}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Errorf("executions (-want +got):\n%s", diff)
	}
}

func TestFieldsOfStrategies(t *testing.T) {
	for body, want := range map[string]string{
		`{"goal": "g", "strategy": "plan_execute", "locked": true}`:                               "",
		`{"goal": "g", "strategy": "react", "locked": true}`:                                      "locked belongs to",
		`{"goal": "g", "strategy": "plan_act_reflect", "prompts": {"plan": "p", "reflect": "r"}}`: "",
		`{"goal": "g", "strategy": "plan_act_reflect", "prompts": {"act": "p"}}`:                  "only plan and reflect",
		`{"goal": "g", "strategy": "plan_act_reflect", "prompts": {"plan": " "}}`:                 "bytes",
		`{"goal": "g", "strategy": "plan_execute", "prompts": {"plan": "p"}}`:                     "prompts belong to",
		`{"goal": "g", "strategy": "react", "model_options": {"native_tools": "yes"}}`:            "true or false",
		`{"goal": "g", "strategy": "plan_act_reflect", "model_options": {"native_tools": false}}`: "",
	} {
		_, _, err := loop.ParseTask([]byte(body), "id")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestTriedAgainWithReflection(t *testing.T) {
	no := "I would rather not."
	for name, c := range map[string]struct {
		task  string
		texts []string
		want  string
	}{
		"plan_react, in the end": {
			`{"goal": "g", "retry_with_reflection": 1, "limits": {"max_rejections": 1}}`,
			[]string{planned, call("buy_shares", `{"company": "Microsoft", "amount": 2, "price": 5}`), no, no, "Write JSON.", planned, answered},
			"accepted facts plan call started observation rejection rejection reflection plan thought answer",
		},
		"plan_execute, steps": {
			`{"goal": "g", "strategy": "plan_execute", "retry_with_reflection": 1, "limits": {"max_steps": 2}}`,
			[]string{no, no, "Write JSON.", steps(step("1", "calculate", `{"expression": "1"}`, "")), finished},
			"accepted facts rejection rejection reflection plan call observation thought answer",
		},
		"plan_act_reflect, never": {
			`{"goal": "g", "strategy": "plan_act_reflect", "retry_with_reflection": 2, "limits": {"max_rejections": 1}}`,
			[]string{"{", "{", "Do better.", "{", "{", "Do better.", "{", "{"},
			"accepted facts rejection rejection reflection rejection rejection reflection rejection rejection failed",
		},
		"the model can't look back": {
			`{"goal": "g", "retry_with_reflection": 1, "limits": {"max_rejections": 1}}`,
			[]string{no, no},
			"accepted facts rejection rejection failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p prompts
			r := newRig(t, p.keep(say(c.texts...)))
			r.start(r.config())
			r.submit("a", c.task)
			events := r.untilClosed("a")
			wantTypes(t, events, c.want)
			if f, failed := events[len(events)-1].Data.(loop.Failed); failed && f.Reason != loop.FailRejectionsExhausted {
				t.Errorf("it failed with %+v", f)
			}
			all := p.all()
			last := string(all[len(all)-1].Body["messages"])
			if name == "plan_react, in the end" && (!strings.Contains(last, "Write JSON.") || !strings.Contains(last, "must not be made again: buy_shares")) {
				t.Errorf("the second attempt was told %s", last)
			}
		})
	}
}

// TestFillsSideBySide: two steps are filled at the same time, and the reply to one does not cut the other off.
func TestFillsSideBySide(t *testing.T) {
	var fills atomic.Int64
	both, second := make(chan struct{}), make(chan struct{})
	script := say(steps(step("1", "calculate", `{}`, `"open": ["expression"]`), step("2", "calculate", `{}`, `"open": ["expression"]`)), finished)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		if q.Header.Get("X-Ratchet-Purpose") != "fill" {
			return script(q)
		}
		reply := llmtest.Text(`{"type": "fill", "fields": {"expression": "6*7"}}`)
		switch fills.Add(1) {
		case 1:
			reply.Wait = both
		case 2:
			close(both)
			reply.Wait = second
		}
		return reply
	})
	r.start(r.config())
	r.submit("a", `{"goal": "g", "strategy": "plan_execute"}`)
	r.until("a", "observation")
	close(second)
	wantTypes(t, r.untilClosed("a"), "accepted facts plan call observation call observation thought answer")
	if n := fills.Load(); n != 2 {
		t.Errorf("%d fills were asked for", n)
	}
}
