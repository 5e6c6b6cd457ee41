package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"ratchet/internal/freeport"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// setup says what a world is made of.
type setup struct {
	servers int    // one, or three that keep three replicas; 1
	workers int    // 1
	slots   int    // of each worker
	sync    string // what --sync says
}

// world is all that is measured: servers and workers with an empty store, and the model and the submitter in this process.
type world struct {
	dir     string
	model   *model
	servers []*process
	workers []*process
	nc      *nats.Conn
	js      jetstream.JetStream

	mu      sync.Mutex
	flights map[string]*flight // by tenant/run
}

// streamEvents is the journal.
const streamEvents = "AGENT_EVENTS"

// startTimeout bounds the start of servers and of workers.
const startTimeout = time.Minute

func (b *bench) startWorld(ctx context.Context, s setup) (w *world, err error) {
	s.servers, s.workers = max(s.servers, 1), max(s.workers, 1)
	if s.sync == "" {
		s.sync = b.opts.Sync
	}
	w = &world{flights: map[string]*flight{}}
	defer func() {
		if err != nil {
			w.close()
			w = nil
		}
	}()
	if w.dir, err = os.MkdirTemp(b.opts.Data, "ratchet-bench-"); err != nil {
		return w, err
	}
	if w.model, err = serveModel(); err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	urls, err := b.startServers(w, s)
	if err != nil {
		return w, err
	}
	if err := w.connect(ctx, urls); err != nil {
		return w, err
	}
	for i := range s.workers {
		p, err := b.start(w, fmt.Sprint("w", i+1), "worker", "-nats", urls, "-model", w.model.url, "-slots", strconv.Itoa(s.slots),
			"-replicas", strconv.Itoa(s.servers))
		if err != nil {
			return w, err
		}
		w.workers = append(w.workers, p)
	}
	for _, p := range w.workers {
		if err := w.await(ctx, p.name+" to take tasks", func() bool {
			log, err := os.ReadFile(p.log)
			return err == nil && bytes.Contains(log, []byte(workerReady))
		}); err != nil {
			return w, err
		}
	}
	return w, w.hear()
}

// startServers starts one server, or a cluster, and returns their URLs.
func (b *bench) startServers(w *world, s setup) (urls string, err error) {
	ports, err := freeport.Take(2 * s.servers)
	if err != nil {
		return "", err
	}
	var all, routes []string
	for i := range s.servers {
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[s.servers+i]))
	}
	for i := range s.servers {
		name := fmt.Sprint("n", i+1)
		args := []string{"-dir", filepath.Join(w.dir, name), "-port", strconv.Itoa(ports[i]), "-sync", s.sync}
		if s.servers > 1 {
			args = append(args, "-cluster-port", strconv.Itoa(ports[s.servers+i]), "-routes", strings.Join(routes, ","))
		}
		p, err := b.start(w, name, "server", args...)
		if err != nil {
			return "", err
		}
		w.servers = append(w.servers, p)
	}
	return strings.Join(all, ","), nil
}

// profileName is how the names of files begin that hold a profile of a process, with a number that tells worlds apart.
func (b *bench) profileName(dir string) string {
	b.profiles++
	return filepath.Join(dir, fmt.Sprintf("%s-%d", b.scenario, b.profiles))
}

// start starts a child of a role, with a profile if they are wanted.
func (b *bench) start(w *world, name, role string, args ...string) (*process, error) {
	args = append([]string{role, "-name", name}, args...)
	if b.opts.CPUProfile != "" {
		args = append(args, "-cpuprofile", b.profileName(b.opts.CPUProfile)+"-"+name+".prof")
	}
	if b.opts.MemProfile != "" {
		args = append(args, "-memsample", "8192")
	}
	return start(w.dir, name, args...)
}

func (w *world) connect(ctx context.Context, urls string) error {
	var err error
	w.nc, err = nats.Connect(urls, nats.Name("bench"), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	if w.js, err = jetstream.New(w.nc, jetstream.WithPublishAsyncMaxPending(4096)); err != nil {
		return err
	}
	return w.await(ctx, "the servers", func() bool {
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := w.js.AccountInfo(try)
		return err == nil
	})
}

// await waits until a condition holds, or a process has ended.
func (w *world) await(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if err := w.died(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// died says which processes have ended though nobody asked them to.
func (w *world) died() (all error) {
	for _, p := range append(append([]*process{}, w.servers...), w.workers...) {
		all = errors.Join(all, p.ended())
	}
	return all
}

// used is what servers and workers have used.
func (w *world) used() (servers, workers usage) {
	sum := func(of []*process) (u usage) {
		for _, p := range of {
			one := p.used()
			u.cpu, u.written = u.cpu+one.cpu, u.written+one.written
		}
		return u
	}
	return sum(w.servers), sum(w.workers)
}

// forgetPeaks has memory counted from now on.
func (w *world) forgetPeaks() {
	for _, p := range append(append([]*process{}, w.servers...), w.workers...) {
		p.forgetPeak()
	}
}

// highest is the peak of the hungriest of some processes, bytes.
func highest(of []*process) (most int64) {
	for _, p := range of {
		most = max(most, p.peak())
	}
	return most
}

// stored is the size of all streams, with replicas counted once, bytes.
func (w *world) stored(ctx context.Context) (size uint64, err error) {
	streams := w.js.ListStreams(ctx)
	for info := range streams.Info() {
		size += info.State.Bytes
	}
	return size, streams.Err()
}

// close ends all processes and removes what they stored.
func (w *world) close() {
	for _, p := range w.workers {
		p.stop()
	}
	if w.nc != nil {
		w.nc.Close()
	}
	for _, p := range w.servers {
		p.stop()
	}
	if w.model != nil {
		w.model.close()
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir) // a temporary directory
	}
}
