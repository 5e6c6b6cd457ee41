package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

// does returns a change of a fake tool: what it does when it is called.
func does(f Func) func(*Tool) { return func(t *Tool) { t.Run = f } }

// gives returns a change of a fake tool: what it returns.
func gives(value any, err error) func(*Tool) {
	return does(func(context.Context, loop.Invocation) (any, error) { return value, err })
}

func call(t *testing.T, tool Tool) loop.Outcome {
	t.Helper()
	return registry(t, tool).Call(t.Context(), loop.Invocation{Tool: tool.Spec.Name})
}

func TestCallResults(t *testing.T) {
	type pair struct {
		A string  `json:"a"`
		B float64 `json:"b"`
	}
	cycle := map[string]any{}
	cycle["self"] = cycle
	for name, test := range map[string]struct {
		value any
		err   error
		want  string // status and result
	}{
		"nothing":            {nil, nil, `ok null`},
		"text":               {"line <1>\r\nline & 2\rline 3", nil, `ok "line <1>\nline & 2\nline 3"`},
		"struct":             {pair{"x", 1.5}, nil, `ok {"a":"x","b":1.5}`},
		"number":             {json.Number("9007199254740993"), nil, `ok 9007199254740993`},
		"raw":                {json.RawMessage(` { "a" : 1.50, "b":[ ] } `), nil, `ok {"a":1.50,"b":[]}`},
		"raw, no JSON":       {json.RawMessage(`{"a":`), nil, `error "give was called, but its result can't be written as JSON: it is not valid JSON: {\"a\":"`},
		"raw, empty":         {json.RawMessage(``), nil, `error "give was called, but its result can't be written as JSON: it is empty"`},
		"raw, binary":        {json.RawMessage("\x00\x01"), nil, `error "give was called, but its result can't be written as JSON: it is [binary data, 2 bytes, application/octet-stream]"`},
		"NaN":                {math.NaN(), nil, `error "give was called, but its result can't be written as JSON: json: unsupported value: NaN"`},
		"channel":            {make(chan int), nil, `error "give was called, but its result can't be written as JSON: json: unsupported type: chan int"`},
		"error":              {nil, errors.New("no such city"), `error "no such city"`},
		"value and error":    {"fine", errors.New("no such city"), `error "no such city"`},
		"escape sequences":   {"\x1b[31mred alert, long enough to be text\x1b[0m", nil, `ok "�[31mred alert, long enough to be text�[0m"`},
		"nested escapes":     {map[string]any{"a\x1b": []string{"\u202efdp.exe ordinary text", "x\ty", "rest of it \r\n"}}, nil, `ok {"a�":["�fdp.exe ordinary text","x\ty","rest of it \n"]}`},
		"nested binary":      {map[string]string{"a": "\x00\x01\x02"}, nil, `ok {"a":"[binary data, 3 bytes, application/octet-stream]"}`},
		"bytes, text":        {[]byte("hello"), nil, `ok "hello"`},
		"bytes, binary":      {[]byte("\x89PNG\r\n\x1a\n0000"), nil, `ok "[binary data, 12 bytes, image/png]"`},
		"invalid UTF-8":      {"caf\xe9 au lait et croissants", nil, `ok "caf� au lait et croissants"`},
		"raw, invalid UTF-8": {json.RawMessage("\"caf\xe9 au lait et croissants\""), nil, `ok "caf� au lait et croissants"`},
		"raw, lone half":     {json.RawMessage(`"a \ud800 b and some more text"`), nil, `ok "a � b and some more text"`},
		"deep":               {json.RawMessage(nested(9_000)), nil, ``},
		"cycle":              {cycle, nil, ``},
		"error with escapes": {nil, errors.New("bad \x1b[2J\x00 thing"), `error "bad �[2J� thing"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, fake("give", gives(test.value, test.err)))
			if text := fmt.Sprintf("%s %s", got.Status, got.Result); test.want != "" && text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
			if !json.Valid(got.Result) || !utf8.Valid(got.Result) || depth(got.Result) > maxResultDepth {
				t.Errorf("%s is nothing to put into an event", clip(string(got.Result), 100))
			}
		})
	}
}

func TestCallLargeResults(t *testing.T) {
	rows := make([]map[string]any, 2000)
	for i := range rows {
		rows[i] = map[string]any{"n": i, "text": `quote " and slash \`}
	}
	for name, value := range map[string]any{
		"10 MB":      strings.Repeat("0123456789", 1<<20),
		"runes":      strings.Repeat("日本語", 10_000),
		"quotes":     strings.Repeat(`"\`, 50_000),
		"line ends":  strings.Repeat("\n", 50_000),
		"rows":       rows,
		"one too":    strings.Repeat("x", 8191),
		"long emoji": strings.Repeat("👩‍👩‍👧", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			got := call(t, fake("give", gives(value, nil)))
			if got.Status != loop.ObservedOK || !got.Truncated {
				t.Fatalf("%s, truncated %t", got.Status, got.Truncated)
			}
			if n := len(got.Result); n > 8192 || n < 3000 {
				t.Errorf("the result has %d bytes", n)
			}
			var shown string
			if err := json.Unmarshal(got.Result, &shown); err != nil || strings.ContainsRune(shown, utf8.RuneError) {
				t.Errorf("%v %s", err, got.Result)
			}
			var missing int
			at := strings.Index(shown, "\n[… ")
			if _, err := fmt.Sscanf(shown[at:], "\n[… %d bytes left out …]\n", &missing); err != nil {
				t.Fatal(err)
			}
			tail := shown[at+len(fmt.Sprintf("\n[… %d bytes left out …]\n", missing)):]
			full := string(got.Full)
			if !strings.HasPrefix(full, shown[:at]) || !strings.HasSuffix(full, tail) || at+missing+len(tail) != len(full) {
				t.Errorf("head %d, missing %d, tail %d, whole %d", at, missing, len(tail), len(full))
			}
		})
	}
}

func TestCallFullIsBounded(t *testing.T) {
	r, err := New(Config{MaxFull: 20_000, Tools: []Tool{fake("give", gives(strings.Repeat("é", 100_000), nil), func(t *Tool) { t.MaxResult = 1000 })}})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Call(t.Context(), loop.Invocation{Tool: "give"})
	if len(got.Full) > 20_000 || !utf8.Valid(got.Full) || len(got.Result) > 1000 || !got.Truncated {
		t.Errorf("full %d, result %d, truncated %t", len(got.Full), len(got.Result), got.Truncated)
	}
	if !bytes.Contains(got.Full, []byte("bytes left out")) {
		t.Error("what is missing is not said")
	}
}

func TestCallSmallResultIsWhole(t *testing.T) {
	got := call(t, fake("give", gives(strings.Repeat("x", 8190), nil)))
	if got.Truncated || got.Full != nil || len(got.Result) != 8192 {
		t.Errorf("truncated %t, full %d, result %d", got.Truncated, len(got.Full), len(got.Result))
	}
}

func TestCallLongError(t *testing.T) {
	got := call(t, fake("give", gives(nil, errors.New(strings.Repeat("é", 1<<20)))))
	if got.Status != loop.ObservedError || len(got.Result) > maxErrorText+10 || !utf8.Valid(got.Result) {
		t.Errorf("%s with %d bytes", got.Status, len(got.Result))
	}
}

func TestCallUnknownTool(t *testing.T) {
	got := registry(t).Call(t.Context(), loop.Invocation{Tool: "nothing"})
	if want := `there is no tool "nothing" here`; got.Status != loop.ObservedError || plainText(got.Result) != want {
		t.Errorf("%s %s", got.Status, got.Result)
	}
}

func TestCallChangedSchema(t *testing.T) {
	ran := false
	r := registry(t, fake("give", does(func(context.Context, loop.Invocation) (any, error) { ran = true; return nil, nil })))
	got := r.Call(t.Context(), loop.Invocation{Tool: "give", Digest: strings.Repeat("0", 64)})
	if got.Status != loop.ObservedError || !strings.Contains(string(got.Result), "changed since this run began") || ran {
		t.Errorf("%s %s, ran %t", got.Status, got.Result, ran)
	}
	specs, _ := r.Offer(nil)
	if got = r.Call(t.Context(), loop.Invocation{Tool: "give", Digest: specs[0].Digest}); got.Status != loop.ObservedOK || !ran {
		t.Errorf("%s %s, ran %t", got.Status, got.Result, ran)
	}
}

func TestCallPanic(t *testing.T) {
	var log bytes.Buffer
	r, err := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Tools: []Tool{
		fake("burst", does(func(context.Context, loop.Invocation) (any, error) { panic("tank empty " + strings.Repeat("!", 1<<16)) })),
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Call(t.Context(), loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c1", Tool: "burst"})
	if got.Status != loop.ObservedError || !strings.HasPrefix(plainText(got.Result), "burst broke down in the middle of the call: tank empty !") || len(got.Result) > 400 {
		t.Errorf("%s %s", got.Status, got.Result)
	}
	if strings.Contains(string(got.Result), "goroutine") {
		t.Error("the model sees a stack")
	}
	for _, want := range []string{"run=r1", "tenant=acme", "call=c1", "call_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
}

// A tool that only computes is called in place; what goes wrong in it is an outcome all the same.
func TestCallInstant(t *testing.T) {
	instant := func(tool *Tool) { tool.Instant = true }
	for name, test := range map[string]struct {
		do   Func
		want string
	}{
		"result": {func(context.Context, loop.Invocation) (any, error) { return 42, nil }, `ok 42`},
		"error":  {func(context.Context, loop.Invocation) (any, error) { return nil, errors.New("no such city") }, `error "no such city"`},
		"panic":  {func(context.Context, loop.Invocation) (any, error) { panic("down") }, `error "now broke down in the middle of the call: down"`},
	} {
		t.Run(name, func(t *testing.T) {
			out := call(t, fake("now", instant, does(test.do)))
			if got := string(out.Status) + " " + string(out.Result); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := registry(t, fake("now", instant, gives(42, nil)))
	if out := r.Call(ctx, loop.Invocation{Tool: "now"}); out.Status != loop.ObservedCancelled {
		t.Errorf("called for a run that has ended, it is %s %s", out.Status, out.Result)
	}
}

func TestCallTimeout(t *testing.T) {
	for effect, warning := range map[loop.Effect]bool{loop.EffectRead: false, loop.EffectOnce: true} {
		synctest.Test(t, func(t *testing.T) {
			r := registry(t, fake("slow", func(t *Tool) { t.Spec.Timeout, t.Spec.Effect = 10*time.Second, effect },
				does(func(ctx context.Context, _ loop.Invocation) (any, error) { <-ctx.Done(); return nil, ctx.Err() })))
			began := time.Now()
			got := r.Call(t.Context(), loop.Invocation{Tool: "slow"})
			want := loop.ObservedError
			if warning {
				want = loop.ObservedUnknown
			}
			if got.Status != want || !strings.HasPrefix(plainText(got.Result), "slow did not answer within 10s") || time.Since(began) != 10*time.Second {
				t.Errorf("%s %s after %v", got.Status, got.Result, time.Since(began))
			}
			if strings.Contains(string(got.Result), "may have taken effect") != warning {
				t.Errorf("%s: %s", effect, got.Result)
			}
			synctest.Wait()
			if n := r.Abandoned(); n != 0 {
				t.Errorf("%d calls abandoned", n)
			}
		})
	}
}

func TestCallThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := registry(t, fake("deaf", func(t *Tool) { t.Spec.Timeout = time.Second },
			does(func(context.Context, loop.Invocation) (any, error) { <-release; return "late", nil })))
		began := time.Now()
		got := r.Call(t.Context(), loop.Invocation{Tool: "deaf"})
		if got.Status != loop.ObservedError || time.Since(began) != time.Second {
			t.Errorf("%s %s after %v", got.Status, got.Result, time.Since(began))
		}
		if n := r.Abandoned(); n != 1 {
			t.Errorf("%d calls abandoned, want 1", n)
		}
		close(release)
		synctest.Wait()
		if n := r.Abandoned(); n != 0 {
			t.Errorf("%d calls abandoned after it ended", n)
		}
	})
}

func TestCallCancelled(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	for name, tool := range map[string]Func{
		"heeds": func(ctx context.Context, _ loop.Invocation) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
		"wraps": func(ctx context.Context, _ loop.Invocation) (any, error) {
			<-ctx.Done()
			return "half", errors.New("broken pipe")
		},
		"ignores": func(context.Context, loop.Invocation) (any, error) { <-over; return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := registry(t, fake("wait", does(tool)))
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("the person changed their mind")
			entered := r.current.Load().tools["wait"].Run
			r.current.Load().tools["wait"].Run = func(inner context.Context, c loop.Invocation) (any, error) { cancel(cause); return entered(inner, c) }
			got := r.Call(ctx, loop.Invocation{Tool: "wait"})
			if want := "the call was cut off: the person changed their mind"; got.Status != loop.ObservedCancelled || plainText(got.Result) != want {
				t.Errorf("%s %s", got.Status, got.Result)
			}
		})
	}
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := registry(t, fake("wait", does(func(context.Context, loop.Invocation) (any, error) { t.Error("it was called"); return nil, nil })))
		if got := r.Call(ctx, loop.Invocation{Tool: "wait"}); got.Status != loop.ObservedCancelled {
			t.Errorf("%s %s", got.Status, got.Result)
		}
	})
	t.Run("run deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r := registry(t, fake("wait", does(func(ctx context.Context, _ loop.Invocation) (any, error) { <-ctx.Done(); return nil, ctx.Err() })))
			if got := r.Call(ctx, loop.Invocation{Tool: "wait"}); got.Status != loop.ObservedCancelled {
				t.Errorf("%s %s", got.Status, got.Result)
			}
		})
	})
}

func TestGuard(t *testing.T) {
	buy := fake("buy", func(t *Tool) { t.Guard = "check" })
	invocation := loop.Invocation{
		Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c2", Tool: "buy", Arguments: json.RawMessage(`{"n":9007199254740993}`),
		Results: func() map[string]json.RawMessage { return map[string]json.RawMessage{"c1": json.RawMessage(`{"x":1}`)} },
	}
	for name, test := range map[string]struct {
		check Func
		want  []string
	}{
		"yes":          {returning(GuardVerdict{OK: true}), nil},
		"raw yes":      {returning(json.RawMessage(`{"ok":true}`)), nil},
		"no":           {returning(GuardVerdict{Problems: []string{"too many", " ", "too dear"}}), []string{"too many", "too dear"}},
		"no reason":    {returning(GuardVerdict{}), []string{"check refused this call of buy and gave no reason"}},
		"empty object": {returning(struct{}{}), []string{"check refused this call of buy and gave no reason"}},
		"null":         {returning(nil), []string{"check refused this call of buy and gave no reason"}},
		"text":         {returning("ok"), []string{`check could not check this call of buy: its answer is no verdict: "ok"`}},
		"ok as text":   {returning(json.RawMessage(`{"ok":"true"}`)), []string{`check could not check this call of buy: its answer is no verdict: {"ok":"true"}`}},
		"error":        {func(context.Context, loop.Invocation) (any, error) { return GuardVerdict{OK: true}, errors.New("down") }, []string{"check could not check this call of buy: down"}},
		"panic":        {func(context.Context, loop.Invocation) (any, error) { panic("down") }, []string{"check could not check this call of buy: check broke down in the middle of the call: down"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked loop.Invocation
			r := registry(t, buy, fake("check", does(func(ctx context.Context, c loop.Invocation) (any, error) { asked = c; return test.check(ctx, c) })))
			r.config.Logger = slog.New(slog.DiscardHandler)
			if diff := cmp.Diff(test.want, r.Guard(t.Context(), invocation)); diff != "" {
				t.Error(diff)
			}
			if want := `{"tool":"buy","arguments":{"n":9007199254740993},"results":{"c1":{"x":1}}}`; string(asked.Arguments) != want {
				t.Errorf("the guard was asked %s", asked.Arguments)
			}
			if asked.Key() == invocation.Key() {
				t.Error("the guard has the call's idempotency key")
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		r := registry(t, fake("look"))
		if got := r.Guard(t.Context(), loop.Invocation{Tool: "look"}); got != nil {
			t.Errorf("%q", got)
		}
	})
}

// returning returns a function that returns a value.
func returning(value any) Func {
	return func(context.Context, loop.Invocation) (any, error) { return value, nil }
}

func TestReconcile(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	buy := fake("buy", func(t *Tool) { t.Reconcile = "find" })
	invocation := loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c2", Tool: "buy"}
	for name, test := range map[string]struct {
		find Func
		want loop.Reconciled
	}{
		"done":            {returning(ReconcileVerdict{"done", json.RawMessage(`{"order":7}`)}), loop.Reconciled{Outcome: "done", Result: json.RawMessage(`{"order":7}`)}},
		"done, no result": {returning(ReconcileVerdict{Outcome: "done"}), loop.Reconciled{Outcome: "done", Result: json.RawMessage(`null`)}},
		"not done":        {returning(ReconcileVerdict{Outcome: "not_done"}), loop.Reconciled{Outcome: "not_done"}},
		"unknown":         {returning(ReconcileVerdict{Outcome: "unknown"}), loop.Reconciled{Outcome: "unknown"}},
		"something else":  {returning(ReconcileVerdict{Outcome: "perhaps"}), loop.Reconciled{Outcome: "unknown"}},
		"no verdict":      {returning("done"), loop.Reconciled{Outcome: "unknown"}},
		"error": {func(context.Context, loop.Invocation) (any, error) {
			return ReconcileVerdict{Outcome: "done"}, errors.New("down")
		}, loop.Reconciled{Outcome: "unknown"}},
		"nothing whatever": {returning(nil), loop.Reconciled{Outcome: "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked string
			r := registry(t, buy, fake("find", does(func(ctx context.Context, c loop.Invocation) (any, error) {
				asked = string(c.Arguments)
				return test.find(ctx, c)
			})))
			if diff := cmp.Diff(test.want, r.Reconcile(t.Context(), invocation, started)); diff != "" {
				t.Error(diff)
			}
			if want := `{"tool":"buy","arguments":{},"idempotency_key":"acme/r1/c2","started":"2026-01-02T03:04:05Z"}`; asked != want {
				t.Errorf("it was asked %s", asked)
			}
		})
	}
	t.Run("no check", func(t *testing.T) {
		got := registry(t, fake("buy")).Reconcile(t.Context(), invocation, started)
		if diff := cmp.Diff(loop.Reconciled{Outcome: "unknown"}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("large result", func(t *testing.T) {
		r := registry(t, buy, fake("find", gives(map[string]any{"outcome": "done", "result": strings.Repeat("x", 1<<20)}, nil)))
		if got := r.Reconcile(t.Context(), invocation, started); got.Outcome != "done" || len(got.Result) > 8192 || !json.Valid(got.Result) {
			t.Errorf("%s with %d bytes", got.Outcome, len(got.Result))
		}
	})
}
