package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"ratchet/internal/loop"
)

// model watches what the model is asked.
type model struct {
	loop.Model
	t *Telemetry
}

// Complete implements [loop.Model].
func (m model) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	asked := r.Model
	if asked == "" {
		asked = m.t.conf.Model
	}
	ctx, span := m.t.tracer.start(ctx, "chat", asked, trace.SpanKindClient)
	began := time.Now()
	reply, err := m.Model.Complete(ctx, r)
	m.t.metrics.asked(r, asked, reply, time.Since(began), err)
	if span.IsRecording() {
		m.t.tracer.describeChat(span, r, asked, reply, err)
	}
	span.End()
	return reply, err
}

func (m *metrics) asked(r loop.ModelRequest, name string, reply loop.ModelReply, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = m.causes.value(causeOf(err))
	} else if reply.Model != "" {
		name = reply.Model
	}
	name, tenant := m.models.value(name), m.tenants.value(r.Run.Tenant)
	m.modelRequests.WithLabelValues(name, string(r.Purpose), outcome).Inc()
	m.tenantRequests.WithLabelValues(tenant).Inc()
	if outcome == cancelled {
		return // its time says nothing of the model
	}
	m.modelTook.WithLabelValues(name).Observe(took.Seconds())
	prompt, completion := float64(max(reply.Usage.PromptTokens, 0)), float64(max(reply.Usage.CompletionTokens, 0))
	m.modelTokens.WithLabelValues(name, "input").Add(prompt)
	m.modelTokens.WithLabelValues(name, "output").Add(completion)
	m.modelCost.WithLabelValues(name).Add(max(reply.Usage.CostUSD, 0))
	m.tenantTokens.WithLabelValues(tenant, "input").Add(prompt)
	m.tenantTokens.WithLabelValues(tenant, "output").Add(completion)
	m.tenantCost.WithLabelValues(tenant).Add(max(reply.Usage.CostUSD, 0))
}

const cancelled = "cancelled"

// causeOf names a failure of a model. What is not the model's is a call that was cut off.
func causeOf(err error) string {
	var fault *loop.ModelError
	if errors.As(err, &fault) {
		return fault.Cause
	}
	return cancelled
}

// tools watches the calls of tools.
type tools struct {
	loop.Tools
	t *Telemetry
}

// Call implements [loop.Tools].
func (l tools) Call(ctx context.Context, c loop.Invocation) loop.Outcome {
	ctx, span := l.t.tracer.start(ctx, "execute_tool", c.Tool, trace.SpanKindInternal)
	began := time.Now()
	out := l.Tools.Call(ctx, c)
	m, tool := l.t.metrics, l.t.metrics.tools.value(c.Tool)
	m.toolCalls.WithLabelValues(tool, string(out.Status)).Inc()
	m.toolTook.WithLabelValues(tool).Observe(time.Since(began).Seconds())
	m.tenantUse.WithLabelValues(m.tenants.value(c.Run.Tenant)).Inc()
	if span.IsRecording() {
		l.t.tracer.describeTool(span, c, out)
	}
	span.End()
	return out
}

// memory watches what runs are told of long-term memory. What it costs the store is counted by [Telemetry.MemoryUsed].
type memory struct {
	loop.Memory
	t *Telemetry
}

// Recall implements [loop.Memory].
func (l memory) Recall(ctx context.Context, tenant, user string, before []loop.SessionMessage, query string, k int) ([]loop.Fact, error) {
	ctx, span := l.t.tracer.start(ctx, "retrieval", "facts", trace.SpanKindInternal)
	facts, err := l.Memory.Recall(ctx, tenant, user, before, query, k)
	if span.IsRecording() {
		l.t.tracer.describeRecall(span, query, len(facts), err)
	}
	span.End()
	return facts, err
}

// MemoryUsed counts one use of the store of long-term facts.
func (t *Telemetry) MemoryUsed(operation, result string, took time.Duration) {
	t.metrics.memoryUses.WithLabelValues(operation, result).Inc()
	t.metrics.memoryTook.WithLabelValues(operation).Observe(took.Seconds())
	switch result {
	case "slow", "down", "broken", "paused":
		t.metrics.memoryDegraded.WithLabelValues(result).Inc()
	}
}

// journal watches what becomes true.
type journal struct {
	loop.Journal
	t *Telemetry
}

// Append implements [loop.Journal].
func (j journal) Append(ctx context.Context, e loop.Event, expected uint64) (uint64, error) {
	began := time.Now()
	seq, err := j.Journal.Append(ctx, e, expected)
	m := j.t.metrics
	switch {
	case err == nil:
		m.appendTook.WithLabelValues().Observe(time.Since(began).Seconds())
		m.happened(e)
	case errors.Is(err, loop.ErrConflict):
		m.conflicts.WithLabelValues("journal").Inc()
	}
	return seq, err
}

func (m *metrics) happened(e loop.Event) {
	m.events.WithLabelValues(e.Type()).Inc()
	switch d := e.Data.(type) {
	case loop.Accepted:
		m.accepted.WithLabelValues(d.Task.Strategy).Inc()
	case loop.Rejection:
		m.rejections.WithLabelValues(m.models.value(d.Model)).Inc()
	case loop.Question:
		m.questions.WithLabelValues(string(d.Kind)).Inc()
	case loop.Wait:
		m.waits.WithLabelValues(waitsFor(d)).Inc()
	case loop.Answer:
		m.ended(e, loop.StatusDone, none)
	case loop.Failed:
		m.ended(e, loop.StatusFailed, string(d.Reason))
	case loop.Cancelled:
		m.ended(e, loop.StatusCancelled, none)
	default: // counted by its type
	}
}

func (m *metrics) ended(e loop.Event, status loop.Status, reason string) {
	m.runs.WithLabelValues(string(status), reason).Inc()
	m.tenantRuns.WithLabelValues(m.tenants.value(e.Tenant), string(status)).Inc()
}

func waitsFor(w loop.Wait) string {
	switch {
	case w.Session:
		return "session"
	case w.Call != "":
		return "call"
	}
	return "model"
}

// heads watches writes of states that were lost.
type heads struct {
	loop.Heads
	t *Telemetry
}

// Save implements [loop.Heads].
func (h heads) Save(ctx context.Context, head loop.Head, revision uint64) (uint64, error) {
	next, err := h.Heads.Save(ctx, head, revision)
	if errors.Is(err, loop.ErrConflict) {
		h.t.metrics.conflicts.WithLabelValues("state").Inc()
	}
	return next, err
}

// sessions watches writes of conversations that were lost.
type sessions struct {
	loop.Sessions
	t *Telemetry
}

// SaveSession implements [loop.Sessions].
func (s sessions) SaveSession(ctx context.Context, tenant, session string, said loop.Session, revision uint64) error {
	err := s.Sessions.SaveSession(ctx, tenant, session, said, revision)
	if errors.Is(err, loop.ErrConflict) {
		s.t.metrics.conflicts.WithLabelValues("session").Inc()
	}
	return err
}

// graveyard watches what is given up.
type graveyard struct {
	loop.Graveyard
	t *Telemetry
}

// Bury implements [loop.Graveyard].
func (g graveyard) Bury(ctx context.Context, d loop.Delivery, reason, explanation string) error {
	err := g.Graveyard.Bury(ctx, d, reason, explanation)
	if err == nil {
		g.t.metrics.deadLetters.WithLabelValues(string(d.Kind), g.t.metrics.causes.value(reason)).Inc()
	}
	return err
}
