package web

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ratchet/internal/loop"
)

// listen opens a stream of events and returns its messages: the id, and the data in one piece.
func listen(t *testing.T, base, query, lastID string) <-chan [2]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", base+"/live?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %s", response.Status)
	}
	messages := make(chan [2]string, 100)
	go func() {
		defer close(messages)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 10<<20)
		var m [2]string
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "id":
				m[0] = value
			case "data":
				m[1] += value + "\n"
			case "":
				if lines.Text() == "" && m[0] != "" {
					messages <- m
					m = [2]string{}
				}
			}
		}
	}()
	return messages
}

func next(t *testing.T, messages <-chan [2]string) [2]string {
	t.Helper()
	select {
	case m, ok := <-messages:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return m
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
	}
	return [2]string{}
}

// site serves a console on a port of loopback.
func site(t *testing.T, w *world) (*Server, string) {
	t.Helper()
	s := serve(t, w, Access{})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(s.Close) // ends the streams that the server waits for
	return s, server.URL
}

// TestATabGetsWhatItMissed comes back with the sequence of the last event that it shows.
func TestATabGetsWhatItMissed(t *testing.T) {
	w := &world{events: journal("r1", 11, accepted("g"), loop.Facts{}, loop.Thought{Thought: "second thought"}, loop.Answer{Answer: "42"})}
	_, base := site(t, w)
	first := next(t, listen(t, base, "run=acme/r1&after=11", "12"))
	if strings.Contains(first[1], `id="e-12"`) || !strings.Contains(first[1], `id="e-13"`) || !strings.Contains(first[1], `id="e-14"`) {
		t.Errorf("after 12 came\n%s", first[1])
	}
	if first[0] != "14" || !strings.Contains(first[1], "second thought") || !strings.Contains(first[1], `id="run-head"`) {
		t.Errorf("message %s is\n%s", first[0], first[1])
	}
	shown := next(t, listen(t, base, "run=acme/r1&after=14", ""))
	if strings.Contains(shown[1], `id="e-`) || strings.Contains(shown[1], `id="run-head"`) {
		t.Errorf("a tab that shows everything got\n%s", shown[1])
	}
}

// TestAMessageBearsTheNewestEventThatTheTabShows and not one that somebody else's tab shows, or that the list knows of: a tab that
// came back with that would miss what lies between.
func TestAMessageBearsTheNewestEventThatTheTabShows(t *testing.T) {
	w := &world{events: append(journal("r1", 11, accepted("g"), loop.Thought{}), journal("r2", 13, accepted("g"), loop.Thought{}, loop.Thought{})...)}
	_, base := site(t, w)
	for run, want := range map[string]string{"acme/r1": "12", "acme/r2": "15"} {
		if first := next(t, listen(t, base, "run="+run, "")); first[0] != want {
			t.Errorf("the first message for %s is %s, want %s", run, first[0], want)
		}
	}
	if same := next(t, listen(t, base, "run=acme/r1&after=12", "")); same[0] != "12" {
		t.Errorf("the message for a tab that shows all is %s", same[0])
	}
}

// TestASlowTabIsLetGo has a tab that takes nothing: the feed must not wait for it.
func TestASlowTabIsLetGo(t *testing.T) {
	s := serve(t, &world{}, Access{})
	slow := s.feed.open(loop.RunID{Tenant: "acme", Run: "r1"})
	quick := s.feed.open(loop.RunID{Tenant: "acme", Run: "r2"})
	for i := range 2*queued + 1 {
		for _, run := range []string{"r1", "r2"} {
			e := journal(run, 1, loop.Thought{})[0]
			e.N, e.Seq = uint64(i+1), uint64(2*i+1)
			s.feed.take(e)
		}
		drain(quick.events)
	}
	select {
	case <-slow.lost:
	default:
		t.Error("the slow tab was not let go")
	}
	select {
	case <-quick.lost:
		t.Error("the quick tab was let go")
	default:
	}
}

func TestTooManyTabs(t *testing.T) {
	s := serve(t, &world{}, Access{})
	for range maxStreams {
		s.streams <- struct{}{}
	}
	got := ask(s, "GET", "/live?view=runs", nil, nil)
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, %v", got.Code, got.Header())
	}
}

// TestAnEventIsOneMessage keeps what runs say from ending a message or beginning another.
func TestAnEventIsOneMessage(t *testing.T) {
	w := &world{events: journal("r1", 1, accepted("g"), loop.Thought{Thought: "a\n\nid: 999\ndata: forged\r\revent: x"})}
	_, base := site(t, w)
	first := next(t, listen(t, base, "run=acme/r1", ""))
	if first[0] != "2" || !strings.Contains(first[1], "data: forged") || strings.Contains(first[1], "\r") {
		t.Errorf("message %s is\n%s", first[0], first[1])
	}
}

func TestPagesOfAWorldInTrouble(t *testing.T) {
	gap := journal("r1", 1, accepted("g"), loop.Thought{Thought: "x"})
	gap[1].N = 7
	w := &world{events: gap}
	s := serve(t, w, Access{})
	wantStatus(t, ask(s, "GET", "/runs/acme/r1", nil, nil), http.StatusOK, "This journal does not add up")
	wantStatus(t, ask(s, "GET", "/runs/acme/r1/events/7", nil, nil), http.StatusOK, `"thought": "x"`)
	wantStatus(t, ask(s, "GET", "/runs/acme/nobody", nil, nil), http.StatusNotFound, "There is no such run")
	wantStatus(t, ask(s, "GET", "/runs/_x/y", nil, nil), http.StatusNotFound, "There is no such run")
	wantStatus(t, ask(s, "GET", "/system", nil, nil), http.StatusOK, "the disk is full")
	wantStatus(t, ask(s, "GET", "/dead", nil, nil), http.StatusOK, "no goal")
	wantStatus(t, ask(s, "GET", "/dead/7", nil, nil), http.StatusOK, "The message is no text: 2 bytes.")
	wantStatus(t, ask(s, "GET", "/dead/8", nil, nil), http.StatusNotFound, "There is no such dead letter")
	wantStatus(t, ask(s, "POST", "/runs/acme/r1/control", map[string][]string{"op": {"explode"}}, nil), http.StatusBadRequest, "That is no order")
	w.err = &Refusal{Message: "goal is missing"}
	wantStatus(t, ask(s, "POST", "/new", map[string][]string{"tenant": {"acme"}, "session": {"s<1"}}, nil), http.StatusUnprocessableEntity, "goal is missing")
	w.err = fmt.Errorf("not connected")
	wantStatus(t, ask(s, "POST", "/runs/acme/r1/control", map[string][]string{"op": {"cancel"}}, nil), http.StatusServiceUnavailable, "not connected")
	if got := ask(s, "POST", "/dead/8/drop", nil, nil); got.Header().Get("Location") != "/dead?said=gone" {
		t.Errorf("dropping what is gone leads to %q", got.Header().Get("Location"))
	}
}
