package outage_test

import (
	"context"
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// rollingRuns is how many runs go on during a rolling restart; go test ./internal/outage -run Rolling -rolling-runs 500.
var rollingRuns = flag.Int("rolling-runs", 60, "runs that go on while servers and workers are restarted")

// submitters each have one run after the other done.
const submitters = 8

// Three servers and two workers are restarted one after the other, as in an upgrade, while runs go on. Each run has an
// answer, and one.
func TestARollingRestart(t *testing.T) {
	t.Parallel()
	servers, url := newCluster(t)
	m := newModel(t)
	m.pace = 20 * time.Millisecond // a restart meets runs in the middle
	workers := make([]*worker, 2)
	start := func(i int, name string) {
		t.Helper()
		workers[i] = newWorker(t, workerConfig{Name: name, NATS: url, Model: m.url, Replicas: 3})
	}
	start(0, "w1")
	start(1, "w2")
	p := newPerson(t, url)

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience+time.Duration(*rollingRuns)*time.Second)
	defer cancel()
	restarted, ended := make(chan struct{}), make(chan string)
	load, loading := errgroup.WithContext(ctx)
	for i := range submitters {
		load.Go(func() error {
			for n := 0; ; n++ {
				id := fmt.Sprintf("r%d-%d", i, n)
				if err := p.whole(loading, id); err != nil {
					return err
				}
				select {
				case ended <- id:
				case <-restarted:
					return nil
				}
			}
		})
	}
	all := map[string]bool{}
	more := func(n int) { // so many further runs have ended
		t.Helper()
		for range n {
			select {
			case id := <-ended:
				all[id] = true
			case <-loading.Done():
				t.Fatal(load.Wait())
			}
		}
	}
	between := (*rollingRuns + 5) / 6
	for i, s := range servers {
		more(between)
		s.process.end(syscall.SIGTERM)
		more(1)
		s.start()
		if i < len(workers) {
			more(between)
			workers[i].end(syscall.SIGTERM)
			more(1)
			start(i, fmt.Sprintf("w%d-new", i+1))
		}
	}
	more(between)
	close(restarted)
	must(t, load.Wait())
	for _, w := range workers {
		w.becomesReady()
	}
	for id := range all { // nothing was added to a run after its end
		must(t, again(ctx, func(context.Context) error { return p.checkJournal(ctx, id) }))
	}
	t.Logf("%d runs", len(all))
}

// A cluster works with one replica of each stream. A worker with --replicas 3 changes that while the first goes on, and
// nothing is lost: what had ended can be read, what waited is answered, and then a server may die. The first worker, which
// still says one, does not take any back.
func TestReplicasAreRaised(t *testing.T) {
	t.Parallel()
	servers, url := newCluster(t)
	m := newModel(t)
	newWorker(t, workerConfig{Name: "w1", NATS: url, Model: m.url, Replicas: 1})
	r := &rig{t: t, model: m, person: newPerson(t, url)}
	must(t, r.whole(r.ctx(), "ended"))
	r.parked("parked")
	r.replicas(1)
	r.inFlight("working")

	newWorker(t, workerConfig{Name: "w2", NATS: url, Model: m.url, Replicas: 3})
	r.replicas(3)
	m.open()
	r.answered("working")
	r.answers("parked")
	must(t, r.whole(r.ctx(), "new"))

	journal, err := r.js.Stream(r.ctx(), "AGENT_EVENTS")
	must(t, err)
	for _, s := range servers {
		if s.name == journal.CachedInfo().Cluster.Leader {
			s.process.end(syscall.SIGKILL)
		}
	}
	must(t, r.whole(r.ctx(), "without-one"))
	for _, id := range []string{"ended", "working", "new"} {
		must(t, again(r.ctx(), func(ctx context.Context) error { return r.checkJournal(ctx, id) }))
	}
}

// replicas waits until each stream, and each consumer of one, has so many copies that are all up to date.
func (r *rig) replicas(want int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("all streams have %d replicas", want), func() error {
		list := r.js.ListStreams(r.ctx())
		streams := drained(list.Info())
		if err := list.Err(); err != nil || len(streams) < 9 {
			return fmt.Errorf("there are %d streams, error %v", len(streams), err)
		}
		for _, info := range streams {
			if err := copies("stream "+info.Config.Name, info.Cluster, info.Config.Replicas, want); err != nil {
				return err
			}
			stream, err := r.js.Stream(r.ctx(), info.Config.Name)
			if err != nil {
				return err
			}
			list := stream.ListConsumers(r.ctx())
			for _, c := range drained(list.Info()) {
				if c.Config.Durable == "" {
					continue
				}
				if err := copies("consumer "+c.Name, c.Cluster, want, want); err != nil {
					return err
				}
			}
			if err := list.Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// drained reads a list to its end: the client's goroutine behind it waits for that.
func drained[T any](list <-chan T) (all []T) {
	for one := range list {
		all = append(all, one)
	}
	return all
}

// copies says what is wrong with the replicas of something.
func copies(what string, cluster *jetstream.ClusterInfo, configured, want int) error {
	if cluster == nil || cluster.Leader == "" {
		return fmt.Errorf("%s has no leader", what)
	}
	current := 1
	for _, replica := range cluster.Replicas {
		if replica.Current && !replica.Offline {
			current++
		}
	}
	if configured != want || current != want {
		return fmt.Errorf("%s has %d replicas, of which %d are up to date", what, configured, current)
	}
	return nil
}
