package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
)

func names(r *Registry) (list []string) {
	specs, _ := r.Offer(nil)
	for _, s := range specs {
		list = append(list, s.Name+" "+s.Source)
	}
	return list
}

// from returns a change of a fake tool: where it comes from.
func from(source string) func(*Tool) { return func(t *Tool) { t.Spec.Source = source } }

func TestReplace(t *testing.T) {
	r := registry(t, fake("fixed"))
	if err := r.Replace("nats", []Tool{fake("a", from("nats")), fake("b", from("nats"))}); err != nil {
		t.Fatal(err)
	}
	if err := r.Replace("mcp", []Tool{fake("c", from("mcp"))}); err != nil {
		t.Fatal(err)
	}
	changed := r.Changed()
	err := r.Replace("nats", []Tool{
		fake("b", from("nats")), fake("c", from("nats")), fake("fixed", from("nats")), fake("bad name", from("nats")), fake("d", from("nats")),
	})
	if !errors.Is(err, ErrClash) || !strings.Contains(err.Error(), "c is offered by mcp and by nats") ||
		!strings.Contains(err.Error(), "fixed is offered by builtin and by nats") || !strings.Contains(err.Error(), "bad name") {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"b nats", "c mcp", "d nats", "fixed builtin"}, names(r)); diff != "" {
		t.Error(diff)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	if err := r.Replace("mcp", nil); err != nil {
		t.Fatal(err)
	}
	if got := r.Call(t.Context(), loop.Invocation{Tool: "c"}); got.Status != loop.ObservedError || !strings.Contains(string(got.Result), "there is no tool") {
		t.Errorf("%s %s", got.Status, got.Result)
	}
}

func TestReplaceWithAnotherSchemaFailsClosed(t *testing.T) {
	r := registry(t)
	if err := r.Replace("nats", []Tool{fake("a")}); err != nil {
		t.Fatal(err)
	}
	pinned := r.List()[0].Digest
	ran := false
	err := r.Replace("nats", []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage(`{"type":"object","required":["x"]}`) },
		does(func(context.Context, loop.Invocation) (any, error) { ran = true; return nil, nil }))})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Call(t.Context(), loop.Invocation{Tool: "a", Digest: pinned, Arguments: json.RawMessage(`{"x":1}`)})
	if got.Status != loop.ObservedError || ran || !strings.Contains(string(got.Result), "changed since this run began") {
		t.Errorf("%s %s, ran %t", got.Status, got.Result, ran)
	}
}

func TestMissingGuardOfAnOpenRegistrySaysNo(t *testing.T) {
	r, err := New(Config{Open: true, Tools: []Tool{fake("buy", func(t *Tool) { t.Guard = "check" })}})
	if err != nil {
		t.Fatal(err)
	}
	problems := r.Guard(t.Context(), loop.Invocation{Tool: "buy"})
	if len(problems) != 1 || !strings.Contains(problems[0], `there is no tool "check" here`) {
		t.Errorf("%q", problems)
	}
	if err := r.Replace("nats", []Tool{fake("check", gives(GuardVerdict{OK: true}, nil))}); err != nil {
		t.Fatal(err)
	}
	if problems := r.Guard(t.Context(), loop.Invocation{Tool: "buy"}); problems != nil {
		t.Errorf("%q", problems)
	}
}

