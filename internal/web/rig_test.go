package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/node"
)

// patience is how long a test waits for what must come; it tells a hang, not a busy machine.
const patience = 45 * time.Second

// worker is a whole node with a console, over data in a directory that may be used again.
type worker struct {
	*node.Node
	t      *testing.T
	client *bus.Client
	stop   func()
}

// start runs a node with the demo model until the end of the test, or until stop.
func start(t *testing.T, change func(*node.Options)) *worker {
	t.Helper()
	dir := t.TempDir()
	opts := node.Options{
		Name: "worker-1", Embedded: &bus.EmbeddedOptions{Dir: filepath.Join(dir, "nats"), Port: -1, Sync: "2m"}, Demo: true, Files: dir,
		Grace: time.Second, HTTP: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n, err := node.Start(ctx, opts)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	w := &worker{Node: n, t: t}
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		n.Close()
	})
	t.Cleanup(w.stop)
	if w.client, err = bus.NewClient(n.Conn(), "", ""); err != nil {
		t.Fatal(err)
	}
	return w
}

// submit hands in a task of the default tenant.
func (w *worker) submit(task map[string]any) {
	w.t.Helper()
	body, err := json.Marshal(task)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.Submit(w.t.Context(), body); err != nil {
		w.t.Fatal(err)
	}
}

// waitFor waits until a run's event satisfies a test, and returns it.
func waitFor[D loop.Data](w *worker, run string) (found D) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	seen := false
	enough := errors.New("enough")
	err := w.client.Follow(ctx, run, 1, func(e loop.Event) error {
		if d, ok := e.Data.(D); ok {
			found, seen = d, true
			return enough
		}
		return nil
	})
	if !seen {
		w.t.Fatalf("run %s has no %T: %v", run, found, err)
	}
	return found
}

// browser is one Chromium for all tests of the package; each test has a tab of its own.
var browser struct {
	sync.Once
	ctx  context.Context
	stop []context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(browser.stop) - 1; i >= 0; i-- {
		browser.stop[i]()
	}
	os.Exit(code)
}

// chromium returns the program, or ends the test: as failed where everything must be there, else as skipped.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const what = "there is no chromium: run `apt-get install chromium`"
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
	return ""
}

// tab is a tab of a browser.
type tab struct {
	t    testing.TB
	ctx  context.Context
	base string
	mu   sync.Mutex
	said []string // what the page complained of: exceptions, and what its policy forbids
}

// open opens a tab at a page of a console. No tab has another's cookies.
func open(t testing.TB, base, path string) *tab {
	t.Helper()
	program := chromium(t)
	browser.Do(func() {
		options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox,
			chromedp.Flag("lang", "en-GB"), chromedp.Flag("font-render-hinting", "none"), chromedp.WSURLReadTimeout(2*time.Minute))
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, end := chromedp.NewContext(allocator)
		browser.ctx, browser.stop, browser.err = ctx, []context.CancelFunc{stop, end}, chromedp.Do(ctx)
	})
	if browser.err != nil {
		t.Fatalf("start %s: %v", program, browser.err)
	}
	ctx, stop := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx, base: base}
	messages := chromedp.Console(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for m, err := range messages {
			if err == nil && (m.Type == chromedp.ConsoleError || m.IsException()) && m.Source != "network" {
				b.mu.Lock()
				b.said = append(b.said, m.String())
				b.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { stop(); listening.Wait() })
	b.size(1280, 860)
	b.visit(path)
	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.fail(err.Error())
	}
}

// get returns what an action returns.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.fail(err.Error())
	}
	return v
}

// fail ends the test and shows where the tab is.
func (b *tab) fail(what string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	page, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	b.t.Fatalf("%s\nthe tab shows (%v) %s", what, err, page)
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// sees waits until an element has a text in it, as a reader sees it.
func (b *tab) sees(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.offsetParent !== null && e.innerText.replace(/\s+/g, ' ').includes(%q))`, selector, text))
}

// until waits until an expression is true in the page, or in the one that follows it.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience))
		if err = chromedp.Do(ctx, poll); err == nil {
			return
		}
	}
	b.fail(fmt.Sprintf("%s did not become true: %v", expression, err))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// write replaces what stands in a field.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(e => e && (e.focus(), e.select(), document.activeElement === e))(document.querySelector(%q))`, selector))
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// scheme chooses dark or light.
func (b *tab) scheme(name string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	}))
}

// quiet fails the test if a page complained of anything.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.said) > 0 {
		b.t.Errorf("the page complained:\n%s", strings.Join(b.said, "\n"))
	}
}

// look writes a picture of the whole page to build/screenshots, for people.
func (b *tab) look(name string) {
	b.t.Helper()
	picture := get(b, chromedp.FullScreenshot(100))
	dir := filepath.Join("..", "..", "build", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// control gives a run an order as others do.
func (w *worker) control(run string, op loop.ControlOp) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if _, err := w.client.Control(ctx, bus.ControlRequest{Run: run, Control: loop.Control{Op: op, Reason: "changed my mind", By: "u-17"}}); err != nil {
		w.t.Fatal(err)
	}
}
