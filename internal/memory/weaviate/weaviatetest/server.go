// Package weaviatetest gives tests a real Weaviate: a server of their own, in a temporary directory, on free ports of
// loopback. Its binary is made by `make weaviate`.
package weaviatetest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"ratchet/internal/freeport"
)

// Key is the API key of the servers, Module the vectorizer module they have.
const (
	Key    = "key-of-the-tests"
	Module = "text2vec-ollama"
)

// Server is a running Weaviate.
type Server struct {
	URL string

	binary string
	dir    string
	ports  []int
	cmd    *exec.Cmd
	exited chan struct{}
}

// binary finds the server's binary, or skips the test. Where CI is set it must be there.
func binary(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "..", "..", "..", "..", "build", "bin", "weaviate-server")
	if _, err := os.Stat(path); err != nil {
		missing := "no Weaviate in build/bin: run `make weaviate` once (about ten minutes) to test against a real one"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return path
}

// Start starts a server, which is killed at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{binary: binary(t), dir: t.TempDir()}
	s.launch(t)
	t.Cleanup(s.Kill)
	return s
}

var shared struct {
	sync.Mutex
	server *Server
	dir    string
}

// Shared returns the server that all tests of a package share. Their TestMain has to call [StopShared].
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s := &Server{binary: binary(t)}
		var err error
		if s.dir, err = os.MkdirTemp("", "weaviate-"); err != nil {
			t.Fatal(err)
		}
		shared.dir = s.dir
		s.launch(t)
		shared.server = s
	}
	return shared.server
}

// StopShared stops the shared server, if one was started.
func StopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.Kill()
		shared.server = nil
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // in the system's temporary directory
	}
}

// launch starts the process and waits until it is ready.
func (s *Server) launch(t testing.TB) {
	t.Helper()
	if s.ports == nil {
		s.ports = freeport.Some(t, 6)
	}
	s.URL = "http://127.0.0.1:" + strconv.Itoa(s.ports[0])
	port := func(i int) string { return strconv.Itoa(s.ports[i]) }
	s.cmd = exec.Command(s.binary, "--host", "127.0.0.1", "--port", port(0), "--scheme", "http")
	s.cmd.Dir = s.dir
	s.cmd.Env = []string{
		"HOME=" + s.dir, "PATH=" + os.Getenv("PATH"), "PERSISTENCE_DATA_PATH=" + filepath.Join(s.dir, "data"),
		"AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED=false", "AUTHENTICATION_APIKEY_ENABLED=true",
		"AUTHENTICATION_APIKEY_ALLOWED_KEYS=" + Key, "AUTHENTICATION_APIKEY_USERS=tests", "AUTHORIZATION_ADMINLIST_ENABLED=true",
		"AUTHORIZATION_ADMINLIST_USERS=tests", "ENABLE_MODULES=" + Module, "DEFAULT_VECTORIZER_MODULE=none",
		"CLUSTER_HOSTNAME=node1", "CLUSTER_ADVERTISE_ADDR=127.0.0.1",
		"CLUSTER_GOSSIP_BIND_PORT=" + port(1), "CLUSTER_DATA_BIND_PORT=" + port(2), "RAFT_PORT=" + port(3),
		"RAFT_INTERNAL_RPC_PORT=" + port(4), "GRPC_PORT=" + port(5), "RAFT_BOOTSTRAP_EXPECT=1",
		"DISABLE_TELEMETRY=true", "GO_PROFILING_DISABLE=true", "LOG_LEVEL=error",
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.exited = make(chan struct{})
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // how it ends is in its log
	}()
	if err := s.waitReady(); err != nil {
		s.Kill()
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("Weaviate did not start: %v\n%s", err, text)
	}
}

func (s *Server) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/.well-known/ready", nil)
		if err != nil {
			return err
		}
		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close() // only the status counts
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within a minute: %w", ctx.Err())
		case <-s.exited:
			return fmt.Errorf("it ended: %s", s.cmd.ProcessState)
		case <-ticker.C:
		}
	}
}

// Kill ends the server at once, as a crash does. Its data stay. A server that has ended stays so.
func (s *Server) Kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL) // an error says that it has ended
	<-s.exited
}

// Restart starts a killed server again, with the data and at the address that it had.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.launch(t)
}
