package node

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// readyTimeout bounds one look at whether the node can work.
const readyTimeout = 3 * time.Second

// health answers /healthz while the process lives, and /readyz while it can take work: 503 with the reason otherwise.
func (n *Node) health() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := n.bus.Ready(ctx); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}
