package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// kept measures what very many ended runs cost: the server's memory and files, its restart, and the runs that are new. The runs
// are copies of one that a worker drove, message by message, as many as there is time for. Then a schedule is added for each,
// in the form of those that runs wait with, due within a week.
func kept(ctx context.Context, b *bench) error {
	n := cmp.Or(b.opts.Kept, b.opts.Form.count(500, 20_000, 1_000_000))
	return b.in(ctx, setup{slots: inFlight}, func(w *world) error {
		k := &keeping{bench: b, world: w, sample: load{runs: b.opts.Form.count(32, 256, 1_000), steps: 6, ahead: inFlight}}
		if err := k.begin(ctx); err != nil {
			return err
		}
		if err := k.row(ctx, "nothing", 0, 0); err != nil {
			return err
		}
		runs, rate, err := k.fill(ctx, n, k.runs)
		if err != nil {
			return err
		}
		if err := k.row(ctx, fmt.Sprintf("%d ended runs", runs), runs, rate); err != nil {
			return err
		}
		schedules, rate, err := k.fill(ctx, runs, k.schedule)
		if err != nil {
			return err
		}
		return k.row(ctx, fmt.Sprintf("and %d schedules", schedules), schedules, rate)
	})
}

// keptAtMost is how long one kind of things is written.
const keptAtMost = 10 * time.Minute

// keeping is a scenario of kept as it goes on.
type keeping struct {
	*bench
	*world
	sample load
	rows   int

	runs     []*nats.Msg // of the run that is copied: its events and its state
	schedule []*nats.Msg
	held     int64 // of the server before something was written, bytes
	disk     int64
}

// theKept is the run that is copied, and the form of the ids of the others.
const theKept = "kept-0000000"

// begin has a worker drive a run and takes what is left of it.
func (k *keeping) begin(ctx context.Context) error {
	k.model.begin(latency{})
	if _, err := k.submit(ctx, load{name: "warm", runs: 64, steps: 6, ahead: inFlight}); err != nil {
		return err
	}
	if _, err := k.submit(ctx, load{name: "kept", id: theKept, runs: 1, steps: 6, ahead: 1}); err != nil {
		return err
	}
	var err error
	if k.runs, err = k.copyOf(ctx, streamEvents, "agent.event.default."+theKept+".*"); err != nil {
		return err
	}
	const state = "$KV.AGENT_RUNS.default." + theKept
	err = k.await(ctx, "the state of the run to be final", func() bool {
		head, err := k.copyOf(ctx, "KV_AGENT_RUNS", state)
		if err != nil || len(head) != 1 || !bytes.Contains(head[0].Data, []byte(`"closed":true`)) {
			return false
		}
		k.runs = append(k.runs, head...)
		return true
	})
	k.schedule = []*nats.Msg{{
		Subject: "agent.schedule.default." + theKept + ".kept", Data: []byte("{}"),
		Header: nats.Header{"Nats-Schedule-Target": {"agent.wake.0.default." + theKept}},
	}}
	return err
}

// copyOf reads the messages of a stream on some subjects, as they were published.
func (k *keeping) copyOf(ctx context.Context, stream, subject string) (all []*nats.Msg, err error) {
	s, err := k.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	for seq := uint64(1); ; {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s of stream %s: %w", subject, stream, err)
		}
		header := nats.Header{}
		for name, values := range m.Header {
			if !strings.HasPrefix(name, "Nats-") {
				header[name] = values
			}
		}
		all, seq = append(all, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: header}), m.Sequence+1
	}
}

