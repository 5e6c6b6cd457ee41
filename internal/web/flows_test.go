package web_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/freeport"
	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
)

// TestFollowARunToItsAnswer submits a task at the console, answers its questions, and watches it end, without a reload.
func TestFollowARunToItsAnswer(t *testing.T) {
	w := start(t, nil)
	b := open(t, w.HTTP(), "/")
	b.sees("main", "There are no runs yet.")
	b.sees("#link", "Live")
	b.do(chromedp.KeyEvent("n")) // the shortcut
	b.sees("h1", "New task")
	b.write("textarea[name=goal]", "Buy a few Microsoft shares.")
	b.click("main button.primary")
	b.sees("#run-question", "How many shares of Microsoft do you want to buy?")
	b.sees(".notice", "The task is in the queue.")
	b.sees("#asks", "1")
	b.write("#run-question textarea", "200 shares.")
	b.click("#run-question button.primary")
	b.sees("#run-question", "At what price")
	b.sees("#timeline", "Answered q1 console")
	b.write("#run-question textarea", "56.30 USD.")
	b.click("#run-question button.primary")
	b.sees(".outcome", "Answer")
	b.sees("#run-head", "done")
	b.until(`!document.querySelector('#run-question .card') && !document.querySelector('#asks b')`)
	numbers := get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll('#timeline > li .small a')].map(a => a.innerText.split(' ')[0].replace(/\s[^]*/, ''))`))
	for i, n := range numbers {
		if want := fmt.Sprintf("#%d", i+1); !strings.HasPrefix(n, want) {
			t.Errorf("event %d of the timeline is %q", i+1, n)
		}
	}
	b.quiet()
}

// TestARunIsSeenAsItGoes looks at the list and at a run while others make the events.
func TestARunIsSeenAsItGoes(t *testing.T) {
	w := start(t, nil)
	list := open(t, w.HTTP(), "/")
	list.sees("#link", "Live")
	w.submit(map[string]any{"id": "sum", "goal": "What is 17 plus 25?"})
	list.sees("#rows", "done")
	list.sees("#rows .run-outcome", "42")
	w.submit(map[string]any{"id": "shares", "goal": "Buy a few Microsoft shares."})
	list.sees("#rows > li:first-child", "asks a question")
	list.write("#search", "microsoft")
	list.until(`document.querySelectorAll('#rows > li').length === 1 && location.search.includes('q=microsoft')`)
	w.submit(map[string]any{"id": "sum-2", "goal": "What is 17 plus 25?"})
	waitFor[loop.Answer](w, "sum-2")
	one := open(t, w.HTTP(), "/runs/default/shares")
	one.sees("#link", "Live")
	one.click("#run-actions details:first-of-type summary")
	one.write("#run-actions input[name=reason]", "too dear")
	one.click("#run-actions button[value=cancel]")
	one.sees(".outcome", "too dear")
	list.sees("#rows", "cancelled")
	if n := get(list, chromedp.Evaluate[int](`document.querySelectorAll('#rows > li').length`)); n != 1 {
		t.Errorf("the filtered list shows %d runs", n)
	}
	cancelled := waitFor[loop.Cancelled](w, "shares")
	if diff := cmp.Diff(loop.Cancelled{Reason: "too dear", By: "console"}, cancelled); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}
	one.quiet()
	list.quiet()
}

// TestPauseAndResume stops a run for a while.
func TestPauseAndResume(t *testing.T) {
	w := start(t, nil)
	w.submit(map[string]any{"id": "shares", "goal": "Buy a few Microsoft shares."})
	waitFor[loop.Question](w, "shares")
	b := open(t, w.HTTP(), "/runs/default/shares")
	b.click("#run-actions button[value=pause]")
	b.sees("#run-head", "paused")
	b.click("#run-actions button[value=resume]")
	b.sees("#run-head", "waiting")
	b.sees("#run-actions", "Pause")
}

// TestRefuseAnApproval reads what would be called, says no with a reason, and sees the card go elsewhere too.
func TestRefuseAnApproval(t *testing.T) {
	w := start(t, nil)
	b := open(t, w.HTTP(), "/inbox")
	other := open(t, w.HTTP(), "/inbox")
	b.sees(".empty", "Nobody waits for an answer.")
	other.sees("#link", "Live")
	w.submit(map[string]any{"id": "sum", "goal": "What is 17 plus 25?", "approve": []string{"add_numbers"}})
	asked := waitFor[loop.Question](w, "sum")
	b.sees("#cards", `{"a":17,"b":25}`)
	b.sees("#cards", asked.ArgumentsSHA256)
	other.sees("#cards", "Approval")
	b.write("#cards textarea[name=reason]", "I can add that myself.")
	b.click("#cards button[value=refuse]")
	b.sees(".notice", "Your answer was accepted.")
	other.sees(".empty", "Nobody waits for an answer.")
	got := waitFor[loop.Reply](w, "sum")
	no := false
	want := loop.Reply{Question: asked.Question, Approve: &no, Reason: "I can add that myself.", By: "console"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
}

// TestApproveWithOtherArguments edits the arguments of a call and says yes to them.
func TestApproveWithOtherArguments(t *testing.T) {
	w := start(t, nil)
	w.submit(map[string]any{"id": "sum", "goal": "What is 17 plus 25?", "approve": []string{"add_numbers"}})
	asked := waitFor[loop.Question](w, "sum")
	b := open(t, w.HTTP(), "/inbox")
	b.click("#cards details.edit summary")
	b.write("#cards textarea[name=arguments]", `{"a": 17, "b": "many"}`)
	b.click("#cards button[value=approve]")
	b.sees("[role=alert]", "Your answer was not accepted") // the worker says why, and what was typed is still there
	b.until(`document.querySelector('textarea[name=arguments]').value.includes('many')`)
	b.write("textarea[name=arguments]", `{"a": 17, "b": 26}`)
	b.click("button[value=approve]")
	b.sees(".notice", "Your answer was accepted.")
	got := waitFor[loop.Reply](w, "sum")
	if string(got.Arguments) != `{"a": 17, "b": 26}` && string(got.Arguments) != `{"a":17,"b":26}` || got.ArgumentsSHA256 != asked.ArgumentsSHA256 {
		t.Errorf("the reply is %+v", got)
	}
	if answer := waitFor[loop.Answer](w, "sum"); !strings.Contains(answer.Answer, "43") {
		t.Errorf("the answer is %q", answer.Answer)
	}
}

// TestReconnectAfterTheWorkerRestarts takes the worker away under an open page, and sees the page go on by itself.
func TestReconnectAfterTheWorkerRestarts(t *testing.T) {
	dir := t.TempDir()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(freeport.One(t)))
	again := func() *worker {
		return start(t, func(o *node.Options) {
			o.Embedded = &bus.EmbeddedOptions{Dir: filepath.Join(dir, "nats"), Port: -1, Sync: "2m"}
			o.Files, o.HTTP = dir, address
		})
	}
	w := again()
	w.submit(map[string]any{"id": "shares", "goal": "Buy a few Microsoft shares."})
	waitFor[loop.Question](w, "shares")
	b := open(t, w.HTTP(), "/runs/default/shares")
	b.sees("#link", "Live")
	b.write("#run-question textarea", "half an ans")
	w.stop()
	b.sees("#link", "Reconnecting")
	w = again()
	b.sees("#link", "Live")
	b.until(`document.querySelector('#run-question textarea').value === 'half an ans'`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := w.client.Reply(ctx, bus.ReplyRequest{Run: "shares", Reply: loop.Reply{Question: "q1", Text: "200 shares.", By: "u-17"}}); err != nil {
		t.Fatal(err)
	}
	b.sees("#timeline", "Answered q1 u-17")
	b.sees("#run-question", "At what price")
	seen := get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll('#timeline > li')].map(e => e.id)`))
	known := map[string]bool{}
	for _, id := range seen {
		if known[id] {
			t.Errorf("event %s is shown twice", id)
		}
		known[id] = true
	}
}

