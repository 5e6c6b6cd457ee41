package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// asked gives a test a connection, and hears what is published to the subject "ask".
func asked(t *testing.T, answer func(*nats.Msg)) *nats.Conn {
	t.Helper()
	server, err := StartEmbedded(EmbeddedOptions{Dir: t.TempDir(), Port: -1, Sync: "2m"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if answer != nil {
		if _, err := nc.Subscribe("ask", answer); err != nil {
			t.Fatal(err)
		}
	}
	return nc
}

func TestAnswersFindTheirRequests(t *testing.T) {
	nc := asked(t, func(m *nats.Msg) {
		if err := m.Respond(m.Data); err != nil {
			t.Error(err)
		}
	})
	var a acks
	defer a.stop()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range 20 {
				want := fmt.Sprint(i, "/", j)
				got, err := a.request(t.Context(), nc, &nats.Msg{Subject: "ask", Data: []byte(want)})
				if err != nil || string(got.Data) != want {
					t.Errorf("asked for %s: %v, %v", want, got, err)
				}
			}
		})
	}
	all.Wait()
	if busy := len(a.waiters) - len(a.idle); busy > 0 || len(a.waiters) > 50 {
		t.Errorf("of %d waiters %d are not idle", len(a.waiters), busy)
	}
}

// An answer that comes when nobody waits for it any more is not taken for that to the next request.
func TestLateAnswerIsDropped(t *testing.T) {
	first, given := make(chan *nats.Msg, 1), false
	nc := asked(t, func(m *nats.Msg) {
		if !given {
			given = true
			first <- m
			return
		}
		late := <-first
		for _, answer := range []*nats.Msg{late, m} {
			if err := answer.Respond(answer.Data); err != nil {
				t.Error(err)
			}
		}
	})
	var a acks
	defer a.stop()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := a.request(ctx, nc, &nats.Msg{Subject: "ask", Data: []byte("one")})
		gone <- err
	}()
	m := <-first
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("a request whose caller went away ended with %v", err)
	}
	first <- m
	got, err := a.request(t.Context(), nc, &nats.Msg{Subject: "ask", Data: []byte("two")})
	if err != nil || string(got.Data) != "two" {
		t.Errorf("the second request got %v, %v", got, err)
	}
}

func TestRequestToNobody(t *testing.T) {
	nc := asked(t, nil)
	var a acks
	defer a.stop()
	if _, err := a.request(t.Context(), nc, &nats.Msg{Subject: "ask", Data: []byte("x")}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("got %v", err)
	}
}

// Whoever waits when the bus is closed does not wait for ever, whatever its context says.
func TestStopEndsRequests(t *testing.T) {
	heard := make(chan struct{})
	nc := asked(t, func(*nats.Msg) { close(heard) })
	var a acks
	ended := make(chan error)
	go func() {
		_, err := a.request(context.Background(), nc, &nats.Msg{Subject: "ask", Data: []byte("x")})
		ended <- err
	}()
	<-heard
	a.stop()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
