package web_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"ratchet/internal/loop"
)

// gallery fills a worker with runs of every kind.
func gallery(t *testing.T) *worker {
	t.Helper()
	w := start(t, nil)
	w.submit(map[string]any{"id": "warmest", "goal": "Is it warmer in Singapore, Jakarta or Paris?"})
	waitFor[loop.Answer](w, "warmest")
	w.submit(map[string]any{"id": "report-march", "strategy": "plan_execute", "goal": "Write the sales report for March and mail it to ada@example.com."})
	waitFor[loop.Answer](w, "report-march")
	w.submit(map[string]any{"id": "lost", "goal": "Where is my order 4418?", "strategy": "react", "limits": map[string]any{"max_steps": 1}})
	waitFor[loop.Failed](w, "lost")
	w.submit(map[string]any{"id": "shares", "goal": "Buy a few Microsoft shares.", "user": "ada", "session": "chat-9"})
	waitFor[loop.Question](w, "shares")
	w.submit(map[string]any{"id": "sum", "goal": "What is 17 plus 25?", "approve": []string{"add_numbers"}})
	waitFor[loop.Question](w, "sum")
	w.submit(map[string]any{"id": "stopped", "goal": "Buy a few Microsoft shares."})
	waitFor[loop.Question](w, "stopped")
	w.control("stopped", loop.OpCancel)
	waitFor[loop.Cancelled](w, "stopped")
	if _, err := w.Bus().PublishTask(t.Context(), "default", []byte(`{"goal": ""}`), "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Bus().PublishReply(t.Context(), loop.RunID{Tenant: "default", Run: "nobody"}, []byte(`{"text": "yes"}`), ""); err != nil {
		t.Fatal(err)
	}
	return w
}

// screens are the pages, by the name of their picture, with something that says that the page is there.
var screens = []struct{ name, path, selector, text string }{
	{"runs", "/", "#rows", "warmest"},
	{"run", "/runs/default/warmest", "#timeline", "Answer"},
	{"run-graph", "/runs/default/report-march", "#run-plan", "steps closed"},
	{"run-failed", "/runs/default/lost", "h2", "Why it failed"},
	{"run-question", "/runs/default/shares", "#run-question", "Question"},
	{"run-cancelled", "/runs/default/stopped", "h2", "Cancelled"},
	{"inbox", "/inbox", "#cards", "would be called with exactly this"},
	{"new", "/new", "h1", "New task"},
	{"dead", "/dead", ".letters", "unknown_run"},
	{"deadletter", "/dead/1", "h1", "Dead letter 1"},
	{"system", "/system", "#system", "AGENT_EVENTS"},
	{"problem", "/nowhere", "h1", "There is no such page"},
}

// TestScreens opens each page on a desk and on a phone, in both schemes, has axe look at it, and keeps pictures of it.
func TestScreens(t *testing.T) {
	w := gallery(t)
	axe := axeSource(t)
	b := open(t, w.HTTP(), "/")
	for _, s := range screens {
		b.visit(s.path)
		b.sees(s.selector, s.text)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.size(1280, 860)
			b.look(s.name + "-" + scheme)
			b.accessible(axe, s.name+", "+scheme)
			b.size(390, 844)
			if wide := get(b, chromedp.Evaluate[int](`document.documentElement.scrollWidth`)); wide > 390 {
				t.Errorf("%s is %d wide on a phone of 390", s.name, wide)
			}
			if scheme == "light" {
				b.look(s.name + "-phone")
				b.accessible(axe, s.name+", phone")
			}
		}
	}
	b.quiet()
}

// axeSource returns axe-core.
func axeSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "npm", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("axe-core is not installed: run `make npm`")
		}
		t.Skip("axe-core is not installed: run `make npm`")
	}
	return string(source)
}

// axeRun lists what axe finds serious or critical.
const axeRun = `axe.run(document, {resultTypes: ['violations']}).then(found => JSON.stringify(found.violations
	.filter(v => v.impact === 'serious' || v.impact === 'critical')
	.map(v => ({rule: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + n.failureSummary)}))))`

// accessible fails the test for what axe finds serious or critical.
func (b *tab) accessible(axe, where string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](axe + `; undefined`))
	found := get(b, chromedp.Evaluate[string](axeRun, chromedp.EvalAwaitPromise))
	var violations []any
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatalf("%s: axe said %q: %v", where, found, err)
	}
	for _, v := range violations {
		line, _ := json.MarshalIndent(v, "", "  ")
		b.t.Errorf("%s: %s", where, line)
	}
}
