package bustest

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"ratchet/internal/bus"
)

// stopping are the servers that stop in the background. nats-server takes ten milliseconds to stop each consumer, and there
// are some sixty, so that a test which waited for it would often wait for longer than it runs.
var stopping struct {
	sync.WaitGroup
	awaited bool // somebody will wait for them
}

// Main is what a TestMain calls: it runs the tests, waits until the servers they started have stopped, and fails where
// goroutines are left behind.
func Main(m *testing.M) {
	stopping.awaited = true
	goleak.VerifyTestMain(patient{m}, knownLeaks()...)
}

// patient waits for servers after the tests.
type patient struct{ tests *testing.M }

// Run implements [goleak.TestingM].
func (p patient) Run() int {
	defer stopping.Wait()
	return p.tests.Run()
}

// stop shuts a server down and removes its directory.
func stop(server *bus.Embedded, dir string) {
	end := func() {
		server.Shutdown()
		_ = os.RemoveAll(dir) // in the system's temporary directory
	}
	if stopping.awaited {
		stopping.Go(end)
	} else {
		end()
	}
}

// knownLeaks are the goroutines that libraries leave behind whatever we do:
//   - bleve starts workers when it is loaded and never stops them;
//   - each Put of an object store makes a publisher, and where its end comes before its goroutine has read the channel it is
//     to wait on, that goroutine waits for ever (nats.go 1.55).
func knownLeaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
	}
}