func TestOfferAndCallWhileTheRegistryChanges(t *testing.T) {
	r := registry(t, fake("fixed"))
	var changing, using sync.WaitGroup
	done := make(chan struct{})
	for g := range 2 {
		changing.Go(func() {
			for i := range 200 {
				if err := r.Replace(fmt.Sprint("g", g), []Tool{fake(fmt.Sprintf("g%d_%d", g, i%3))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		using.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, name := range []string{"fixed", "g0_1"} {
					if got := r.Call(t.Context(), loop.Invocation{Tool: name}); name == "fixed" && got.Status != loop.ObservedOK {
						t.Errorf("%s", got.Result)
					}
				}
				specs, _ := r.Offer([]string{"g*"})
				if len(specs) > 2 {
					t.Errorf("%d tools", len(specs))
				}
			}
		})
	}
	changing.Wait()
	close(done)
	using.Wait()
}

func TestThousandTools(t *testing.T) {
	list := make([]Tool, 1000)
	for i := range list {
		list[i] = fake(fmt.Sprintf("tool_%04d", i))
	}
	r := registry(t)
	if err := r.Replace("mcp", list); err != nil {
		t.Fatal(err)
	}
	if specs, _ := r.Offer([]string{"tool_00*"}); len(specs) != 100 {
		t.Errorf("%d tools", len(specs))
	}
	if got := r.Call(t.Context(), loop.Invocation{Tool: "tool_0999"}); got.Status != loop.ObservedOK {
		t.Errorf("%s", got.Result)
	}
}

func TestSchemaThatRecurses(t *testing.T) {
	tree := `{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"},"n":{"type":"integer"}},"additionalProperties":false}`
	endless := `{"type":"object","allOf":[{"$ref":"#"}]}`
	r := registry(t, fake("tree", func(t *Tool) { t.Spec.Schema = json.RawMessage(tree) }))
	arguments := `{"n":"1"}`
	for range 20 {
		arguments = `{"left":` + arguments + `,"right":{"n":2}}`
	}
	if got := r.Call(t.Context(), loop.Invocation{Tool: "tree", Arguments: json.RawMessage(arguments)}); got.Status != loop.ObservedOK {
		t.Errorf("%s", got.Result)
	}
	arguments = strings.Replace(arguments, `"1"`, `"x"`, 1)
	if got := r.Call(t.Context(), loop.Invocation{Tool: "tree", Arguments: json.RawMessage(arguments)}); got.Status != loop.ObservedError {
		t.Errorf("%s", got.Result)
	}
	if err := r.Replace("mcp", []Tool{fake("endless", func(t *Tool) { t.Spec.Schema = json.RawMessage(endless) })}); err == nil {
		got := r.Call(t.Context(), loop.Invocation{Tool: "endless"})
		if got.Status != loop.ObservedError || !strings.Contains(string(got.Result), "refers to itself so often") {
			t.Errorf("%s %s", got.Status, got.Result)
		}
	}
}

func TestTransportFaults(t *testing.T) {
	broken := &Fault{Err: errors.New("connection reset")}
	for name, test := range map[string]struct {
		effect loop.Effect
		faults []error // one for each call until it works
		want   string
		calls  int
	}{
		"read, once broken":      {loop.EffectRead, []error{broken}, `ok "fine"`, 2},
		"idempotent, broken":     {loop.EffectIdempotent, []error{broken, broken, broken}, `ok "fine"`, 4},
		"read, never works":      {loop.EffectRead, []error{broken, broken, broken, broken, broken}, `error "connection reset"`, 4},
		"wrapped":                {loop.EffectRead, []error{fmt.Errorf("look up: %w", broken)}, `ok "fine"`, 2},
		"the tool's own error":   {loop.EffectRead, []error{errors.New("no such city")}, `error "no such city"`, 1},
		"final":                  {loop.EffectRead, []error{&Fault{Err: errors.New("it died"), Sent: true, Final: true}}, `error "it died"`, 1},
		"once, nothing was sent": {loop.EffectOnce, []error{broken}, `error "connection reset"`, 1},
		"once, it was sent": {
			loop.EffectOnce,
			[]error{&Fault{Err: errors.New("connection reset"), Sent: true}},
			`unknown "connection reset; it may have taken effect all the same: find out before you call it again"`, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				r := registry(t, fake("try", func(t *Tool) { t.Spec.Effect = test.effect }, does(func(context.Context, loop.Invocation) (any, error) {
					if calls++; calls <= len(test.faults) {
						return nil, test.faults[calls-1]
					}
					return "fine", nil
				})))
				got := r.Call(t.Context(), loop.Invocation{Tool: "try"})
				if text := fmt.Sprintf("%s %s", got.Status, got.Result); text != test.want || calls != test.calls {
					t.Errorf("got %s after %d calls, want %s after %d", text, calls, test.want, test.calls)
				}
			})
		})
	}
}

func TestMaxParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		r := registry(t, fake("slow", func(t *Tool) { t.MaxParallel, t.Spec.Timeout = 3, 10*time.Second }, does(func(context.Context, loop.Invocation) (any, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil, nil
		})))
		began := time.Now()
		var calls sync.WaitGroup
		for range 9 {
			calls.Go(func() {
				if got := r.Call(t.Context(), loop.Invocation{Tool: "slow"}); got.Status != loop.ObservedOK {
					t.Errorf("%s", got.Result)
				}
			})
		}
		calls.Wait()
		if most != 3 || time.Since(began) != 3*time.Second {
			t.Errorf("%d at once, all in %v", most, time.Since(began))
		}
	})
}

func TestBusyToolIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		r := registry(t, fake("deaf", func(t *Tool) { t.MaxParallel, t.Spec.Timeout, t.Spec.Effect = 1, time.Second, loop.EffectOnce },
			does(func(context.Context, loop.Invocation) (any, error) { calls.Add(1); <-release; return nil, nil })))
		if got := r.Call(t.Context(), loop.Invocation{Tool: "deaf"}); got.Status != loop.ObservedUnknown {
			t.Errorf("%s %s", got.Status, got.Result)
		}
		// The first call was given up and still runs: it still has the only turn, and nothing of the second was sent.
		got := r.Call(t.Context(), loop.Invocation{Tool: "deaf"})
		if got.Status != loop.ObservedError || !strings.HasPrefix(plainText(got.Result), "deaf was not called: too many calls") || calls.Load() != 1 {
			t.Errorf("%s %s after %d calls", got.Status, got.Result, calls.Load())
		}
		close(release)
		synctest.Wait()
		if got := r.Call(t.Context(), loop.Invocation{Tool: "deaf"}); got.Status != loop.ObservedOK {
			t.Errorf("%s %s", got.Status, got.Result)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(t, fake("look", func(t *Tool) { t.Rate = Rate{2, time.Second} }))
		began := time.Now()
		for range 6 {
			if got := r.Call(t.Context(), loop.Invocation{Tool: "look"}); got.Status != loop.ObservedOK {
				t.Fatalf("%s", got.Result)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("6 calls took %v", took)
		}
	})
}

func TestSecretsAreHidden(t *testing.T) {
	const canary = `s3cr3t/"canary"+value`
	secrets := NewSecrets(map[string]string{"TOKEN": canary, "PORT": "4222"})
	var log bytes.Buffer
	r, err := New(Config{Secrets: secrets, Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxResult: 300, Tools: []Tool{
		fake("described", func(t *Tool) { t.Spec.Description = "asks with " + canary }),
		fake("text", gives("you sent "+canary+" to port 4222", nil)),
		fake("json", gives(map[string]any{"echo": []string{canary}, canary: 1}, nil)),
		fake("raw", gives(json.RawMessage(`{"echo":"s3cr3t\/\"canary\"+value"}`), nil)),
		fake("url", gives("https://example.org/?key=s3cr3t%2F%22canary%22%2Bvalue", nil)),
		fake("fails", gives(nil, errors.New("401 for "+canary))),
		fake("large", gives(strings.Repeat("x", 200)+canary+strings.Repeat("x", 1000), nil)),
		fake("faults", func(t *Tool) { t.Spec.Effect = loop.EffectOnce }, gives(nil, &Fault{Err: errors.New("sent " + canary), Sent: true})),
		fake("panics", does(func(context.Context, loop.Invocation) (any, error) { panic(canary) })),
	}})
	if err != nil {
		t.Fatal(err)
	}
	specs, _ := r.Offer(nil)
	for _, s := range specs {
		out := r.Call(t.Context(), loop.Invocation{Tool: s.Name})
		if all := s.Description + string(out.Result) + string(out.Full); strings.Contains(all, "s3cr3t") || strings.Contains(all, "canary") {
			t.Errorf("%s: %s", s.Name, all)
		}
		if s.Name == "text" && string(out.Result) != `"you sent [hidden: TOKEN] to port 4222"` {
			t.Errorf("%s", out.Result)
		}
	}
	if !strings.Contains(log.String(), "tool panicked") || strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("the log: %s", log.String())
	}
}

func TestTryAsksTheGuard(t *testing.T) {
	ran := false
	r := registry(t, fake("buy", func(t *Tool) { t.Guard = "check" }, does(func(context.Context, loop.Invocation) (any, error) { ran = true; return "done", nil })),
		fake("check", gives(GuardVerdict{Problems: []string{"too dear"}}, nil)), fake("look"))
	if got := r.Try(t.Context(), "buy", nil); got.Status != loop.ObservedError || ran || !strings.Contains(string(got.Result), "too dear") {
		t.Errorf("%s %s", got.Status, got.Result)
	}
	if got := r.Try(t.Context(), "look", nil); got.Status != loop.ObservedOK {
		t.Errorf("%s %s", got.Status, got.Result)
	}
	if got := r.Try(t.Context(), "look", json.RawMessage(`[]`)); got.Status != loop.ObservedError {
		t.Errorf("%s %s", got.Status, got.Result)
	}
}

