package node

import (
	"cmp"
	"context"
	"runtime/debug"

	"ratchet/internal/demo"
	"ratchet/internal/llm"
	"ratchet/internal/memory"
	"ratchet/internal/telemetry"
)

// startTelemetry makes what watches the worker, where anybody can see what it sees.
func (n *Node) startTelemetry(context.Context) (err error) {
	if n.opts.HTTP == "" && n.opts.Exporter == nil {
		return nil
	}
	conf := telemetry.Config{
		Worker: n.opts.Name, Version: version(), Model: cmp.Or(n.opts.Model.Model, llm.DefaultModel),
		Endpoint: cmp.Or(n.opts.Model.BaseURL, llm.DefaultBaseURL), Exporter: n.opts.Exporter, Content: n.opts.TraceContent, Log: n.log,
	}
	if n.opts.Demo {
		conf.Model, conf.Endpoint = demo.Model, ""
	}
	if n.telemetry, err = telemetry.New(conf); err != nil {
		return err
	}
	n.later(n.telemetry.Close)
	return nil
}

// version is that of the program, as the go command has noted it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// report has the metrics tell how things stand.
func (n *Node) report() error {
	if n.telemetry == nil {
		return nil
	}
	return n.telemetry.Report(telemetry.Sources{
		Queues: n.queues, Load: n.worker.Load, MemoryPaused: n.memoryPaused,
	})
}

// memoryPaused reports whether long-term memory is left alone because it failed too often.
func (n *Node) memoryPaused() bool { return n.memory.Circuit() == memory.CircuitOpen }

func (n *Node) queues(ctx context.Context) (q telemetry.Queues, err error) {
	depths, dead, err := n.bus.Depths(ctx)
	q.Dead = dead
	for _, d := range depths {
		q.Each = append(q.Each, telemetry.Queue{Name: d.Queue, Waiting: d.Waiting, InHand: d.InHand, Oldest: d.Oldest})
	}
	return q, err
}

func (n *Node) observeMemory(o memory.Outcome) {
	if n.telemetry != nil {
		n.telemetry.MemoryUsed(o.Op, o.Result, o.Took)
	}
}
