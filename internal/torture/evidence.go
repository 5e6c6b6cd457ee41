package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// Streams and buckets, as docs/protocol.md names them.
const (
	streamTasks  = "AGENT_TASKS"
	streamWake   = "AGENT_WAKE"
	streamEvents = "AGENT_EVENTS"
	streamDead   = "AGENT_DEAD"
	bucketRuns   = "AGENT_RUNS"
	bucketTalks  = "AGENT_SESSIONS"
)

// Evidence is all that is known at the end: what is stored, and what the torturer saw.
type Evidence struct {
	Lease time.Duration

	// As stored in NATS.
	Journals map[string][]Record // by run
	Heads    map[string]loop.Head
	Sessions map[string]loop.Session
	Tasks    []string // subjects of messages left in the queue of tasks
	Wakes    []string // and in that of wake-ups
	Dead     []DeadLetter

	// As the workers say it through the API.
	Listed []bus.ListedRun
	Facts  map[string][]string // what is known of each user

	// As the torturer saw it.
	Planned    map[string]Planned
	ModelCalls []ModelCall
	Executions []Execution
	Guards     []Guarded
	Told       []Told
	Refused    []string // what the API refused, and should not have
	Faults     []Fault
	Busy       []Span // in which the machine was too slow to judge how quick anything was
	Planted    []Plant
	Drained    []string      // what was left when patience ended
	Draining   time.Duration // how long it took until nothing was left
	Deaths     []string      // processes that ended and nobody harmed them
	Restarts   int           // of workers that could not start while the server was harmed
}

// Record is one message of a journal.
type Record struct {
	Subject string
	Event   loop.Event
	Problem string // why it is no event; empty where it is one
}

// DeadLetter is one message put aside.
type DeadLetter struct {
	Subject string
	Reason  string
	Error   string
	Body    string
}

// stored is one message of a stream.
type stored struct {
	Subject string
	Seq     uint64
	Header  map[string][]string
	Data    []byte
}

// readStream calls visit for each message of a stream from a sequence on, in order, and returns the last sequence seen.
func readStream(ctx context.Context, js jetstream.JetStream, stream string, from uint64, visit func(stored)) (last uint64, err error) {
	const batch = 500
	if !js.Conn().IsConnected() {
		return 0, errors.New("not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		got := 0
		messages, err := jetstreamext.GetBatch(ctx, js, stream, batch, jetstreamext.GetBatchSeq(from), jetstreamext.GetBatchSubject(">"))
		if err != nil {
			return last, fmt.Errorf("read %s from %d: %w", stream, from, err)
		}
		for m, err := range messages {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				return last, nil
			}
			if err != nil {
				return last, fmt.Errorf("read %s from %d: %w", stream, from, err)
			}
			visit(stored{m.Subject, m.Sequence, m.Header, m.Data})
			got, last, from = got+1, m.Sequence, m.Sequence+1
		}
		if got < batch {
			return last, nil
		}
	}
}

// readPatience bounds the reading of a whole stream: on a machine without time to spare a batch may end early.
const readPatience = 2 * time.Minute

