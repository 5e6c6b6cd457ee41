package llm

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ratchet/internal/loop"
)

// gatheringServer is an endpoint that answers once it has so many requests in hand.
type gatheringServer struct {
	*httptest.Server
	want        int
	inHand      chan struct{} // an element for each
	release     chan struct{}
	connections atomic.Int64
	old         atomic.Int64 // requests by HTTP/1
}

func newGatheringServer(t *testing.T, want int) *gatheringServer {
	g := &gatheringServer{want: want, inHand: make(chan struct{}, want), release: make(chan struct{})}
	g.Server = httptest.NewUnstartedServer(g)
	g.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			g.connections.Add(1)
		}
	}
	t.Cleanup(g.Close)
	return g
}

func (g *gatheringServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if r.ProtoMajor < 2 {
		g.old.Add(1)
	}
	g.inHand <- struct{}{}
	select {
	case <-g.release:
	case <-r.Context().Done():
	}
	_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"Hi"}}]}`)
}

// gather makes the calls and returns when all are in hand. Its result waits for their replies.
func (g *gatheringServer) gather(t *testing.T, client *Client, r loop.ModelRequest) (wait func() error) {
	t.Helper()
	var calls errgroup.Group
	for range g.want {
		calls.Go(func() error {
			reply, err := client.Complete(t.Context(), r)
			if err == nil && reply.Text != "Hi" {
				err = errors.New("the reply is " + reply.Text)
			}
			return err
		})
	}
	late := time.After(30 * time.Second)
	for i := range g.want {
		select {
		case <-g.inHand:
		case <-late:
			t.Fatalf("%d calls have come of %d", i, g.want)
		}
	}
	return calls.Wait
}

func (g *gatheringServer) client(t *testing.T) *Client {
	t.Helper()
	transport := newTransport()
	t.Cleanup(transport.CloseIdleConnections)
	if cert := g.Certificate(); cert != nil {
		trusted := x509.NewCertPool()
		trusted.AddCert(cert)
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	}
	client, err := New(Config{BaseURL: g.URL + "/v1", Transport: transport, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Over https calls share a connection where the endpoint can do that.
func TestCallsShareAConnection(t *testing.T) {
	const calls = 20
	server := newGatheringServer(t, calls)
	server.EnableHTTP2 = true
	server.StartTLS()
	client := server.client(t)
	r := loop.ModelRequest{Messages: []loop.Message{{Role: "user", Content: strings.Repeat("Hello. ", 10_000)}}}
	wait := server.gather(t, client, r)
	close(server.release)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	before := server.connections.Load() // some were begun before the first of them told what the endpoint speaks
	if err := server.gather(t, client, r)(); err != nil {
		t.Fatal(err)
	}
	if more := server.connections.Load() - before; more != 0 || server.old.Load() != 0 {
		t.Errorf("%d calls made %d connections more, and %d were by HTTP/1", calls, more, server.old.Load())
	}
}

// A call that waits for its reply holds what it sends no second time.
func TestAWaitingCallHoldsNoPrompt(t *testing.T) {
	const (
		calls  = 50
		prompt = 400 << 10
		most   = 60 << 10 // both ends of the connection lie in this process
	)
	server := newGatheringServer(t, calls)
	server.Start()
	client := server.client(t)
	r := loop.ModelRequest{Messages: []loop.Message{{Role: "user", Content: strings.Repeat("x", prompt)}}}
	before := inUse()
	wait := server.gather(t, client, r)
	each := (inUse() - before) / calls
	for deadline := time.Now().Add(20 * time.Second); each > most && time.Now().Before(deadline); {
		each = (inUse() - before) / calls // a sender may notice after the other that all has gone
	}
	close(server.release)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if each > most {
		t.Errorf("each of %d calls holds %d KiB while it waits, with a prompt of %d", calls, each>>10, prompt>>10)
	}
	t.Logf("each call holds %d KiB", each>>10)
}

// inUse is what is in use on the heap, bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // pools give back at the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
