// Package telemetry shows what a worker does in the forms that others can read: traces of OpenTelemetry, metrics of
// Prometheus. It watches the engine through the engine's own seams: [Telemetry.Watch] puts a thin layer around those that
// say something (layers.go) and is the engine's observer for what they don't (observer.go). A worker without telemetry has
// none of these layers.
//
// Every label of a metric has a bounded set of values (labels.go): what comes from outside, such as the names of tenants,
// is counted under its own name as long as there is room and as "other" beyond.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"ratchet/internal/loop"
)

// Config says what is watched. The zero value of a field means its default.
type Config struct {
	Worker  string // name of the worker; none
	Version string // of the program; none

	Model    string // that is asked where a task names none; none
	Endpoint string // base URL of the model's endpoint; none

	Exporter sdktrace.SpanExporter // of the traces, see [OTLP]; none: no traces are made
	Content  bool                  // traces hold what was said to the model and to tools, and what they answered

	Tenants int // that are told apart in metrics; 50
	Models  int // likewise; 50
	Tools   int // likewise; 200

	Log *slog.Logger // trouble with the exporter; nowhere
}

func (c Config) withDefaults() Config {
	c.Tenants = cmp.Or(c.Tenants, 50)
	c.Models = cmp.Or(c.Models, 50)
	c.Tools = cmp.Or(c.Tools, 200)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Telemetry watches one worker. It is safe for concurrent use.
type Telemetry struct {
	conf     Config
	registry *prometheus.Registry
	metrics  *metrics
	tracer   *tracer // nil: no traces are made
}

// New returns a telemetry that watches nothing yet. It must be closed.
func New(conf Config) (*Telemetry, error) {
	t := &Telemetry{conf: conf.withDefaults(), registry: prometheus.NewRegistry()}
	t.metrics = newMetrics(t.conf)
	for _, c := range []prometheus.Collector{
		t.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := t.registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	var err error
	if t.tracer, err = newTracer(t.conf, t.metrics); err != nil {
		return nil, err
	}
	return t, nil
}

// Watch returns the engine's configuration with what it is made of being watched.
func (t *Telemetry) Watch(c loop.Config) loop.Config {
	c.Observer = observer{t}
	c.Model = model{c.Model, t}
	c.Tools = tools{c.Tools, t}
	if c.Memory != nil {
		c.Memory = memory{c.Memory, t}
	}
	c.Journal = journal{c.Journal, t}
	c.Heads = heads{c.Heads, t}
	c.Sessions = sessions{c.Sessions, t}
	c.Graveyard = graveyard{c.Graveyard, t}
	return c
}

// Report adds what is only looked at when somebody asks for the metrics.
func (t *Telemetry) Report(s Sources) error {
	if err := t.registry.Register(newGauges(s)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Handler answers with the metrics, in the forms of Prometheus and of OpenMetrics.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: t.registry})
}

// Registry holds the metrics, for others to add theirs.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Flush sends the spans that have ended.
func (t *Telemetry) Flush(ctx context.Context) error {
	if t.tracer == nil {
		return nil
	}
	return t.tracer.provider.ForceFlush(ctx)
}

// closePatience is how long Close waits for a collector that does not take the last spans.
const closePatience = 3 * time.Second

// Close sends the spans that have ended, and closes the exporter.
func (t *Telemetry) Close() {
	if t.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := t.tracer.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.conf.Log.Warn("the last spans may not have been exported", "error", err)
	}
}
