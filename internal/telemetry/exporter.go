package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// OTLP returns an exporter of traces to a collector, by OTLP over HTTP, where OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names one, and nil where neither does or where OTEL_SDK_DISABLED is true or
// OTEL_TRACES_EXPORTER none. The other variables of OpenTelemetry (headers, certificates, timeout, compression, sampler,
// name of the service) are read by its SDK from the environment of the process.
func OTLP(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil // none was asked for
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return nil, nil // the same
	case "", "otlp":
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: traces are exported by otlp, or not at all with none", exporter)
	}
	protocol := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: traces go out as http/protobuf; set that, and the collector's port for it (4318)", protocol)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", endpoint, err)
	}
	return exporter, nil
}

// troubleEvery is how often the log tells of an exporter that fails.
const troubleEvery = time.Minute

// watchedExporter counts what its exporter takes, and tells the log when it does not: the SDK would write to standard
// error by itself, once for every batch.
type watchedExporter struct {
	sdktrace.SpanExporter
	log   *slog.Logger
	spans *prometheus.CounterVec

	mu   sync.Mutex
	told time.Time
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		e.spans.WithLabelValues("exported").Add(float64(len(spans)))
		return nil
	}
	e.spans.WithLabelValues("failed").Add(float64(len(spans)))
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.told) > troubleEvery {
		e.told = time.Now()
		e.log.Warn("spans could not be exported and are lost; runs are not affected", "spans", len(spans), "error", err)
	}
	return nil
}
