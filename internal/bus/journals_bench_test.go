package bus_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
)

// BenchmarkJournals asks whether several journals, one for each part of the runs, would pay where the server syncs every
// append: runs of seven appends of 1 KB, one after the other, each with the expected last sequence of its run, into one stream and
// into eight. "runs" also stores what comes with a run of the engine, in streams of which there is one in either case: the task,
// the wake-up, and the state three times. They take six turns each on one server; gain is the rate of eight over that of one in
// the turn before, the median of them.
func BenchmarkJournals(b *testing.B) {
	for _, whole := range []bool{false, true} {
		for _, writers := range []int{32, 256} {
			what := map[bool]string{false: "appends", true: "runs"}[whole]
			b.Run(fmt.Sprintf("%s/writers=%d", what, writers), func(b *testing.B) { benchmarkJournals(b, whole, writers) })
		}
	}
}

func benchmarkJournals(b *testing.B, whole bool, writers int) {
	server, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: b.TempDir(), Port: -1, Sync: "always"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Shutdown)
	js, err := jetstream.New(bustest.Connect(b, server))
	if err != nil {
		b.Fatal(err)
	}
	names := []string{besideTasks, besideWakes, besideStates}
	for _, streams := range []int{1, 8} {
		for i := range streams {
			names = append(names, fmt.Sprintf("J%d-%d", streams, i))
		}
	}
	for _, name := range names {
		c := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
		if name == besideStates {
			c.MaxMsgsPerSubject = 1
		}
		if _, err := js.CreateStream(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	const turns = 6
	runs := max(b.N/turns, 2*writers)
	var one, eight, gains []float64
	for turn := range turns {
		one = append(one, appendRuns(b, js, whole, 1, writers, runs, turn))
		eight = append(eight, appendRuns(b, js, whole, 8, writers, runs, turn))
		gains = append(gains, eight[turn]/one[turn])
	}
	for name, values := range map[string][]float64{"one/s": one, "eight/s": eight, "gain": gains} {
		slices.Sort(values)
		b.ReportMetric(values[turns/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

// Streams beside the journal, as in the engine.
const (
	besideTasks  = "tasks"
	besideWakes  = "wakes"
	besideStates = "states"
)

// appendRuns writes runs and returns the appends in a second.
func appendRuns(b *testing.B, js jetstream.JetStream, whole bool, streams, writers, runs, turn int) float64 {
	next := make(chan int)
	var all sync.WaitGroup
	began := time.Now()
	for range writers {
		all.Go(func() {
			for run := range next {
				subject := fmt.Sprintf("J%d-%d.%d-%d", streams, run%streams, turn, run)
				if err := appendRun(b, js, whole, subject); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for run := range runs {
		next <- run
	}
	close(next)
	all.Wait()
	return float64(runs*appendsOfRun) / time.Since(began).Seconds()
}

const appendsOfRun = 7

// appendRun writes a run, and what comes with it if it is to be whole.
func appendRun(b *testing.B, js jetstream.JetStream, whole bool, subject string) error {
	payload := make([]byte, 1024)
	beside := func(streams ...string) error {
		for _, stream := range streams {
			if _, err := js.Publish(b.Context(), stream+"."+subject, payload); err != nil {
				return err
			}
		}
		return nil
	}
	if whole {
		if err := beside(besideTasks); err != nil {
			return err
		}
	}
	last := uint64(0)
	for n := range appendsOfRun {
		ack, err := js.PublishMsg(b.Context(), &nats.Msg{Subject: subject + ".step", Data: payload},
			jetstream.WithExpectLastSequenceForSubject(last, subject+".>"))
		if err != nil {
			return err
		}
		last = ack.Sequence
		if whole && n == 0 { // the first state, the wake-up, and the state with its owner
			if err := beside(besideStates, besideWakes, besideStates); err != nil {
				return err
			}
		}
	}
	if whole {
		return beside(besideStates)
	}
	return nil
}