// fill writes n copies of some messages, or as many as there is time for, and says how many it wrote.
func (k *keeping) fill(ctx context.Context, n int, of []*nats.Msg) (written int, rate float64, err error) {
	if k.held, k.disk, err = k.has(ctx); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for range 4 {
		all.Go(func() error {
			js, failed, err := k.publisher()
			if err != nil {
				return err
			}
			defer js.Conn().Close()
			for ctx.Err() == nil && time.Since(began) < keptAtMost {
				i := int(next.Add(1))
				if i > n {
					break
				}
				due := time.Now().Add(24*time.Hour + 6*24*time.Hour*time.Duration(i)/time.Duration(n))
				for _, m := range of {
					if _, err := js.PublishMsgAsync(copied(m, i, due), jetstream.WithStallWait(time.Minute)); err != nil {
						return err
					}
				}
			}
			select {
			case <-js.PublishAsyncComplete():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := failed.Load(); err != nil {
				return *err
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return 0, 0, fmt.Errorf("write what is kept: %w", err)
	}
	written = min(int(next.Load()), n)
	return written, float64(written) / time.Since(began).Seconds(), nil
}

// publisher returns a connection of its own, and what the server refused of what was published on it.
func (k *keeping) publisher() (jetstream.JetStream, *atomic.Pointer[error], error) {
	nc, err := nats.Connect(k.nc.ConnectedUrl(), nats.Name("bench fill"))
	if err != nil {
		return nil, nil, err
	}
	var failed atomic.Pointer[error]
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1024),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { failed.Store(&err) }))
	return js, &failed, err
}

// copied returns a message of the run that is copied as one of its i-th copy.
func copied(m *nats.Msg, i int, due time.Time) *nats.Msg {
	id := fmt.Sprintf("kept-%07d", i)
	next := &nats.Msg{
		Subject: strings.Replace(m.Subject, theKept, id, 1), Data: bytes.ReplaceAll(m.Data, []byte(theKept), []byte(id)), Header: m.Header,
	}
	if target := m.Header.Get("Nats-Schedule-Target"); target != "" {
		next.Header = nats.Header{
			"Nats-Schedule-Target": {strings.Replace(target, theKept, id, 1)}, "Nats-Schedule": {"@at " + due.UTC().Format(time.RFC3339Nano)},
		}
	}
	return next
}

// row adds a row: what the server holds, how long it takes to start, and new runs. added is how many were written since the last.
func (k *keeping) row(ctx context.Context, name string, added int, rate float64) error {
	server := k.servers[0]
	killed, err := k.again(ctx, server.kill)
	if err != nil {
		return err
	}
	stopped, err := k.again(ctx, server.stop)
	if err != nil {
		return err
	}
	held, disk, err := k.has(ctx)
	if err != nil {
		return err
	}
	warm, sample := k.sample, k.sample
	k.rows++
	warm.name, warm.runs, sample.name = fmt.Sprint("warm-", k.rows), 64, fmt.Sprint("new-", k.rows)
	if _, err := k.submit(ctx, warm); err != nil {
		return err
	}
	f, _, err := k.load(ctx, k.world, sample, latency{})
	if err != nil {
		return err
	}
	f[serverHeld], f[restart], f[restartKill] = megabytes(held), stopped.Seconds(), killed.Seconds()
	if added > 0 {
		f[fillRate] = rate
		f[heldEach] = float64(held-k.held) / float64(added)
		f[diskEach] = float64(disk-k.disk) / float64(added)
	}
	k.report.add(k.scenario, name, f)
	return nil
}

// has is what the server has: memory and files, bytes.
func (k *keeping) has(ctx context.Context) (held, disk int64, err error) {
	if held, err = k.servers[0].held(ctx); err != nil {
		return 0, 0, err
	}
	disk, err = sizeOfFiles(filepath.Join(k.dir, k.servers[0].name))
	return held, disk, err
}

// again ends the server in some way, starts it, and returns how long it takes to answer.
func (k *keeping) again(ctx context.Context, end func()) (time.Duration, error) {
	end()
	began := time.Now()
	if err := k.servers[0].begin(); err != nil {
		return 0, err
	}
	err := k.await(ctx, "the server to answer again", func() bool {
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := k.js.AccountInfo(try)
		return err == nil
	})
	return time.Since(began), err
}

// sizeOfFiles is the size of all files under a directory, bytes.
func sizeOfFiles(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server has removed it
		}
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
