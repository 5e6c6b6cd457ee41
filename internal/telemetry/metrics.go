package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric describes one metric.
type Metric struct {
	Name   string
	Kind   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// Buckets of the histograms, in seconds but for the last.
var (
	ownBuckets   = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	modelBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300}
	toolBuckets  = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	queueBuckets = []float64{.005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800}
	lagBuckets   = []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500}
)

// metrics are those that the worker counts as it works. Together they are one collector.
type metrics struct {
	tenants, models, tools, causes *labels

	accepted, runs, events, rejections, waits, questions            *prometheus.CounterVec
	appendTook, stepOverhead, stateLag                              *prometheus.HistogramVec
	steps, drives, takeOvers, leaseLosses                           *prometheus.CounterVec
	conflicts, deliveries, redeliveries, deadLetters                *prometheus.CounterVec
	queueWait                                                       *prometheus.HistogramVec
	modelRequests, modelTokens, modelCost                           *prometheus.CounterVec
	modelTook, toolTook                                             *prometheus.HistogramVec
	toolCalls                                                       *prometheus.CounterVec
	tenantRuns, tenantRequests, tenantTokens, tenantCost, tenantUse *prometheus.CounterVec
	memoryUses, memoryDegraded                                      *prometheus.CounterVec
	memoryTook                                                      *prometheus.HistogramVec
	spans                                                           *prometheus.CounterVec

	all     []prometheus.Collector
	catalog []Metric
}

const namespace = "ratchet"

func newMetrics(c Config) *metrics {
	m := &metrics{
		tenants: newLabels(c.Tenants), models: newLabels(c.Models), tools: newLabels(c.Tools), causes: newLabels(50),
	}
	m.accepted = m.counter("runs_accepted_total", "Runs begun, by strategy.", "strategy")
	m.runs = m.counter("runs_total", "Runs ended, by status and, for failed ones, reason.", "status", "reason")
	m.events = m.counter("events_total", "Events appended to journals, by type.", "type")
	m.rejections = m.counter("rejections_total", "Replies of models that could not be used.", "model")
	m.waits = m.counter("waits_total", "Waits begun, by what for: model, session or call.", "for")
	m.questions = m.counter("questions_total", "Questions put to people, by kind.", "kind")
	m.steps = m.counter("steps_total", "Steps done: results taken, judged and committed.")
	m.stepOverhead = m.histogram("step_overhead_seconds", "What the worker itself needed for a step, without model, tools and memory.", ownBuckets)
	m.appendTook = m.histogram("append_seconds", "Time to append an event to a journal.", ownBuckets)
	m.stateLag = m.histogram("state_lag_events", "Events that the stored state of a run at work did not show yet, at each step.", lagBuckets)

	m.drives = m.counter("drives_total", "Times that the worker drove a run, by how it ended.", "outcome")
	m.takeOvers = m.counter("takeovers_total", "Runs taken over from a worker that had not handed them over.")
	m.leaseLosses = m.counter("lease_losses_total", "Runs that the worker lost because no extension of the lease was confirmed in time.")
	m.conflicts = m.counter("conflicts_total", "Writes lost to somebody who was faster, by store: journal, state or session.", "store")
	m.deliveries = m.counter("deliveries_total", "Queue messages delivered to this worker, by kind.", "kind")
	m.redeliveries = m.counter("redeliveries_total", "Queue messages delivered to this worker that had been delivered before, by kind.", "kind")
	m.queueWait = m.histogram("queue_wait_seconds", "Time from storing a queue message to its first delivery.", queueBuckets, "kind")
	m.deadLetters = m.counter("dead_letters_total", "Messages put aside as dead letters, by kind and reason.", "kind", "reason")

	m.modelRequests = m.counter("model_requests_total", "Requests to models, by what they were for and what came of them.", "model", "purpose", "outcome")
	m.modelTook = m.histogram("model_request_seconds", "Time until a request to a model was answered, its repeats included.", modelBuckets, "model")
	m.modelTokens = m.counter("model_tokens_total", "Tokens used, by model and direction: input or output.", "model", "direction")
	m.modelCost = m.counter("model_cost_usd_total", "Cost of requests to models, by the prices given with --price.", "model")
	m.toolCalls = m.counter("tool_calls_total", "Calls of tools, by tool and outcome.", "tool", "outcome")
	m.toolTook = m.histogram("tool_call_seconds", "Time until a tool answered.", toolBuckets, "tool")

	m.tenantRuns = m.counter("tenant_runs_total", "Runs ended, by tenant and status.", "tenant", "status")
	m.tenantRequests = m.counter("tenant_model_requests_total", "Requests to models, by tenant.", "tenant")
	m.tenantTokens = m.counter("tenant_tokens_total", "Tokens used, by tenant and direction.", "tenant", "direction")
	m.tenantCost = m.counter("tenant_cost_usd_total", "Cost of requests to models, by tenant.", "tenant")
	m.tenantUse = m.counter("tenant_tool_calls_total", "Calls of tools, by tenant.", "tenant")

	m.memoryUses = m.counter("memory_operations_total", "Uses of long-term memory, by operation and result.", "operation", "result")
	m.memoryTook = m.histogram("memory_operation_seconds", "Time that uses of long-term memory took.", ownBuckets, "operation")
	m.memoryDegraded = m.counter("memory_degraded_total", "Recalls without an answer, by reason: the run went on without facts.", "reason")
	m.spans = m.counter("trace_spans_total", "Spans of traces, by result: exported or failed.", "result")

	m.collect("label_overflow_total", "counter", "Values of a label that were counted as other because there was no room for them.", "label")
	return m
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.all = append(m.all, c)
	m.collect(name, "counter", help, labels...)
	if len(labels) == 0 {
		c.WithLabelValues() // shown from the beginning, as 0
	}
	return c
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.all = append(m.all, h)
	m.collect(name, "histogram", help, labels...)
	if len(labels) == 0 {
		h.WithLabelValues()
	}
	return h
}

func (m *metrics) collect(name, kind, help string, labels ...string) {
	m.catalog = append(m.catalog, Metric{Name: namespace + "_" + name, Kind: kind, Labels: labels, Help: help})
}

var overflowDesc = prometheus.NewDesc(namespace+"_label_overflow_total",
	"Values of a label that were counted as other because there was no room for them.", []string{"label"}, nil)

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(out)
	}
	out <- overflowDesc
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(out)
	}
	for name, l := range map[string]*labels{"tenant": m.tenants, "model": m.models, "tool": m.tools} {
		out <- prometheus.MustNewConstMetric(overflowDesc, prometheus.CounterValue, float64(l.full.Load()), name)
	}
}

// Catalog lists the metrics that are this program's own, sorted by name. Those of the Go runtime and of the process come
// on top.
func Catalog() []Metric {
	all := append(newMetrics(Config{}).catalog, gaugeCatalog()...)
	slices.SortFunc(all, func(a, b Metric) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}
