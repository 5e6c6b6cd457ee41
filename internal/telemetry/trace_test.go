package telemetry_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
	"ratchet/internal/telemetry"
	builtin "ratchet/internal/tools"
)

const askedFrom = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// recorded is a telemetry of a worker with the spans that it has exported.
type recorded struct {
	*telemetry.Telemetry
	exporter *tracetest.InMemoryExporter
}

func record(t *testing.T, conf telemetry.Config) recorded {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	conf.Exporter, conf.Endpoint = exporter, "https://api.openai.com/v1"
	tel, err := telemetry.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	return recorded{tel, exporter}
}

// spans returns what has ended so far.
func (r recorded) spans(t *testing.T) tracetest.SpanStubs {
	t.Helper()
	if err := r.Flush(bustest.Context(t)); err != nil {
		t.Fatal(err)
	}
	return r.exporter.GetSpans()
}

// attributes returns those of a span whose keys begin with one of the prefixes, as text.
func attributes(s tracetest.SpanStub, prefixes ...string) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(string(a.Key), p) }) {
			out[string(a.Key)] = a.Value.String()
		}
	}
	return out
}

func value(s tracetest.SpanStub, key attribute.Key) string {
	return attributes(s, string(key))[string(key)]
}

// shape writes spans as lines in the order of their beginning: their names, whose children they are, and who made them.
func shape(t *testing.T, spans tracetest.SpanStubs) (lines []string) {
	t.Helper()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	names := map[trace.SpanID]string{}
	for _, s := range spans {
		if before := names[s.SpanContext.SpanID()]; before != "" {
			t.Errorf("%s and %s have one id", before, s.Name)
		}
		names[s.SpanContext.SpanID()] = s.Name
	}
	for _, s := range spans {
		parent := "nobody"
		if s.Parent.SpanID().IsValid() {
			parent = names[s.Parent.SpanID()]
			if parent == "" {
				parent = s.Parent.SpanID().String()
			}
		}
		line := fmt.Sprintf("%s < %s", s.Name, parent)
		if worker := value(s, "ratchet.worker"); worker != "" {
			line += " by " + worker + ": " + value(s, "ratchet.outcome")
		}
		lines = append(lines, line)
	}
	return lines
}

// TestOneTraceAcrossWorkers kills a worker in the middle of a tool call; another one takes the run over, asks a person, and a
// third drive ends it. All spans are one trace, and none hangs below one that was lost.
func TestOneTraceAcrossWorkers(t *testing.T) {
	for name, from := range map[string]string{"its own": "", "that of whoever asks": askedFrom} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := make(chan string, 8)
			hold := make(chan struct{}, 1)
			hold <- struct{}{}
			slow := builtin.Tool{
				Spec: loop.ToolSpec{Name: "slow", Description: "d", Schema: []byte(`{"type":"object"}`), Effect: loop.EffectRead},
				Run: func(ctx context.Context, c loop.Invocation) (any, error) {
					calls <- builtin.Traceparent(ctx, c)
					select {
					case <-hold: // the first call never ends
						<-ctx.Done()
						return nil, context.Cause(ctx)
					default:
						return "done", nil
					}
				},
			}
			script, heads := say(planned, callOf("slow"), asks, answered), make(chan string, 8)
			r := newRig(t, func(q llmtest.Request) llmtest.Reply { heads <- q.Header.Get("traceparent"); return script(q) }, slow)
			one := record(t, telemetry.Config{Worker: "one", Model: "gpt-4o-mini"})
			first := r.start("one", one.Telemetry)
			r.submit(`{"id": "a", "goal": "g", "session": "s"}`, from)
			<-calls
			spans := one.spans(t) // what it has exported when it is killed; nothing later counts
			first.nc.Close()

			two := record(t, telemetry.Config{Worker: "two", Model: "gpt-4o-mini"})
			r.start("two", two.Telemetry)
			r.until("a", "question")
			if _, err := r.bus.PublishReply(r.ctx(), loop.RunID{Tenant: "acme", Run: "a"}, []byte(`{"text": "This."}`), ""); err != nil {
				t.Fatal(err)
			}
			r.untilClosed("a")
			r.eventually("the run's span", func() bool {
				return slices.ContainsFunc(two.spans(t), func(s tracetest.SpanStub) bool { return s.Name == "invoke_agent plan_react" })
			})
			spans = append(spans, two.spans(t)...)

			parent := "nobody"
			if from != "" {
				parent = from[36:52]
			}
			want := []string{
				"invoke_agent plan_react < " + parent,
				"chat gpt-4o-mini < invoke_agent plan_react", // by one, whose drive is lost with it
				"chat gpt-4o-mini < invoke_agent plan_react",
				"drive < invoke_agent plan_react by two: parked",
				"execute_tool slow < invoke_agent plan_react",
				"chat gpt-4o-mini < invoke_agent plan_react",
				"drive < invoke_agent plan_react by two: ended",
				"chat gpt-4o-mini < invoke_agent plan_react",
			}
			if diff := cmp.Diff(want, shape(t, spans)); diff != "" {
				t.Errorf("the spans differ (-want +got):\n%s", diff)
			}
			traces, byID := map[string]bool{}, map[string]string{}
			for _, s := range spans {
				traces[s.SpanContext.TraceID().String()] = true
				byID[s.SpanContext.SpanID().String()] = s.Name
			}
			if len(traces) != 1 || from != "" && !traces[from[3:35]] {
				t.Errorf("the traces are %v", slices.Collect(maps.Keys(traces)))
			}
			// Whoever is asked is told the place of the span that stands for the question.
			if got := byID[(<-calls)[36:52]]; got != "execute_tool slow" {
				t.Errorf("the tool is told the place of %q", got)
			}
			for range 4 {
				if got := byID[(<-heads)[36:52]]; got != "chat gpt-4o-mini" {
					t.Errorf("the model is told the place of %q", got)
				}
			}
			for _, s := range spans {
				if s.Name == "drive" && value(s, "ratchet.outcome") == "parked" {
					if got := value(s, "ratchet.taken_over_from") + " " + value(s, "ratchet.waits_for"); got != "one ask" {
						t.Errorf("the drive that took the run over says %q", got)
					}
				}
			}
		})
	}
}

