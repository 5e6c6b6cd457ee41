package embedded_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus/bustest"
	"ratchet/internal/memory"
	"ratchet/internal/memory/embedded"
	"ratchet/internal/memory/memorytest"
)

func TestMain(m *testing.M) {
	bustest.Main(m)
}

// workers opens stores over one server, each with a connection of its own.
func workers(t testing.TB, cfg embedded.Config) memorytest.Handles {
	server := bustest.Server(t)
	return func(t testing.TB) memory.Store {
		js, err := jetstream.New(bustest.Connect(t, server))
		if err != nil {
			t.Fatal(err)
		}
		return open(t, js, cfg)
	}
}

func open(t testing.TB, js jetstream.JetStream, cfg embedded.Config) *embedded.Store {
	t.Helper()
	cfg.Bucket = "AGENT_FACTS"
	s, err := embedded.Open(memorytest.Context(t), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestConformance(t *testing.T) {
	memorytest.Conformance(t, func(t testing.TB) memorytest.Handles { return workers(t, embedded.Config{}) })
}

// With room for one user at a time, indexes come and go all the time.
func TestConformanceWithoutRoom(t *testing.T) {
	memorytest.Conformance(t, func(t testing.TB) memorytest.Handles { return workers(t, embedded.Config{Users: 1, Facts: 10}) })
}
