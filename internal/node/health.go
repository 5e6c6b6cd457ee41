package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"ratchet/internal/loop"
)

// readyTimeout bounds one look at whether the node can work.
const readyTimeout = 3 * time.Second

// stage is how far a node has come in its life.
type stage struct{ at atomic.Int32 }

// The stages, in their order.
const (
	starting int32 = iota // it takes no work yet
	working
	stopping // it takes no more
)

// set enters a stage. There is no way back.
func (s *stage) set(to int32) {
	for at := s.at.Load(); at < to && !s.at.CompareAndSwap(at, to); at = s.at.Load() {
	}
}

// What a node says that takes no work.
var (
	errStarting = errors.New("the worker is starting and takes no work yet")
	errStopping = errors.New("the worker is stopping and takes no new work")
)

// health answers /healthz while the worker's own loops move, /readyz while it takes work and can do it, 503 with the reasons
// otherwise, and /metrics.
func (n *Node) health() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := n.worker.Alive(); err != nil {
			http.Error(w, "stuck: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := n.Ready(ctx); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, strings.Join(append([]string{"ready"}, n.notes()...), "\n"))
	})
	mux.Handle("GET /metrics", n.telemetry.Handler())
	return mux
}

// Ready returns an error that says why the node takes no work or can't do it.
func (n *Node) Ready(ctx context.Context) error {
	switch n.stage.at.Load() {
	case starting:
		return errStarting
	case stopping:
		return errStopping
	}
	return n.bus.Ready(ctx)
}

// notes say what is wrong without keeping the node from its work: runs wait for a model or go on without memory, and no
// other worker would fare better.
func (n *Node) notes() (lines []string) {
	if n.memoryPaused() {
		lines = append(lines, "long-term memory failed several times in a row and is left alone for a while; runs go on without it")
	}
	if cause := n.endpoint.fault.Load(); cause != nil {
		lines = append(lines, "the last request to the model failed ("+*cause+"); the log and the events of its run say why")
	}
	return lines
}

// endpoint is what became of the last request to the model.
type endpoint struct {
	fault atomic.Pointer[string] // cause of its failure; nil: it was answered
}

// heard takes note of how a request ended.
func (e *endpoint) heard(err error) {
	var fault *loop.ModelError
	switch {
	case err == nil:
		e.fault.Store(nil)
	case errors.As(err, &fault):
		e.fault.Store(&fault.Cause)
	}
}
