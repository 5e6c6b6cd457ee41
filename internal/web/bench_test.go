package web_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/node"
)

// benchWorker is a node whose bucket holds many runs.
func benchWorker(b *testing.B, runs int) *node.Node {
	b.Helper()
	dir := b.TempDir()
	n, err := node.Start(context.Background(), node.Options{
		Name: "bench", Embedded: &bus.EmbeddedOptions{Dir: filepath.Join(dir, "nats"), Port: -1, Sync: "2m"}, Demo: true, Files: dir,
		HTTP: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.Close)
	var wg sync.WaitGroup
	for part := range 16 {
		wg.Go(func() {
			for i := part; i < runs; i += 16 {
				_, err := n.Bus().Save(context.Background(), loop.Head{
					V: loop.HeadVersion, Tenant: "default", Run: fmt.Sprintf("run-%05d", i), Status: loop.StatusDone, N: 7,
					Seq: uint64(7*i + 7), First: uint64(7*i + 1), Strategy: "plan_react", Goal: fmt.Sprintf("Where is order %d?", i),
					Answer: "It is on its way.", Updated: time.Now(), Started: time.Now(), Closed: true,
				}, 0)
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return n
}

// fetchPage loads a page and reports whether it has the newest run.
func fetchPage(b *testing.B, url string) bool {
	b.Helper()
	r, err := http.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil || r.StatusCode != http.StatusOK {
		b.Fatalf("status %s, %d bytes, %v", r.Status, len(body), err)
	}
	return strings.Contains(string(body), "run-09999")
}

// BenchmarkFirstPage loads the first page with 10,000 runs in the bucket, and reports how long the very first look took,
// when none of them had been read.
func BenchmarkFirstPage(b *testing.B) {
	n := benchWorker(b, 10_000)
	began := time.Now()
	for !fetchPage(b, n.HTTP()+"/") {
	}
	cold := time.Since(began)
	for b.Loop() {
		fetchPage(b, n.HTTP()+"/")
	}
	b.ReportMetric(float64(cold.Milliseconds()), "cold-ms")
}

// BenchmarkFilteredPage searches 10,000 runs for a text.
func BenchmarkFilteredPage(b *testing.B) {
	n := benchWorker(b, 10_000)
	for b.Loop() {
		fetchPage(b, n.HTTP()+"/?q=order+9999")
	}
}

// watch opens a stream of events and calls each with every line.
func watch(b *testing.B, ctx context.Context, url string, each func(string)) {
	b.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 10<<20)
		for lines.Scan() {
			each(lines.Text())
		}
	}()
}

// BenchmarkEventToTab measures how long it takes from the append of an event until a tab that follows its run has it.
func BenchmarkEventToTab(b *testing.B) {
	n := benchWorker(b, 1)
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	id := loop.RunID{Tenant: "default", Run: "live"}
	came := make(chan struct{}, 1)
	watch(b, ctx, n.HTTP()+"/live?run=default/live", func(line string) {
		if strings.Contains(line, `class="event`) {
			came <- struct{}{}
		}
	})
	seq, i := uint64(0), 0
	for b.Loop() {
		i++
		var err error
		if seq, err = n.Bus().Append(ctx, event(id, i), seq); err != nil {
			b.Fatal(err)
		}
		<-came
	}
}

func event(id loop.RunID, n int) loop.Event {
	var data loop.Data = loop.Thought{Thought: "It goes on."}
	if n == 1 {
		data = loop.Accepted{Task: loop.Task{Goal: "g", Strategy: "plan_react"}}
	}
	return loop.Event{RunID: id, N: uint64(n), Time: time.Now().UTC(), Source: "/agent/worker/bench", Data: data}
}

// BenchmarkTwentyTabs has twenty tabs look at the list while 100 events a second are stored, and reports the share of one
// processor that the whole process takes, the server and the making of the events included, with and without the tabs.
func BenchmarkTwentyTabs(b *testing.B) {
	for _, tabs := range []int{0, 20} {
		b.Run(fmt.Sprintf("tabs=%d", tabs), func(b *testing.B) {
			n := benchWorker(b, 1)
			ctx, cancel := context.WithCancel(context.Background())
			b.Cleanup(cancel)
			var got atomic.Int64
			for range tabs {
				watch(b, ctx, n.HTTP()+"/live?view=runs", func(line string) { got.Add(int64(len(line))) })
			}
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			seqs := make([]uint64, 10)
			before, began, i := processorTime(b), time.Now(), 0
			for b.Loop() {
				run := i % len(seqs)
				id := loop.RunID{Tenant: "default", Run: fmt.Sprintf("busy-%d", run)}
				var err error
				if seqs[run], err = n.Bus().Append(ctx, event(id, i/len(seqs)+1), seqs[run]); err != nil {
					b.Fatal(err)
				}
				i++
				<-pace.C
			}
			b.ReportMetric(100*float64(processorTime(b)-before)/float64(time.Since(began)), "%core")
			b.ReportMetric(float64(got.Load())/float64(max(i, 1)), "bytes/event")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
