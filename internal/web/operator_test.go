package web_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
	"ratchet/internal/web"
)

// TestLogIn is sent to the login, gets the token wrong and then right, and comes out where it wanted to go. What it does there
// is under its name.
func TestLogIn(t *testing.T) {
	w := start(t, func(o *node.Options) { o.Access = web.Access{Token: "correct horse"} })
	w.submit(map[string]any{"id": "shares", "goal": "Buy a few Microsoft shares."})
	waitFor[loop.Question](w, "shares")
	b := open(t, w.HTTP(), "/runs/default/shares")
	b.sees("h1", "Log in")
	b.accessible(axeSource(t), "login")
	b.look("login")
	b.write("input[name=name]", "Ada")
	b.write("input[name=token]", "correct pony")
	b.click("main button.primary")
	b.sees("[role=alert]", "That is not the token")
	b.until(`document.querySelector('input[name=name]').value === 'Ada'`)
	b.write("input[name=token]", "correct horse")
	b.click("main button.primary")
	b.sees("#run-question", "How many shares")
	b.sees("#link", "Live")
	b.write("#run-question textarea", "200 shares.")
	b.click("#run-question button.primary")
	b.sees("#timeline", "Answered q1 Ada")
	if got := waitFor[loop.Reply](w, "shares"); got.By != "Ada" {
		t.Errorf("the reply is by %q", got.By)
	}
	b.quiet()
}

// TestRedriveAndDrop has a message of a worker's dead letters published again, and removes it when it comes back.
func TestRedriveAndDrop(t *testing.T) {
	w := start(t, nil)
	b := open(t, w.HTTP(), "/dead")
	b.sees(".empty", "There are no dead letters.")
	if _, err := w.Bus().PublishReply(t.Context(), loop.RunID{Tenant: "default", Run: "nobody"}, []byte(`{"text": "yes"}`), ""); err != nil {
		t.Fatal(err)
	}
	buried := func(redriven int) {
		t.Helper()
		deadline, look := time.After(patience), time.NewTicker(10*time.Millisecond)
		defer look.Stop()
		for {
			letters, _, err := w.Bus().DeadList(t.Context(), "", 0, 10)
			if err == nil && len(letters) == 1 && letters[0].Redriven == redriven {
				b.visit("/dead")
				return
			}
			select {
			case <-look.C:
			case <-deadline:
				t.Fatalf("the dead letters are %+v, error %v", letters, err)
			}
		}
	}
	buried(0)
	b.click(".letter-error")
	b.sees("main", `"text": "yes"`)
	b.click("form[action$=redrive] button")
	b.sees(".notice", "The message was published again.")
	buried(1) // nobody is still nobody
	b.sees(".letter-what", "redriven 1×")
	b.click(".letter-error")
	b.click("main details summary")
	b.click("button.danger")
	b.sees(".notice", "The dead letter was removed.")
	b.sees(".empty", "There are no dead letters.")
	b.quiet()
}

// TestAnswerAForm fills in the form that a question's schema makes, at first with a number that the schema refuses.
func TestAnswerAForm(t *testing.T) {
	fake := llmtest.Server(t, llmtest.Replies(
		llmtest.Text(`{"type": "create_plan", "thought": "t", "plan": [{"step": "ask", "status": "pending"}, {"step": "say", "status": "pending"}]}`),
		llmtest.Text(`{"type": "ask_user", "thought": "t", "plan": [{"step": "ask", "status": "in_progress"}, {"step": "say", "status": "pending"}],
			"question": "What do you want to order?", "answer_schema": {"type": "object", "required": ["count", "side", "urgent"], "properties": {
				"count": {"type": "integer", "minimum": 1, "maximum": 100, "description": "how many shares"},
				"side": {"enum": ["buy", "sell"]}, "urgent": {"type": "boolean"}, "note": {"type": "string"}}}}`),
		llmtest.Text(`{"type": "final_answer", "thought": "t", "answer": "Ordered.", "plan": [{"step": "ask", "status": "done", "result": "r"}, {"step": "say", "status": "done", "result": "r"}]}`),
	))
	w := start(t, func(o *node.Options) { o.Demo, o.Model = false, llm.Config{BaseURL: fake.URL, Model: "test-model"} })
	w.submit(map[string]any{"id": "order", "goal": "Order shares."})
	waitFor[loop.Question](w, "order")
	b := open(t, w.HTTP(), "/inbox")
	b.sees("#cards", "how many shares")
	b.accessible(axeSource(t), "form of a schema")
	b.look("form")
	b.write(`[name="value.count"]`, "500")
	b.do(chromedp.SendKeys(chromedp.CSS(`[name="value.side"]`), "sell"))
	b.click(`[name="value.urgent"][value=true]`)
	b.click("#cards button.primary")
	b.sees("[role=alert]", "Your answer was not accepted")
	b.look("form-refused")
	b.write(`[name="value.count"]`, "50")
	b.click("main button.primary")
	b.sees(".notice", "Your answer was accepted.")
	got := waitFor[loop.Reply](w, "order")
	var value map[string]any
	if err := json.Unmarshal(got.Value, &value); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"count": 50.0, "side": "sell", "urgent": true}, value); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	if answer := waitFor[loop.Answer](w, "order"); answer.Answer != "Ordered." {
		t.Errorf("the answer is %q", answer.Answer)
	}
	b.quiet()
}