// readAll calls visit for each message of a stream that nobody writes to any more. It is an error where one is missing: what
// was not read must not pass for what is not there.
func readAll(ctx context.Context, js jetstream.JetStream, stream string, visit func(stored)) error {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", stream, err)
	}
	want, got, next := s.CachedInfo().State.Msgs, uint64(0), uint64(1)
	for {
		last, err := readStream(ctx, js, stream, next, func(m stored) {
			got++
			visit(m)
		})
		switch next = max(next, last+1); {
		case got >= want:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("read %s: %d of %d messages within %s: %w", stream, got, want, readPatience, errors.Join(err, ctx.Err()))
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// queues lists the subjects of what lies in the two queues.
func queues(ctx context.Context, js jetstream.JetStream) (tasks, wakes []string, err error) {
	list := func(name string) (subjects []string, err error) {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", name, err)
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", name, err)
		}
		for subject, n := range info.State.Subjects {
			for range n {
				subjects = append(subjects, subject)
			}
		}
		slices.Sort(subjects)
		return subjects, nil
	}
	if tasks, err = list(streamTasks); err != nil {
		return nil, nil, err
	}
	wakes, err = list(streamWake)
	return tasks, wakes, err
}

// collect reads everything.
func collect(ctx context.Context, logs string, w *world, ledger *Ledger) (Evidence, error) {
	e := Evidence{
		Lease: w.opts.Lease, Journals: map[string][]Record{}, Heads: map[string]loop.Head{}, Sessions: map[string]loop.Session{},
		Planned: map[string]Planned{}, Facts: map[string][]string{},
	}
	reads := []struct {
		stream string
		visit  func(stored)
	}{
		{streamEvents, e.addEvent},
		{streamDead, func(m stored) {
			header := func(name string) string { return strings.Join(m.Header[name], " ") }
			e.Dead = append(e.Dead, DeadLetter{m.Subject, header("Ratchet-Reason"), header("Ratchet-Error"), string(m.Data)})
		}},
		{"KV_" + bucketRuns, func(m stored) { decodeInto(e.Heads, m) }},
		{"KV_" + bucketTalks, func(m stored) { decodeInto(e.Sessions, m) }},
	}
	for _, r := range reads {
		if err := readAll(ctx, w.js, r.stream, r.visit); err != nil {
			return e, err
		}
	}
	var err error
	if e.Tasks, e.Wakes, err = queues(ctx, w.js); err != nil {
		return e, err
	}
	ledger.copyTo(&e)
	if err := e.askWorkers(ctx, w.client); err != nil {
		return e, err
	}
	w.mu.Lock()
	e.Deaths, e.Restarts = append(e.Deaths, w.deaths...), w.starts
	w.mu.Unlock()
	panics, err := findPanics(logs)
	e.Deaths = append(e.Deaths, panics...)
	return e, err
}

// askWorkers reads through the API what it says of all runs, and of the users of conversations.
func (e *Evidence) askWorkers(ctx context.Context, client *bus.Client) error {
	for after := uint64(0); ; {
		page, err := client.List(ctx, bus.ListRequest{Limit: 500, After: after})
		if err != nil {
			return fmt.Errorf("list the runs: %w", err)
		}
		e.Listed = append(e.Listed, page.Runs...)
		if after = page.Next; after == 0 {
			break
		}
	}
	for session := range e.Sessions {
		answer, err := client.Facts(ctx, bus.FactsRequest{Op: "list", User: userOf(session)})
		if err != nil {
			return fmt.Errorf("list what was learned: %w", err)
		}
		for _, f := range answer.Facts {
			e.Facts[userOf(session)] = append(e.Facts[userOf(session)], f.Text)
		}
	}
	return nil
}

func (e *Evidence) addEvent(m stored) {
	part := strings.Split(m.Subject, ".")
	if len(part) != 5 {
		return
	}
	event, err := loop.DecodeEvent(m.Data)
	event.Seq = m.Seq
	r := Record{Subject: m.Subject, Event: event}
	switch {
	case err != nil:
		r.Problem = err.Error()
	case event.Run != part[3] || event.Tenant != part[2]:
		r.Problem = "it is an event of " + event.RunID.String()
	}
	e.Journals[part[3]] = append(e.Journals[part[3]], r)
}

// decodeInto reads a value of a bucket. What can't be read stays empty, which no check lets pass.
func decodeInto[V any](into map[string]V, m stored) {
	var v V
	_ = json.Unmarshal(m.Data, &v) // see above
	into[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]] = v
}

// findPanics looks for panics in the workers' logs: the engine survives those of a run, and none should be there at all.
func findPanics(dir string) (found []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		f, err := os.Open(name) // our own directory
		if err != nil {
			return nil, err
		}
		scanner := bufio.NewScanner(f)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if line := scanner.Text(); strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "panic: ") {
				found = append(found, filepath.Base(name)+": "+line)
			}
		}
		_ = f.Close() // it was only read
		if err := scanner.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return found, nil
}
