package outage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// outage is how long a failure lasts: longer than the lease.
const outage = lease + time.Second

func TestNATSIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, before := r.model.counts()
	r.submit("usual", sum)
	r.answered("usual")
	_, after := r.model.counts()
	usual := after - before

	r.parked("parked")
	_, before = r.model.counts()
	r.inFlight("working")
	r.server.process.end(syscall.SIGTERM)
	r.model.open() // the reply comes while there is nobody to store it
	r.worker.becomesUnready("not connected to NATS")
	r.bounded("log lines in an outage", r.worker.staysUnready(outage), 40)

	r.restart()
	r.answered("working")
	_, after = r.model.counts()
	// The lease was over: of the calls, the one whose reply could not be stored may have been repeated.
	r.bounded("model calls of a run with an outage in it", after-before, usual+1)
	r.answers("parked")
	r.submit("new", sum)
	r.answered("new")
}

func TestAStreamIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.parked("parked")
	r.inFlight("working")
	r.limit("AGENT_EVENTS", 1)
	r.model.open()
	r.worker.becomesUnready(`storing on agent\.event failed .*maximum bytes exceeded`)
	r.worker.log.wait(t, "event could not be stored.*maximum bytes exceeded")
	received := r.server.received()
	r.bounded("log lines while a stream is full", r.worker.staysUnready(outage), 40)
	r.bounded("messages to the server while a stream is full", r.server.received()-received, 800)

	r.limit("AGENT_EVENTS", -1)
	r.answered("working")
	r.worker.becomesReady()
	r.answers("parked")
}

// limit sets the bytes that a stream may hold.
func (r *rig) limit(stream string, bytes int64) {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), stream)
	must(r.t, err)
	c := s.CachedInfo().Config
	c.MaxBytes = bytes
	_, err = r.js.UpdateStream(r.ctx(), c)
	must(r.t, err)
}

func TestTheDiskIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", dir).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("a small disk can't be mounted, and CI must not leave this out: %v: %s", err, out)
		}
		t.Skipf("not tested: mounting a small disk needs root: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount the small disk: %v: %s", err, out)
		}
	})
	r := rigOn(t, newServer(t, filepath.Join(dir, "nats"), ""))
	r.parked("parked")
	r.inFlight("working")
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	r.model.open()
	r.worker.becomesUnready("storing on agent.event failed .*the server did not answer.*full disk")
	r.worker.log.wait(t, "event could not be stored.*full disk")
	received := r.server.received()
	r.bounded("log lines while the disk is full", r.worker.staysUnready(outage), 60)
	r.bounded("messages to the server while the disk is full", r.server.received()-received, 800)

	must(t, os.Remove(filler))
	r.server.process.end(syscall.SIGTERM) // nats-server gives up a store that could not be written to
	r.restart()
	r.answered("working")
	r.answers("parked")
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 1 << 10, 1} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
	}
	if !strings.Contains(err.Error(), "no space left") {
		t.Fatal(err)
	}
}

// accounts is a server's configuration with a user for the worker that may not publish some subjects.
func accounts(denied string) string {
	return `authorization {users = [
		{user: worker, password: w, permissions: {publish: {deny: [` + denied + `]}}}
		{user: operator, password: o}
	]}`
}

func TestAPermissionIsMissing(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir(), accounts(`"agent.event.>"`))
	m := newModel(t)
	host := strings.TrimPrefix(s.url(), "nats://")
	w := newWorker(t, workerConfig{Name: "w1", NATS: "nats://worker:w@" + host, Model: m.url})
	r := &rig{t: t, server: s, worker: w, model: m, person: newPerson(t, "nats://operator:o@"+host)}
	r.submit("r1", sum)
	w.becomesUnready(`storing on agent\.event failed .*[Pp]ermissions [Vv]iolation for [Pp]ublish to "agent\.event\.default\.r1\.step"`)
	w.log.wait(t, `permission denied; grant this subject.*agent\.event`)
	w.log.wait(t, `"a message could not be handled.*agent\.event\.default\.r1\.step`)
	received := s.received()
	r.bounded("log lines while a permission is missing", w.staysUnready(outage), 40)
	// The test itself looks at /readyz thirty times, and each look asks for eleven things; the lanes of the queues are asked
	// about ninety times. A worker that spins would send thousands.
	r.bounded("messages to the server while a permission is missing", s.received()-received, 800)

	s.more = accounts(`"nothing.>"`)
	s.write()
	must(t, s.process.cmd.Process.Signal(syscall.SIGHUP))
	r.answered("r1")
	w.becomesReady()
}

func TestAQueueIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.parked("parked")
	r.inFlight("working")
	must(t, r.js.DeleteConsumer(r.ctx(), "AGENT_TASKS", "inbox"))
	must(t, r.js.DeleteConsumer(r.ctx(), "AGENT_WAKE", "wakes"))
	r.worker.log.wait(t, "deleted behind our back")
	r.model.open()
	r.answered("working")
	r.submit("after-consumers", sum)
	r.answered("after-consumers")

	before := r.worker.log.count()
	must(t, r.js.DeleteStream(r.ctx(), "AGENT_WAKE"))
	must(t, r.js.DeleteStream(r.ctx(), "AGENT_TASKS"))
	r.submitAgain("after-streams")
	r.answered("after-streams")
	r.answers("parked")
	r.worker.becomesReady()
	r.bounded("log lines about what was deleted", r.worker.log.count()-before, 40)
}

// submitAgain submits until the queue is there again.
func (r *rig) submitAgain(id string) {
	r.t.Helper()
	eventually(r.t, "a task is taken", func() error {
		_, err := r.client.Submit(r.ctx(), []byte(`{"id": "`+id+`", "goal": "`+sum+`"}`))
		return err
	})
}

func TestABucketIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.parked("parked")
	r.inFlight("working")
	before := r.worker.log.count()
	must(t, r.js.DeleteKeyValue(r.ctx(), "AGENT_RUNS"))
	must(t, r.js.DeleteKeyValue(r.ctx(), "AGENT_SESSIONS"))
	r.model.open()
	r.worker.log.wait(t, `made again.*KV_AGENT_RUNS`)
	r.answered("working")
	r.answers("parked")
	r.submit("new", sum)
	r.answered("new")
	for _, id := range []string{"working", "new"} { // their states were made anew from their journals
		r.closed(id)
	}
	r.worker.becomesReady()
	r.bounded("log lines about what was deleted", r.worker.log.count()-before, 40)
}

// closed waits until the stored state of a run says that all is done.
func (r *rig) closed(id string) {
	r.t.Helper()
	eventually(r.t, "run "+id+" is closed", func() error {
		kv, err := r.js.KeyValue(r.ctx(), "AGENT_RUNS")
		if err != nil {
			return err
		}
		entry, err := kv.Get(r.ctx(), "default."+id)
		if err == nil && !strings.Contains(string(entry.Value()), `"closed":true`) {
			err = jetstream.ErrKeyNotFound
		}
		return err
	})
}

// The journal is not made again in silence: with an empty one every run would be forgotten.
func TestTheJournalIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inFlight("working")
	must(t, r.js.DeleteStream(r.ctx(), "AGENT_EVENTS"))
	r.model.open()
	r.worker.becomesUnready("stream AGENT_EVENTS can't be reached")
	r.worker.log.wait(t, "the journal of all runs was deleted; restore it")
	received := r.server.received()
	r.bounded("log lines without a journal", r.worker.staysUnready(outage), 40)
	r.bounded("messages to the server without a journal", r.server.received()-received, 800)
}
