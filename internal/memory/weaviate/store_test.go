package weaviate_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"ratchet/internal/memory"
	"ratchet/internal/memory/memorytest"
	"ratchet/internal/memory/weaviate"
	"ratchet/internal/memory/weaviate/weaviatetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	weaviatetest.StopShared()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var collections atomic.Int64

// collection returns a name that no other test uses.
func collection() string { return fmt.Sprintf("Facts%d", collections.Add(1)) }

// config is one for a server, with a collection of its own and connections that end with the test.
func config(t testing.TB, server *weaviatetest.Server) weaviate.Config {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	t.Cleanup(transport.CloseIdleConnections)
	return weaviate.Config{
		URL: server.URL, APIKey: weaviatetest.Key, Collection: collection(), Client: &http.Client{Transport: transport},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func open(t testing.TB, cfg weaviate.Config) *weaviate.Store {
	t.Helper()
	s, err := weaviate.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func handles(cfg weaviate.Config) memorytest.Handles {
	return func(t testing.TB) memory.Store { return open(t, cfg) }
}

func TestConformanceWords(t *testing.T) {
	server := weaviatetest.Shared(t)
	memorytest.Conformance(t, func(t testing.TB) memorytest.Handles { return handles(config(t, server)) })
}

func TestConformanceHybrid(t *testing.T) {
	server := weaviatetest.Shared(t)
	memorytest.Conformance(t, func(t testing.TB) memorytest.Handles {
		cfg := config(t, server)
		cfg.Embedder = memorytest.Embedder(t)
		return handles(cfg)
	})
}

func TestConformanceVectorizer(t *testing.T) {
	server := weaviatetest.Shared(t)
	memorytest.Conformance(t, func(t testing.TB) memorytest.Handles {
		return handles(withModule(config(t, server), memorytest.EmbeddingServer(t).URL))
	})
}

// withModule has Weaviate's own module ask an embeddings endpoint.
func withModule(cfg weaviate.Config, endpoint string) weaviate.Config {
	cfg.Vectorizer = weaviatetest.Module
	cfg.VectorizerSettings = map[string]any{"apiEndpoint": strings.TrimSuffix(endpoint, "/v1"), "model": "deterministic"}
	return cfg
}
