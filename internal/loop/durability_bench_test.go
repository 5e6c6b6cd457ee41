package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/freeport"
)

// durability is a way to keep what was acknowledged.
type durability struct {
	name    string
	servers int // and replicas
	always  bool

	nc    *nats.Conn
	js    jetstream.JetStream
	ends  *finish
	took  time.Duration   // of runs
	lone  []time.Duration // of appends, one after the other
	count int             // appends of those runs
}

// BenchmarkDurability compares what each durability setting costs: runs of six steps with a model that takes no time, 32 in
// flight, and appends of 1 KB one after the other, as one run alone meets them. All servers run at once, in this process,
// and take turns, so that what else the machine does hits all of them. The first setting is the measure: ratio is the rate
// of a setting over its rate, ms the median of a lone append.
func BenchmarkDurability(b *testing.B) {
	settings := []*durability{
		{name: "1-interval", servers: 1},
		{name: "1-always", servers: 1, always: true},
		{name: "3-interval", servers: 3},
		{name: "3-always", servers: 3, always: true},
	}
	const steps, rounds, lone = 6, 5, 40
	for _, d := range settings {
		d.open(b, steps)
	}
	runs := max(b.N/rounds, inFlight)
	for round := range rounds {
		for _, d := range settings {
			d.took += driveRuns(b, d.js, d.ends, fmt.Sprint("round-", round), runs)
			d.count += runs * (steps + 1)
			d.lone = append(d.lone, loneAppends(b, d.js, fmt.Sprint("lone-", round), lone)...)
		}
	}
	rate := func(d *durability) float64 { return float64(d.count) / d.took.Seconds() }
	for _, d := range settings {
		slices.Sort(d.lone)
		b.ReportMetric(rate(d), d.name+"-appends/s")
		b.ReportMetric(rate(d)/rate(settings[0]), d.name+"-ratio")
		b.ReportMetric(float64(d.lone[len(d.lone)/2].Microseconds())/1000, d.name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// open starts the servers of a setting and a worker on them, and drives the first runs.
func (d *durability) open(b *testing.B, steps int) {
	url := startServers(b, d.servers, d.always)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if d.nc, err = bus.Connect(ctx, bus.ConnectOptions{URL: url}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(d.nc.Close)
	if d.js, err = jetstream.New(d.nc); err != nil {
		b.Fatal(err)
	}
	for ready := false; !ready; { // until the servers have a leader; before, they don't answer
		try, stop := context.WithTimeout(ctx, time.Second)
		_, err := d.js.AccountInfo(try)
		stop()
		if ready = err == nil; ctx.Err() != nil {
			b.Fatal(err)
		}
	}
	bu := bustest.Open(b, d.nc, bus.Options{Replicas: d.servers, Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	b.Cleanup(startBench(b, bu, instantModel{steps: steps}))
	d.ends = watchEnds(b, d.nc)
	driveRuns(b, d.js, d.ends, "warm", inFlight)
}

// startServers starts one server, or a cluster of several, and returns the address of the first.
func startServers(b *testing.B, n int, always bool) string {
	ports := freeport.Some(b, n)
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprint("nats://127.0.0.1:", port))
	}
	var first string
	for i, port := range ports {
		o := &server.Options{
			ServerName: fmt.Sprint("s", i+1), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.TempDir(), NoSigs: true,
			SyncAlways: always, SyncInterval: 2 * time.Minute, NoLog: true,
		}
		if n > 1 {
			o.Cluster = server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: port}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		s, err := server.NewServer(o)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			b.Fatal("a server is not ready within a minute")
		}
		if i == 0 {
			first = s.ClientURL()
		}
	}
	return first
}

// loneAppends returns how long each of n appends to one run took.
func loneAppends(b *testing.B, js jetstream.JetStream, run string, n int) (took []time.Duration) {
	subject, payload, last := "agent.event.floor."+run, []byte(strings.Repeat("x", 1024)), uint64(0)
	for range n {
		began := time.Now()
		ack, err := js.PublishMsg(b.Context(), &nats.Msg{Subject: subject + ".step", Data: payload},
			jetstream.WithExpectLastSequenceForSubject(last, subject+".>"))
		if err != nil {
			b.Fatal(err)
		}
		took, last = append(took, time.Since(began)), ack.Sequence
	}
	return took
}
