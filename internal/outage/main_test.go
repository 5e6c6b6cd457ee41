// Package outage_test breaks NATS under working processes: real servers and real workers, each a process of its own, and
// the failures of the table in docs/concepts.md. What must hold is the same every time: the run goes on when the failure
// is over, or the worker says precisely what is wrong and is not ready; and until then it neither spins nor floods its
// log.
package outage_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/llm"
	"ratchet/internal/node"
)

// role makes the test binary be a server or a worker.
const role = "OUTAGE_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		if err = flag.Set("test.parallel", "5"); err != nil { // they wait most of the time; -parallel says otherwise
			break
		}
		bustest.Main(m)
		return
	case "server":
		err = beServer()
	case "worker":
		err = beWorker()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// untilOrphaned returns a context that ends when the test does: it holds the other end of standard input.
func untilOrphaned() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}

// configOfServer is the path of the configuration that a server process reads.
const configOfServer = "OUTAGE_TEST_CONFIG"

// beServer is nats-server itself, signals included: SIGTERM stops it, SIGHUP has it read its configuration again.
func beServer() error {
	opts, err := server.ProcessConfigFile(os.Getenv(configOfServer))
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	<-untilOrphaned().Done()
	return nil
}

// workerConfig says what a worker process does.
type workerConfig struct {
	Name, NATS, Model string
	Tools             string // tools file
	Replicas          int
}

const configOfWorker = "OUTAGE_TEST_WORKER"

// lease is short, so that a lost wake-up is found soon.
const lease = 2 * time.Second

// beWorker is a worker like any other. Its log goes to standard error, a line of JSON each.
func beWorker() error {
	var c workerConfig
	if err := json.Unmarshal([]byte(os.Getenv(configOfWorker)), &c); err != nil {
		return err
	}
	ctx := untilOrphaned()
	n, err := node.Start(ctx, node.Options{
		Name: c.Name, Connect: bus.ConnectOptions{URL: c.NATS}, Replicas: c.Replicas, Lease: lease, Grace: time.Second,
		Model: llm.Config{BaseURL: c.Model, Model: "demo"}, Tools: c.Tools, HTTP: "127.0.0.1:0", Memory: node.MemoryOptions{Off: true},
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer n.Close()
	return n.Run(ctx)
}

// rows are the rows of the failure table that tests here prove, by the test's name.
var rows = map[string]string{
	"TestNATSIsAway":                "NATS is away",
	"TestAServerOfAClusterIsKilled": "a server of a cluster is killed",
	"TestARollingRestart":           "servers and workers are restarted one after the other",
	"TestReplicasAreRaised":         "replicas are raised",
	"TestAStreamIsFull":             "a stream or the disk is full",
	"TestTheDiskIsFull":             "a stream or the disk is full",
	"TestAPermissionIsMissing":      "a permission is missing",
	"TestAQueueIsDeleted":           "the stream or consumer of a queue is deleted",
	"TestABucketIsDeleted":          "a bucket is deleted",
	"TestTheJournalIsDeleted":       "the journal is deleted",
}

// TestRowsAreInTheTable finds each row in the page.
func TestRowsAreInTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	for test, row := range rows {
		if !strings.Contains(string(page), "| "+row+" |") {
			t.Errorf("%s proves the row %q, and docs/concepts.md has none", test, row)
		}
	}
}

// must fails the test at once.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds every wait: long, for machines are slow.
const patience = time.Minute

// eventually waits until a condition holds. It asks every 20 ms.
func eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	err := errors.New("it was never looked at")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if err = condition(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not in %s: %v", what, patience, err)
}
