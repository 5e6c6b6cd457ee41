package telemetry

import (
	"context"
	"time"

	"ratchet/internal/loop"
)

// observer is told by the engine what its other seams do not show.
type observer struct{ t *Telemetry }

var _ loop.Observer = observer{}

// Delivered implements [loop.Observer].
func (o observer) Delivered(d *loop.Delivery) {
	m, kind := o.t.metrics, string(d.Kind)
	m.deliveries.WithLabelValues(kind).Inc()
	if d.Attempt > 1 {
		m.redeliveries.WithLabelValues(kind).Inc()
		return
	}
	m.queueWait.WithLabelValues(kind).Observe(max(time.Since(d.Time), 0).Seconds()) // the server's clock may be ahead
}

// Driving implements [loop.Observer].
func (o observer) Driving(ctx context.Context, d loop.Driving) context.Context {
	if d.From != "" {
		o.t.metrics.takeOvers.WithLabelValues().Inc()
	}
	return o.t.tracer.drive(ctx, d)
}

// Stepped implements [loop.Observer].
func (o observer) Stepped(_ context.Context, s loop.Stepped) {
	o.t.metrics.steps.WithLabelValues().Inc()
	o.t.metrics.stepOverhead.WithLabelValues().Observe(s.Took.Seconds())
	o.t.metrics.stateLag.WithLabelValues().Observe(float64(s.Behind))
}

// Driven implements [loop.Observer].
func (o observer) Driven(ctx context.Context, d loop.Driven) {
	o.t.metrics.drives.WithLabelValues(string(d.Outcome)).Inc()
	if d.Outcome == loop.DriveLeaseLost {
		o.t.metrics.leaseLosses.WithLabelValues().Inc()
	}
	o.t.tracer.driven(ctx, d)
}