// TestSchemaThatMultiplies has schemas that cost little to write and would take for ever to check.
func TestSchemaThatMultiplies(t *testing.T) {
	deep := strings.Repeat(`{"x":`, 60) + `1` + strings.Repeat(`}`, 60)
	ladder := `{"$ref":"#/$defs/a40","$defs":{"a0":{"type":"object"}`
	for i := 1; i <= 40; i++ {
		ladder += fmt.Sprintf(`,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i-1, i-1)
	}
	ladder += `}}`
	hidden := `{"$ref":"#/$defs/b0","$defs":{"b99":{"$ref":"#/$defs/a40"}`
	for i := range 99 {
		hidden += fmt.Sprintf(`,"b%d":{"$ref":"#/$defs/b%d"}`, i, i+1)
	}
	hidden += strings.TrimPrefix(ladder, `{"$ref":"#/$defs/a40","$defs":{"a0":{"type":"object"}`)
	hidden = strings.Replace(hidden, `"b99"`, `"a0":{"type":"object"},"b99"`, 1)
	for name, schema := range map[string]string{
		"hidden":      hidden,
		"properties":  `{"type":["object","integer"],"properties":{"x":{"anyOf":[{"allOf":[{"$ref":"#"},{"$ref":"#"}]}]}}}`,
		"ladder":      ladder,
		"additional":  `{"additionalProperties":{"oneOf":[{"$ref":"#"},{"$ref":"#"}]}}`,
		"conditional": `{"properties":{"x":{"if":{"$ref":"#"},"then":{"$ref":"#"}}}}`,
	} {
		r := registry(t, fake("multiply", func(t *Tool) { t.Spec.Schema = json.RawMessage(schema) }))
		got := r.Call(t.Context(), loop.Invocation{Tool: "multiply", Arguments: json.RawMessage(deep)})
		if got.Status != loop.ObservedError || !strings.Contains(string(got.Result), "refers to itself so often") {
			t.Errorf("%s: %s %s", name, got.Status, got.Result)
		}
	}
	for _, schema := range []string{`{"$dynamicRef":"#x"}`, `{"$ref":"#anchor","$defs":{"a":{"$anchor":"anchor"}}}`} {
		if _, err := New(Config{Tools: []Tool{fake("a", func(t *Tool) { t.Spec.Schema = json.RawMessage(schema) })}}); err == nil {
			t.Errorf("%s was taken", schema)
		}
	}
}

func TestWhatAToolSaysOfItselfIsBounded(t *testing.T) {
	r := registry(t, fake("talks", func(t *Tool) { t.Spec.Description = strings.Repeat("Use me! \x1b[2J", 10_000) }))
	if d := r.List()[0].Description; len(d) > maxDescription+3 || strings.Contains(d, "\x1b") {
		t.Errorf("%d bytes: %.40s", len(d), d)
	}
	large := `{"type":"object","description":"` + strings.Repeat("x", maxToolSchema) + `"}`
	if err := r.Replace("mcp", []Tool{fake("large", func(t *Tool) { t.Spec.Schema = json.RawMessage(large) })}); err == nil {
		t.Error("a huge schema was taken")
	}
}

// BenchmarkParallelCalls makes 20 runs call 5 tools of 200 ms each at once. overlap is how many calls went on at the same
// time on average: 100 would be perfect.
func BenchmarkParallelCalls(b *testing.B) {
	const runs, each, length = 20, 5, 200 * time.Millisecond
	r, err := New(Config{Tools: []Tool{fake("wait", does(func(ctx context.Context, _ loop.Invocation) (any, error) {
		select {
		case <-time.After(length):
		case <-ctx.Done():
		}
		return nil, nil
	}))}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var calls sync.WaitGroup
		for run := range runs {
			for call := range each {
				calls.Go(func() {
					c := loop.Invocation{Run: loop.RunID{Tenant: "t", Run: fmt.Sprint("r", run)}, Call: fmt.Sprint("c", call), Tool: "wait"}
					if got := r.Call(b.Context(), c); got.Status != loop.ObservedOK {
						b.Errorf("%s", got.Result)
					}
				})
			}
		}
		calls.Wait()
	}
	wall := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(wall.Microseconds())/1000, "ms/round")
	b.ReportMetric(float64(runs*each*length)/float64(wall), "overlap")
}
