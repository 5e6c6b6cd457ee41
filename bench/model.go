package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// latency is how long the model takes: evenly distributed between two times.
type latency struct{ from, to time.Duration }

// UnmarshalText reads 20ms, or 1s-3s.
func (l *latency) UnmarshalText(text []byte) (err error) {
	from, to, ranged := strings.Cut(string(text), "-")
	if l.from, err = time.ParseDuration(from); err != nil {
		return fmt.Errorf("%q is not a latency such as 20ms or 1s-3s", text)
	}
	l.to = l.from
	if ranged {
		if l.to, err = time.ParseDuration(to); err != nil || l.to < l.from {
			return fmt.Errorf("%q is not a latency such as 20ms or 1s-3s", text)
		}
	}
	return nil
}

func (l latency) draw() time.Duration {
	return l.from + time.Duration(rand.Int64N(int64(l.to-l.from)+1)) // no secret
}

// model speaks the OpenAI chat API from a script. It reads no prompt: which run asks is in a header, and how far the run is
// it has counted. So it costs little beside what is measured, and its clock tells what the engine takes: the time from a
// reply to the next request of the same run.
type model struct {
	url    string
	server *http.Server

	mu      sync.Mutex
	latency latency
	plays   map[string]*play // by tenant/run
	gaps    []time.Duration  // from a reply to the next request of the run
	resumes []time.Duration  // from a person's reply to the next request of the run
	calls   int
	asked   int64 // bytes of the prompts
	most    int   // requests in hand at once
	inHand  int
}

// play is one run as the model knows it.
type play struct {
	steps   int // events after the first
	asks    bool
	turn    int
	replied time.Time // when the model or, after a question, a person did; zero: not yet
	waits   bool      // for a person
}

func serveModel() (*model, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{url: "http://" + l.Addr().String() + "/v1", plays: map[string]*play{}}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = m.server.Serve(l) }() // ends with close
	return m, nil
}

func (m *model) close() { _ = m.server.Close() } // what is still open belongs to workers that are gone

// expect announces a run.
func (m *model) expect(run string, steps int, asks bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plays[run] = &play{steps: steps, asks: asks}
}

// answered notes that a person is about to reply to the run's question.
func (m *model) answered(run string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.plays[run]; p != nil {
		p.replied = time.Now()
	}
}

// heard is what the model noticed since begin.
type heard struct {
	gaps, resumes []time.Duration
	calls, most   int
	prompt        int64 // mean bytes
}

// begin forgets what was noticed and sets the latency.
func (m *model) begin(l latency) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency, m.gaps, m.resumes, m.calls, m.asked, m.most = l, nil, nil, 0, 0, m.inHand
}

func (m *model) heard() heard {
	m.mu.Lock()
	defer m.mu.Unlock()
	return heard{m.gaps, m.resumes, m.calls, m.most, m.asked / int64(max(m.calls, 1))}
}

// ServeHTTP answers the next turn of the run that the header names; without one it is the bare request of the floor.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	size, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	run := r.Header.Get("X-Ratchet-Run")
	text, wait, known := say(6, 1), time.Duration(0), true
	if run != "" {
		text, wait, known = m.next(run, arrived, size)
	}
	if !known {
		http.Error(w, `{"error":{"message":"this run is not in the script","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
		}
	}
	reply, err := json.Marshal(map[string]any{
		"id": "bench", "object": "chat.completion", "created": arrived.Unix(), "model": "scripted",
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]string{"role": "assistant", "content": text}}},
		"usage":   map[string]int{"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990},
	})
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	m.said(run)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply) // the worker asks again where it was cut off
}

// next notes the request of a run and returns what to say to it, and after which time.
func (m *model) next(run string, arrived time.Time, size int64) (text string, wait time.Duration, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.plays[run]
	if p == nil {
		return "", 0, false
	}
	m.calls, m.asked, m.inHand = m.calls+1, m.asked+size, m.inHand+1
	m.most = max(m.most, m.inHand)
	switch gap := arrived.Sub(p.replied); {
	case p.replied.IsZero():
	case p.waits:
		m.resumes = append(m.resumes, gap)
	default:
		m.gaps = append(m.gaps, gap)
	}
	turn := p.turn
	p.turn, p.waits = turn+1, p.asks && turn == 1
	if p.waits {
		return sayQuestion, m.latency.draw(), true
	}
	if p.asks && turn > 1 {
		turn = p.steps // it was a question instead of calls
	}
	return say(p.steps, turn), m.latency.draw(), true
}

// said notes that a run has its reply.
func (m *model) said(run string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.plays[run]; p != nil {
		m.inHand--
		p.replied = time.Now()
	}
}

// forget removes a run that has ended.
func (m *model) forget(run string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.plays, run)
}
