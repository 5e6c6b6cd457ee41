package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"ratchet/internal/loop"
	"ratchet/internal/telemetry"
)

// scrape asks for the metrics as Prometheus does.
func scrape(t *testing.T, tel *telemetry.Telemetry) string {
	t.Helper()
	server := httptest.NewServer(tel.Handler())
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.StatusCode, err, body)
	}
	return string(body)
}

// sample returns the value of a series.
func sample(t *testing.T, page, series string) float64 {
	t.Helper()
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Errorf("there is no %s", series)
	return -1
}

// TestMetricsOfRealRuns looks at what a worker shows after a run that was answered, one that failed, one that waits for a
// person, a task that can't be accepted, a reply to nobody, and a refused message.
func TestMetricsOfRealRuns(t *testing.T) {
	r := newRig(t, say(planned, "no JSON", message("tool_call", 0, `"name": "calculate", "arguments": {"expression": "6*7"}`), answered))
	tel, err := telemetry.New(telemetry.Config{Worker: "one", Model: "gpt-4o-mini"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	w := r.start("one", tel)
	if err := tel.Report(telemetry.Sources{Load: w.Load, MemoryPaused: func() bool { return true }, Queues: func(ctx context.Context) (telemetry.Queues, error) {
		depths, dead, err := r.bus.Depths(ctx)
		q := telemetry.Queues{Dead: dead}
		for _, d := range depths {
			q.Each = append(q.Each, telemetry.Queue{Name: d.Queue, Waiting: d.Waiting, InHand: d.InHand, Oldest: d.Oldest})
		}
		return q, err
	}}); err != nil {
		t.Fatal(err)
	}
	r.submit(`{"id": "a", "goal": "g"}`, "")
	r.untilClosed("a")
	r.submit(`{"id": "b", "goal": "g", "limits": {"max_steps": 1}}`, "")
	r.untilClosed("b")
	r.submit(`{"id": "c", "goal": ""}`, "")
	r.untilClosed("c")
	tel.MemoryUsed("recall", "slow", time.Second)
	tel.MemoryUsed("recall", "ok", time.Millisecond)
	if _, err := r.bus.PublishReply(r.ctx(), loop.RunID{Tenant: "acme", Run: "nobody"}, []byte(`{"text": "x"}`), ""); err != nil {
		t.Fatal(err)
	}
	r.eventually("two dead letters", func() bool { b, err := r.bus.Backlog(r.ctx()); return err == nil && b.Dead == 2 && b.Inbox == 0 })
	w.stop()

	page := scrape(t, tel)
	for series, want := range map[string]float64{
		`ratchet_runs_total{reason="none",status="done"}`:                              1,
		`ratchet_runs_total{reason="steps_exhausted",status="failed"}`:                 1,
		`ratchet_runs_total{reason="invalid_task",status="failed"}`:                    1,
		`ratchet_tenant_runs_total{status="failed",tenant="acme"}`:                     2,
		`ratchet_runs_accepted_total{strategy="plan_react"}`:                           2,
		`ratchet_events_total{type="accepted"}`:                                        2,
		`ratchet_rejections_total{model="test-model"}`:                                 1,
		`ratchet_model_requests_total{model="test-model",outcome="ok",purpose="step"}`: 5,
		`ratchet_model_request_seconds_count{model="test-model"}`:                      5,
		`ratchet_model_tokens_total{direction="input",model="test-model"}`:             500,
		`ratchet_tenant_tokens_total{direction="output",tenant="acme"}`:                100,
		`ratchet_tool_calls_total{outcome="ok",tool="calculate"}`:                      1,
		`ratchet_tenant_tool_calls_total{tenant="acme"}`:                               1,
		`ratchet_drives_total{outcome="ended"}`:                                        3,
		`ratchet_takeovers_total`:                                                      0,
		`ratchet_lease_losses_total`:                                                   0,
		`ratchet_dead_letters_total{kind="task",reason="invalid_task"}`:                1,
		`ratchet_dead_letters_total{kind="reply",reason="unknown_run"}`:                1,
		`ratchet_dead_letters_stored`:                                                  2,
		`ratchet_deliveries_total{kind="task"}`:                                        3,
		`ratchet_queue_messages{queue="inbox",state="waiting"}`:                        0,
		`ratchet_queue_oldest_seconds{queue="wakes"}`:                                  0,
		`ratchet_memory_degraded_total{reason="slow"}`:                                 1,
		`ratchet_memory_operations_total{operation="recall",result="ok"}`:              1,
		`ratchet_memory_circuit_open`:                                                  1,
		`ratchet_runs_in_hand`:                                                         0,
		`ratchet_run_slots`:                                                            64,
	} {
		if got := sample(t, page, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if n := sample(t, page, "ratchet_step_overhead_seconds_count"); n < 4 || n != sample(t, page, "ratchet_steps_total") || n != sample(t, page, "ratchet_state_lag_events_count") {
		t.Errorf("%v steps", n)
	}
	if sum := sample(t, page, "ratchet_step_overhead_seconds_sum"); sum <= 0 || sum > 60 {
		t.Errorf("the steps took %v s", sum)
	}
	for _, runtime := range []string{"go_goroutines", "go_memstats_heap_alloc_bytes", "process_cpu_seconds_total"} {
		sample(t, page, runtime)
	}
	lint(t, page)
}

// lint is promtool's check of what a scrape gave.
func lint(t *testing.T, page string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestEveryMetricIsOnThePage has all that the catalog lists happen once: a name that is listed and never shown would be found.
func TestEveryMetricIsOnThePage(t *testing.T) {
	tel, err := telemetry.New(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	now := time.Now()
	if err := tel.Report(telemetry.Sources{
		Queues: func(context.Context) (telemetry.Queues, error) {
			return telemetry.Queues{Each: []telemetry.Queue{{Name: "inbox", Waiting: 3, Oldest: now.Add(-time.Minute)}}}, nil
		},
		Load:         func() loop.Load { return loop.Load{Open: map[loop.Status]int{loop.StatusWaiting: 7}, Swept: now} },
		MemoryPaused: func() bool { return false },
	}); err != nil {
		t.Fatal(err)
	}
	var all answering
	c := tel.Watch(loop.Config{Model: all, Tools: all, Journal: all, Heads: conflicted{}, Sessions: all, Graveyard: all})
	ctx := t.Context()
	for _, data := range []loop.Data{
		loop.Accepted{}, loop.Rejection{}, loop.Question{Kind: loop.KindApproval}, loop.Wait{Session: true}, loop.Wait{Call: "c1"}, loop.Wait{}, loop.Cancelled{},
	} {
		if _, err := c.Journal.Append(ctx, loop.Event{RunID: loop.RunID{Tenant: "acme", Run: "a"}, N: 1, Data: data}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Model.Complete(ctx, loop.ModelRequest{Model: "m"}); err != nil {
		t.Fatal(err)
	}
	c.Tools.Call(ctx, loop.Invocation{Tool: "t"})
	if _, err := c.Heads.Save(ctx, loop.Head{}, 1); !errors.Is(err, loop.ErrConflict) {
		t.Fatal(err)
	}
	if err := c.Graveyard.Bury(ctx, loop.Delivery{Kind: loop.DeliverTask}, "failed", ""); err != nil {
		t.Fatal(err)
	}
	c.Observer.Delivered(&loop.Delivery{Kind: loop.DeliverTask, Attempt: 1, Time: now.Add(time.Hour)})
	c.Observer.Delivered(&loop.Delivery{Kind: loop.DeliverTask, Attempt: 2})
	state := &loop.State{}
	dctx := c.Observer.Driving(ctx, loop.Driving{State: state, From: "two"})
	c.Observer.Stepped(dctx, loop.Stepped{Took: time.Millisecond, Behind: 3})
	c.Observer.Driven(dctx, loop.Driven{State: state, Outcome: loop.DriveLeaseLost})
	tel.MemoryUsed("recall", "down", time.Second)

	families, err := tel.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "ratchet_") {
			line := name + " " + strings.ToLower(f.GetType().String())
			for _, l := range f.GetMetric()[0].GetLabel() {
				line += " " + l.GetName()
			}
			got = append(got, line)
		}
	}
	for _, m := range telemetry.Catalog() {
		if m.Name != "ratchet_trace_spans_total" { // there is no exporter
			want = append(want, strings.Join(append([]string{m.Name, m.Kind}, slices.Sorted(slices.Values(m.Labels))...), " "))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the metrics differ (-catalog +page):\n%s", diff)
	}
	page := scrape(t, tel)
	for series, want := range map[string]float64{
		`ratchet_conflicts_total{store="state"}`: 1, `ratchet_takeovers_total`: 1, `ratchet_lease_losses_total`: 1,
		`ratchet_redeliveries_total{kind="task"}`: 1, `ratchet_open_runs{status="waiting"}`: 7,
		`ratchet_waits_total{for="session"}`: 1, `ratchet_waits_total{for="model"}`: 1, `ratchet_questions_total{kind="approval"}`: 1,
		`ratchet_queue_wait_seconds_sum{kind="task"}`: 0, `ratchet_state_lag_events_sum`: 3,
	} {
		if got := sample(t, page, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if age := sample(t, page, `ratchet_queue_oldest_seconds{queue="inbox"}`); age < 60 || age > 120 {
		t.Errorf("the oldest message is %v s old", age)
	}
	lint(t, page)
}

// conflicted is always too late.
type conflicted struct{ loop.Heads }

func (conflicted) Save(context.Context, loop.Head, uint64) (uint64, error) {
	return 0, loop.ErrConflict
}

// TestQueuesAreAskedSeldom does not burden the server with each scrape, and shows nothing where it does not answer.
func TestQueuesAreAskedSeldom(t *testing.T) {
	tel, err := telemetry.New(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	asked := 0
	if err := tel.Report(telemetry.Sources{Queues: func(context.Context) (telemetry.Queues, error) {
		asked++
		return telemetry.Queues{}, errors.New("away")
	}}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if page := scrape(t, tel); strings.Contains(page, "ratchet_dead_letters_stored") {
			t.Fatal("it shows what it does not know")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
