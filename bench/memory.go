package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// memory is what a process holds by its own account, bytes. What the kernel counts is more: garbage that was not collected
// yet, and memory that is free and was not given back.
type memory struct {
	Heap   int64 `json:"heap"`   // in use when the last collection ended
	Stacks int64 `json:"stacks"` // of goroutines
}

// since is what was added to an earlier amount for each of n runs, KB. It is nothing where there is less now.
func (m memory) since(before memory, n int) (heap, stacks float64) {
	each := func(bytes int64) float64 { return float64(max(0, bytes)) / 1024 / float64(n) }
	return each(m.Heap - before.Heap), each(m.Stacks - before.Stacks)
}

// What a parent asks a child for, a line each; the child answers with a line of JSON.
const (
	askMemory  = "memory"
	askCollect = "collect"  // the same after a collection
	askProfile = "profile " // and the beginning of the names of the files to write
)

// obey answers the parent until its input ends, as it does when the parent is gone.
func obey(input io.Reader, output io.Writer) {
	lines, answers := bufio.NewScanner(input), json.NewEncoder(output)
	for lines.Scan() {
		if lines.Text() == askCollect {
			runtime.GC()
		}
		var answer any = ownMemory()
		if path, ok := strings.CutPrefix(lines.Text(), askProfile); ok {
			answer = nil
			if err := writeProfiles(path); err != nil {
				answer = err.Error()
			}
		}
		if answers.Encode(answer) != nil {
			return // nobody listens
		}
	}
}

// ownMemory has nothing collected, so that looking changes nothing.
func ownMemory() memory {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	size := func(s metrics.Sample) int64 {
		if s.Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(s.Value.Uint64())
	}
	return memory{size(samples[0]), size(samples[1])}
}

// writeProfiles writes what the heap and the goroutines are made of.
func writeProfiles(path string) error {
	runtime.GC() // the profile of the heap is that of the last collection
	for _, name := range []string{"heap", "goroutine"} {
		file, err := os.Create(path + "-" + name + ".prof")
		if err != nil {
			return err
		}
		err = errors.Join(pprof.Lookup(name).WriteTo(file, 0), file.Close())
		if err != nil {
			return fmt.Errorf("write %s: %w", file.Name(), err)
		}
	}
	return nil
}

// ask asks a child and reads its answer.
func (p *process) ask(line string, answer any) error {
	if _, err := io.WriteString(p.input, line+"\n"); err != nil {
		return fmt.Errorf("ask %s for its %s: %w", p.name, line, err)
	}
	if err := p.answers.Decode(answer); err != nil {
		return fmt.Errorf("read the %s of %s: %w", line, p.name, err)
	}
	return nil
}

// holds is what workers hold, all together, by the way of asking for it.
func (w *world) holds(ask string) (all memory, err error) {
	for _, p := range w.workers {
		var m memory
		if err := p.ask(ask, &m); err != nil {
			return all, err
		}
		all.Heap, all.Stacks = all.Heap+m.Heap, all.Stacks+m.Stacks
	}
	return all, nil
}

// watchEvery is how often a worker is asked what it holds.
const watchEvery = 100 * time.Millisecond

// settled is the look at which profiles are written: the load has been there for some time.
const settled = 20

// watch looks at what the workers hold while so many runs or more are in flight, until ctx ends, and returns the medians.
// Where profiles are wanted they are written once.
func (b *bench) watch(ctx context.Context, w *world, runs int) (memory, error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var heap, stacks []int64
	for {
		select {
		case <-ctx.Done():
			return memory{middle(heap), middle(stacks)}, nil
		case <-tick.C:
		}
		if w.inFlight() < runs {
			continue
		}
		now, err := w.holds(askMemory)
		if err != nil {
			return memory{}, err
		}
		heap, stacks = append(heap, now.Heap), append(stacks, now.Stacks)
		if len(heap) == settled && b.opts.MemProfile != "" {
			if err := w.profile(b.profileName(b.opts.MemProfile)); err != nil {
				return memory{}, err
			}
		}
	}
}

// profile has the workers write their profiles.
func (w *world) profile(name string) error {
	for _, p := range w.workers {
		var problem *string
		if err := p.ask(askProfile+name+"-"+p.name, &problem); err != nil {
			return err
		}
		if problem != nil {
			return fmt.Errorf("a profile of the memory of %s: %s", p.name, *problem)
		}
	}
	return nil
}

func middle(of []int64) int64 {
	if len(of) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(of))[len(of)/2]
}
