package llm

import (
	"net/http"
	"time"
)

// newTransport is [http.DefaultTransport] for an endpoint that gets all requests of the worker, thousands of them at the
// same time. Over https, HTTP/2 has many share a connection where the endpoint speaks it. Without that each has one of its
// own, so its buffers are small: a prompt goes past them, and a reply mostly too.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.WriteBufferSize, t.ReadBufferSize = 1<<10, 2<<10
	// A connection that is dead and shared would hold all its calls up until each has taken the longest time it may.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}