// TestWhatSpansSay compares the attributes of each kind of span with the convention, without and with what was said.
func TestWhatSpansSay(t *testing.T) {
	for _, content := range []bool{false, true} {
		t.Run(fmt.Sprint("content ", content), func(t *testing.T) {
			t.Parallel()
			echo := builtin.Tool{
				Spec: loop.ToolSpec{Name: "echo", Description: "d", Schema: []byte(`{"type":"object"}`), Effect: loop.EffectRead},
				Run:  func(context.Context, loop.Invocation) (any, error) { return "hush", nil },
			}
			r := newRig(t, say(planned, callOf("echo"), answered), echo)
			one := record(t, telemetry.Config{Worker: "one", Model: "gpt-4o-mini", Content: content})
			w := r.start("one", one.Telemetry)
			r.submit(`{"id": "a", "goal": "hush", "session": "s", "model_options": {"temperature": 0.5}}`, "")
			r.untilClosed("a")
			w.stop()
			seen := map[string]tracetest.SpanStub{}
			for _, s := range one.spans(t) {
				seen[s.Name] = s
				for _, a := range s.Attributes {
					if said := strings.Contains(a.Value.String(), "hush"); said && !content {
						t.Errorf("%s says %s=%s", s.Name, a.Key, a.Value.String())
					}
				}
			}
			common := map[string]string{"ratchet.run": "a", "ratchet.tenant": "acme"}
			for name, want := range map[string]map[string]string{
				"invoke_agent plan_react": {
					"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "plan_react", "gen_ai.conversation.id": "s",
					"gen_ai.usage.input_tokens": "300", "gen_ai.usage.output_tokens": "60",
					"ratchet.status": "done", "ratchet.events": "7", "ratchet.turns": "3", "ratchet.cost_usd": "0",
				},
				"chat gpt-4o-mini": {
					"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o-mini",
					"gen_ai.request.stream": "false", "gen_ai.request.temperature": "0.5", "gen_ai.output.type": "json",
					"gen_ai.response.finish_reasons": `["stop"]`, "gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "20",
					"gen_ai.response.model": value(seen["chat gpt-4o-mini"], "gen_ai.response.model"), "ratchet.purpose": "step",
				},
				"execute_tool echo": {
					"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo", "gen_ai.tool.call.id": "c1",
					"gen_ai.tool.type": "function", "ratchet.outcome": "ok",
				},
			} {
				maps.Copy(want, common)
				got := attributes(seen[name], "gen_ai.", "ratchet.")
				for _, key := range []string{
					"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result",
				} {
					delete(got, key)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if !content {
				return
			}
			for span, key := range map[string]attribute.Key{
				"invoke_agent plan_react": "gen_ai.input.messages", "chat gpt-4o-mini": "gen_ai.input.messages", "execute_tool echo": "gen_ai.tool.call.arguments",
			} {
				if got := value(seen[span], key); !strings.Contains(got, "hush") {
					t.Errorf("%s of %s is %q", key, span, got)
				}
			}
			if got := value(seen["invoke_agent plan_react"], "gen_ai.output.messages"); got != `[{"role":"assistant","parts":[{"type":"text","content":"It is 42."}]}]` {
				t.Errorf("the answer is %s", got)
			}
		})
	}
}

// TestFailuresAreMarked has a model refuse: the spans say what kind of failure it was and not what was said.
func TestFailuresAreMarked(t *testing.T) {
	r := newRig(t, say("!hush"))
	one := record(t, telemetry.Config{Worker: "one", Model: "gpt-4o-mini"})
	w := r.start("one", one.Telemetry)
	r.submit(`{"id": "a", "goal": "g"}`, "")
	r.untilClosed("a")
	w.stop()
	got := map[string]string{}
	for _, s := range one.spans(t) {
		got[s.Name] = s.Status.Code.String() + " " + s.Status.Description + " " + value(s, "error.type")
	}
	want := map[string]string{
		"invoke_agent plan_react": "Error model_error model_error", "chat gpt-4o-mini": "Error auth auth", "drive": "Unset  ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnsampledTraceStaysUnsampled makes no span of a run whose trace is not recorded, and passes that on.
func TestUnsampledTraceStaysUnsampled(t *testing.T) {
	script, heads := say(planned, answered), make(chan string, 8)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply { heads <- q.Header.Get("traceparent"); return script(q) })
	one := record(t, telemetry.Config{Worker: "one"})
	w := r.start("one", one.Telemetry)
	r.submit(`{"id": "a", "goal": "g"}`, askedFrom[:53]+"00")
	r.untilClosed("a")
	w.stop()
	if spans := one.spans(t); len(spans) > 0 {
		t.Errorf("%d spans", len(spans))
	}
	if head := <-heads; head[:36] != askedFrom[:36] || head[53:] != "00" {
		t.Errorf("the model is told %s", head)
	}
}
