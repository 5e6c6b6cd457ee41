package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"ratchet/internal/loop"
)

// A run is one trace. Its span, invoke_agent, has an id that follows from the run's first event, so that every worker can
// name it as the parent of what it does; the worker that closes the run exports it. Model calls, tool calls and the times
// during which a worker drove the run are its children: none of them hangs below a span that would be lost with a worker.

// tracer makes spans. A nil tracer makes none.
type tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	content  bool
	server   []attribute.KeyValue // of the model
}

// serviceName is the name of the service in traces where OTEL_SERVICE_NAME gives none.
const serviceName = "ratchet"

func newTracer(c Config, m *metrics) (*tracer, error) {
	if c.Exporter == nil {
		return nil, nil // a nil tracer is one that makes no spans
	}
	about := []attribute.KeyValue{semconv.ServiceName(serviceName)}
	if c.Worker != "" {
		about = append(about, semconv.ServiceInstanceID(c.Worker))
	}
	if c.Version != "" {
		about = append(about, semconv.ServiceVersion(c.Version))
	}
	res, err := resource.New(context.Background(), resource.WithAttributes(about...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&watchedExporter{SpanExporter: c.Exporter, log: c.Log, spans: m.spans}),
		sdktrace.WithResource(res), sdktrace.WithIDGenerator(ids{}),
	)
	return &tracer{provider, provider.Tracer("ratchet"), c.Content, server(c.Endpoint)}, nil
}

// server names the model's endpoint and, where that is known, its provider.
func server(endpoint string) []attribute.KeyValue {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	attrs := []attribute.KeyValue{providerOf(u.Hostname()), semconv.ServerAddress(u.Hostname())}
	port := 443
	if u.Scheme == "http" {
		port = 80
	}
	if u.Port() != "" {
		if port, err = net.LookupPort("tcp", u.Port()); err != nil {
			return attrs
		}
	}
	return append(attrs, semconv.ServerPort(port))
}

type idsKey struct{}

// ids makes span ids at random, except where the context holds what they have to be.
type ids struct{}

// NewIDs implements [sdktrace.IDGenerator].
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if t, given := ctx.Value(idsKey{}).(loop.Trace); given {
		return t.ID, t.Span
	}
	var id trace.TraceID
	for !id.IsValid() {
		putUint64(id[:8], rand.Uint64())
		putUint64(id[8:], rand.Uint64())
	}
	return id, newSpanID()
}

// NewSpanID implements [sdktrace.IDGenerator].
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if t, given := ctx.Value(idsKey{}).(loop.Trace); given {
		return t.Span
	}
	return newSpanID()
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		putUint64(id[:], rand.Uint64())
	}
	return id
}

func putUint64(into []byte, v uint64) {
	for i := range 8 {
		into[i] = byte(v >> (8 * i))
	}
}

// begin starts the span of a run. It may be started by many workers and is to be ended by one.
func (t *tracer) begin(ctx context.Context, of loop.Trace, name string, opts ...trace.SpanStartOption) trace.Span {
	ctx = context.WithValue(ctx, idsKey{}, of)
	if of.Parent != [8]byte{} {
		ctx = remote(ctx, of, of.Parent)
	}
	_, span := t.tracer.Start(ctx, name, opts...)
	return span
}

// remote makes a span of another process the parent of what follows.
func remote(ctx context.Context, of loop.Trace, span trace.SpanID) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: of.ID, SpanID: span, TraceFlags: trace.TraceFlags(of.Flags), Remote: true,
	}))
}

type spansKey struct{}

// spans are those of a drive.
type spans struct{ run, drive trace.Span }

// drive starts the spans of a run and of a drive of it. What is done in the context returned belongs to the run.
func (t *tracer) drive(ctx context.Context, d loop.Driving) context.Context {
	if t == nil {
		return ctx
	}
	s := spans{run: t.begin(ctx, d.State.Trace(), "invoke_agent "+agentOf(d.State), trace.WithTimestamp(d.State.Began),
		trace.WithSpanKind(trace.SpanKindInternal))}
	ctx = trace.ContextWithSpan(ctx, s.run)
	_, s.drive = t.tracer.Start(ctx, "drive", trace.WithTimestamp(d.Since))
	if s.drive.IsRecording() {
		s.drive.SetAttributes(driveAttributes(d)...)
	}
	return loop.WithTraceparent(context.WithValue(ctx, spansKey{}, s), traceparent(s.run))
}

// driven ends the span of a drive and, where the run has ended, that of the run.
func (t *tracer) driven(ctx context.Context, d loop.Driven) {
	s, traced := ctx.Value(spansKey{}).(spans)
	if !traced {
		return
	}
	if s.drive.IsRecording() {
		describeDriven(s.drive, d)
	}
	s.drive.End()
	if d.Outcome != loop.DriveEnded {
		return
	}
	if s.run.IsRecording() {
		t.describeRun(s.run, d.State)
	}
	s.run.End(trace.WithTimestamp(d.State.Last))
}

// start starts a span below the run's, and names it as the place in the trace for whoever is asked.
func (t *tracer) start(ctx context.Context, operation, of string, kind trace.SpanKind) (context.Context, trace.Span) {
	if t == nil {
		return ctx, noop.Span{}
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = t.join(ctx)
	}
	ctx, span := t.tracer.Start(ctx, operation+" "+of, trace.WithSpanKind(kind))
	return loop.WithTraceparent(ctx, traceparent(span)), span
}

// join makes the span of the run that ctx knows the parent of what follows. It is recorded if the run is.
func (t *tracer) join(ctx context.Context) context.Context {
	of, known := loop.ParseTraceparent(loop.Traceparent(ctx))
	switch {
	case !known:
		return ctx
	case of.Flags == 0:
		return remote(ctx, of, of.Span)
	}
	return trace.ContextWithSpan(ctx, t.begin(ctx, of, "run"))
}

// traceparent is the header that names a span.
func traceparent(span trace.Span) string {
	c := span.SpanContext()
	return loop.Trace{ID: c.TraceID(), Span: c.SpanID(), Flags: byte(c.TraceFlags() & trace.FlagsSampled)}.Traceparent()
}