const script = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">`

// TestWhatRunsSayStaysText has a goal, a thought, arguments, a tool's result, a question and an answer bring scripts.
func TestWhatRunsSayStaysText(t *testing.T) {
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, script)
	}))
	t.Cleanup(hostile.Close)
	fake := llmtest.Server(t, func(r llmtest.Request) llmtest.Reply {
		said := func(m string) llmtest.Reply { return llmtest.Text(strings.ReplaceAll(m, "SCRIPT", escaped)) }
		switch len(r.Messages) {
		case 2:
			return said(`{"type": "create_plan", "thought": "SCRIPT", "plan": [{"step": "SCRIPT", "status": "pending"}, {"step": "b", "status": "pending"}]}`)
		case 4:
			return said(`{"type": "tool_call", "thought": "SCRIPT", "plan": [{"step": "SCRIPT", "status": "in_progress"}, {"step": "b", "status": "pending"}], "calls": [{"name": "look", "arguments": {"q": "SCRIPT"}}]}`)
		case 6:
			return said(`{"type": "ask_user", "thought": "SCRIPT", "plan": [{"step": "SCRIPT", "status": "in_progress"}, {"step": "b", "status": "pending"}], "question": "SCRIPT?"}`)
		default:
			return said(`{"type": "final_answer", "thought": "SCRIPT", "answer": "SCRIPT", "plan": [{"step": "SCRIPT", "status": "done", "result": "SCRIPT"}, {"step": "b", "status": "done", "result": "SCRIPT"}]}`)
		}
	})
	tools := filepath.Join(t.TempDir(), "tools.yaml")
	err := os.WriteFile(tools, []byte(`
tools:
  - http: {name: look, method: GET, url: "`+hostile.URL+`/", description: Looks., effect: read,
           schema: {type: object, properties: {q: {type: string}}}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *node.Options) {
		o.Demo, o.Model, o.Tools = false, llm.Config{BaseURL: fake.URL, Model: "test-model"}, tools
	})
	w.submit(map[string]any{"id": "evil", "goal": script})
	waitFor[loop.Question](w, "evil")
	b := open(t, w.HTTP(), "/")
	b.sees(".run-goal", "<script>")
	for _, path := range []string{"/inbox", "/runs/default/evil"} {
		b.visit(path)
		b.sees("main", script)
		b.sees("#link", "Live")
	}
	b.sees("#timeline", "Result: ok")
	b.write("#run-question textarea", script)
	b.click("#run-question button.primary")
	b.sees(".outcome", script) // came by the stream
	b.until(`!document.querySelector('main script, main img, main [onerror]') && document.title !== 'owned'`)
	b.quiet()
}

// escaped is the script as it stands in JSON.
var escaped = strings.ReplaceAll(script, `"`, `\"`)
