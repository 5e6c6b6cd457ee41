package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"ratchet/internal/telemetry"
)

// receiver takes traces as a collector does.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	header http.Header
	got    []*v1.ResourceSpans
	errs   []error
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.take(q); err != nil {
			r.errs = append(r.errs, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(q *http.Request) error {
	if q.Method != http.MethodPost || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s with %s", q.Method, q.URL.Path, q.Header.Get("Content-Type"))
	}
	var body io.Reader = q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	encoded, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(encoded, &request); err != nil {
		return err
	}
	r.header = q.Header
	r.got = append(r.got, request.GetResourceSpans()...)
	return nil
}

// TestTracesReachACollector runs the real exporter, as the environment of the process sets it up, against a server that
// reads what it sends.
func TestTracesReachACollector(t *testing.T) {
	server := receive(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	exporter, err := telemetry.OTLP(t.Context(), os.Getenv)
	if err != nil || exporter == nil {
		t.Fatalf("no exporter: %v", err)
	}
	tel, err := telemetry.New(telemetry.Config{Worker: "one", Version: "v1.2.3", Model: "gpt-4o-mini", Exporter: exporter})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, say(planned, answered))
	w := r.start("one", tel)
	r.submit(`{"id": "a", "goal": "g"}`, askedFrom)
	r.untilClosed("a")
	w.stop()
	tel.Close() // sends what is left

	server.mu.Lock()
	defer server.mu.Unlock()
	for _, err := range server.errs {
		t.Error(err)
	}
	if server.header.Get("x-key") != "secret" {
		t.Errorf("the headers are %v", server.header)
	}
	var names, about []string
	for _, rs := range server.got {
		for _, a := range rs.GetResource().GetAttributes() {
			about = append(about, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, scope := range rs.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				names = append(names, s.GetName())
				if trace := fmt.Sprintf("%x", s.GetTraceId()); trace != askedFrom[3:35] {
					t.Errorf("%s belongs to trace %s", s.GetName(), trace)
				}
			}
		}
	}
	slices.Sort(names)
	if got, want := strings.Join(names, ", "), "chat gpt-4o-mini, chat gpt-4o-mini, drive, invoke_agent plan_react"; got != want {
		t.Errorf("the spans are %s, want %s", got, want)
	}
	for _, want := range []string{"service.name=ratchet", "service.instance.id=one", "service.version=v1.2.3", "deployment.environment.name=test"} {
		if !slices.Contains(about, want) {
			t.Errorf("the resource is %q and not %s", about, want)
		}
	}
}

// TestCollectorThatRefuses loses spans, says so once, and holds nothing up.
func TestCollectorThatRefuses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/v1/traces")
	exporter, err := telemetry.OTLP(t.Context(), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	tel, err := telemetry.New(telemetry.Config{Worker: "one", Exporter: exporter, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, say(planned, answered))
	w := r.start("one", tel)
	for _, run := range []string{"a", "b"} {
		r.submit(`{"id": "`+run+`", "goal": "g"}`, "")
		r.untilClosed(run)
		if err := tel.Flush(r.ctx()); err != nil {
			t.Error(err)
		}
	}
	w.stop()
	tel.Close()
	if n := strings.Count(log.String(), "spans could not be exported"); n != 1 || !strings.Contains(log.String(), "401") {
		t.Errorf("the log tells %d times:\n%s", n, log.String())
	}
	if got := sample(t, scrape(t, tel), `ratchet_trace_spans_total{result="failed"}`); got < 6 {
		t.Errorf("%v spans are counted as lost", got)
	}
}

// TestWhenTracesAreExported goes through the environments that ask for an exporter, and those that do not.
func TestWhenTracesAreExported(t *testing.T) {
	for name, c := range map[string]struct {
		env     map[string]string
		some    bool
		problem string
	}{
		"nothing set":     {nil, false, ""},
		"an endpoint":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true, ""},
		"one for traces":  {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, true, ""},
		"turned off":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "TRUE"}, false, ""},
		"no traces":       {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		"another form":    {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "http/protobuf"},
		"another program": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "zipkin"}, false, "OTEL_TRACES_EXPORTER=zipkin"},
	} {
		exporter, err := telemetry.OTLP(t.Context(), func(key string) string { return c.env[key] })
		if (exporter != nil) != c.some || (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: exporter %v, error %v", name, exporter != nil, err)
		}
		if exporter != nil {
			if err := exporter.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}
