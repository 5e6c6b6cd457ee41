package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ratchet/internal/loop"
)

// Sources say how things stand. A field that is nil is not shown.
type Sources struct {
	Queues func(context.Context) (Queues, error) // asked at most every few seconds
	Load   func() loop.Load
	// MemoryPaused reports whether long-term memory is left alone because it failed too often.
	MemoryPaused func() bool
}

// Queues is what lies in the queues, of all workers together.
type Queues struct {
	Each []Queue
	Dead uint64 // dead letters
}

// Queue is what lies in one queue.
type Queue struct {
	Name    string    // inbox or wakes
	Waiting uint64    // messages that no worker was given yet
	InHand  uint64    // messages that a worker was given and has not settled
	Oldest  time.Time // when the oldest that waits was stored; zero: none waits
}

const (
	// queuesFor is how long what the server said of its queues is good.
	queuesFor = 5 * time.Second
	// queuesTimeout bounds one look at them: a scrape has to end.
	queuesTimeout = 3 * time.Second
	// censusFor is how long the count of open runs is shown that this worker made in a sweep. The next one is another's,
	// perhaps, and only the latest is true.
	censusFor = 90 * time.Second
)

// gauges are the metrics that are looked at when somebody asks for them.
type gauges struct {
	sources Sources

	mu     sync.Mutex
	queues Queues
	known  bool
	asked  time.Time
}

func newGauges(s Sources) *gauges { return &gauges{sources: s} }

type gauge struct {
	Metric
	desc *prometheus.Desc
}

func newGauge(name, help string, labels ...string) gauge {
	return gauge{
		Metric{Name: namespace + "_" + name, Kind: "gauge", Labels: labels, Help: help},
		prometheus.NewDesc(namespace+"_"+name, help, labels, nil),
	}
}

var (
	queueMessages = newGauge("queue_messages", "Messages in the queues of all workers, by queue and whether they wait or are in hand.", "queue", "state")
	queueOldest   = newGauge("queue_oldest_seconds", "Age of the oldest message that waits.", "queue")
	deadStored    = newGauge("dead_letters_stored", "Dead letters that nobody has put back or dropped.")
	openRuns      = newGauge("open_runs", "Runs of all workers that have not ended, by status, as of the last sweep; only the worker that made it shows it.", "status")
	runsInHand    = newGauge("runs_in_hand", "Runs that the worker drives.")
	runSlots      = newGauge("run_slots", "Runs that the worker can drive at once.")
	memoryPaused  = newGauge("memory_circuit_open", "1 while long-term memory is left alone because it failed too often.")

	allGauges = []gauge{queueMessages, queueOldest, deadStored, openRuns, runsInHand, runSlots, memoryPaused}
)

func gaugeCatalog() (all []Metric) {
	for _, g := range allGauges {
		all = append(all, g.Metric)
	}
	return all
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, each := range allGauges {
		out <- each.desc
	}
}

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	show := func(gauge gauge, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, value, labels...)
	}
	if queues, ok := g.look(); ok {
		for _, q := range queues.Each {
			show(queueMessages, float64(q.Waiting), q.Name, "waiting")
			show(queueMessages, float64(q.InHand), q.Name, "in_hand")
			age := 0.0
			if !q.Oldest.IsZero() {
				age = max(time.Since(q.Oldest).Seconds(), 0)
			}
			show(queueOldest, age, q.Name)
		}
		show(deadStored, float64(queues.Dead))
	}
	if g.sources.Load != nil {
		load := g.sources.Load()
		show(runsInHand, float64(load.InHand))
		show(runSlots, float64(load.Slots))
		if time.Since(load.Swept) < censusFor {
			for status, n := range load.Open {
				show(openRuns, float64(n), string(status))
			}
		}
	}
	if g.sources.MemoryPaused != nil {
		value := 0.0
		if g.sources.MemoryPaused() {
			value = 1
		}
		show(memoryPaused, value)
	}
}

// look returns what lies in the queues. ok is false where the server did not say; it is asked again after a while.
func (g *gauges) look() (q Queues, ok bool) {
	if g.sources.Queues == nil {
		return Queues{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.asked.IsZero() && time.Since(g.asked) < queuesFor {
		return g.queues, g.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), queuesTimeout)
	defer cancel()
	q, err := g.sources.Queues(ctx)
	g.queues, g.known, g.asked = q, err == nil, time.Now()
	return g.queues, g.known
}
