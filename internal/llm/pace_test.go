package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/llm"
	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

// memoryListener connects clients and a server without the network, so that both can live on the clock of a test.
type memoryListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (l *memoryListener) Dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// bucketServer answers chat requests as fast as a token bucket lets it.
type bucketServer struct {
	rate, burst float64
	latency     time.Duration
	header      map[string]string // of refusals

	mu       sync.Mutex
	began    time.Time
	at       time.Time // of tokens
	tokens   float64
	answered int
	refused  []time.Duration // since the first request
}

func (s *bucketServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	allowed := s.take()
	time.Sleep(s.latency) // on the test's clock
	w.Header().Set("Content-Type", "application/json")
	if allowed {
		_, _ = io.WriteString(w, completionBody)
		return
	}
	for name, value := range s.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`)
}

func (s *bucketServer) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.began.IsZero() {
		s.began, s.at, s.tokens = now, now, s.burst
	}
	s.tokens = min(s.burst, s.tokens+s.rate*now.Sub(s.at).Seconds())
	s.at = now
	if s.tokens < 1 {
		s.refused = append(s.refused, now.Sub(s.began))
		return false
	}
	s.tokens--
	s.answered++
	return true
}

// serveInMemory serves until the returned function is called.
func serveInMemory(h http.Handler) (l *memoryListener, stop func()) {
	l = newMemoryListener()
	server := &http.Server{Handler: h}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	return l, func() {
		_ = server.Close()
		served.Wait()
	}
}

const completionBody = `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":20}}`

// Four workers with fifteen runs each, all at once, share an endpoint that allows five requests a second and share
// nothing but the time before which it is to be left alone.
func TestWorkersShareAnEndpointsLimit(t *testing.T) {
	tests := []struct {
		name   string
		server *bucketServer
	}{
		{"retry after a second", &bucketServer{latency: 100 * time.Millisecond, header: map[string]string{"Retry-After": "1"}}},
		{"milliseconds", &bucketServer{latency: 20 * time.Millisecond, header: map[string]string{"Retry-After-Ms": "200"}}},
		{"no header", &bucketServer{latency: time.Second}},
		{"reset header", &bucketServer{latency: 100 * time.Millisecond, header: map[string]string{
			"X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "200ms",
		}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shareLimit(t, test.server) })
		})
	}
}

func shareLimit(t *testing.T, server *bucketServer) {
	const workers, runs, calls = 4, 15, 8
	server.rate, server.burst = 5, 5
	listener, stop := serveInMemory(server)
	defer stop()
	pace := &llm.LocalPace{}
	var all sync.WaitGroup
	for range workers {
		transport := &http.Transport{DialContext: listener.Dial}
		defer transport.CloseIdleConnections()
		client, err := llm.New(llm.Config{BaseURL: "http://model/v1", Transport: transport, Pace: pace})
		if err != nil {
			t.Fatal(err)
		}
		for range runs {
			all.Go(func() {
				for range calls {
					untilAnswered(t, client)
				}
			})
		}
	}
	all.Wait()

	server.mu.Lock()
	defer server.mu.Unlock()
	took := time.Since(server.began)
	late := 0
	for _, at := range server.refused {
		if at > time.Second {
			late++
		}
	}
	const total = workers * runs * calls
	t.Logf("%.2f calls a second; %d refused in the first second, %d later", total/took.Seconds(), len(server.refused)-late, late)
	if server.answered != total {
		t.Errorf("%d calls were answered, want %d", server.answered, total)
	}
	if late*100 > 2*total {
		t.Errorf("%d of %d calls were refused after the first second, want 2%% at most: %v", late, total, server.refused)
	}
	if least := 2.0; total/took.Seconds() < least {
		t.Errorf("%.1f calls a second, want %.1f at least of the 5 allowed", total/took.Seconds(), least)
	}
}

// untilAnswered asks as an engine does: sent away, it comes back when it was told to.
func untilAnswered(t *testing.T, client *llm.Client) {
	for {
		_, err := client.Complete(t.Context(), stepRequest())
		var me *loop.ModelError
		switch {
		case err == nil:
			return
		case !errors.As(err, &me) || !me.Passing || me.Cause != llm.CauseRateLimit:
			t.Errorf("the call failed for good: %v", err)
			return
		}
		time.Sleep(max(me.After, time.Second)) // on the test's clock
	}
}

// A hold that one worker learnt of keeps the others from asking, and a hold longer than the patience is told at once.
func TestHoldOfAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &bucketServer{rate: 100, burst: 100}
		listener, stop := serveInMemory(server)
		defer stop()
		transport := &http.Transport{DialContext: listener.Dial}
		defer transport.CloseIdleConnections()
		pace := &llm.LocalPace{}
		client, err := llm.New(llm.Config{BaseURL: "http://model/v1/", Transport: transport, Pace: pace})
		if err != nil {
			t.Fatal(err)
		}
		const key = "http://model/v1 m"
		began := time.Now()
		pace.Hold(t.Context(), key, began.Add(3*time.Second))
		pace.Hold(t.Context(), key, began.Add(2*time.Second)) // ends sooner: of no effect
		if _, err := client.Complete(t.Context(), stepRequest()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 3*time.Second || waited > 5*time.Second {
			t.Errorf("asked after %v, want 3s and a little", waited)
		}
		pace.Hold(t.Context(), key, time.Now().Add(time.Minute))
		began = time.Now()
		_, err = client.Complete(t.Context(), stepRequest())
		if me := modelError(t, err); !me.Passing || me.After < time.Minute || time.Since(began) > time.Millisecond {
			t.Errorf("%+v after %v, want one that passes in a minute, at once", me, time.Since(began))
		}
		other := stepRequest()
		other.Model = "other"
		if _, err := client.Complete(t.Context(), other); err != nil {
			t.Errorf("another model is held too: %v", err)
		}
	})
}

// recordingPace writes down which holds were asked for.
type recordingPace struct {
	llm.LocalPace
	mu    sync.Mutex
	holds []string
}

func (p *recordingPace) Hold(ctx context.Context, key string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, fmt.Sprint(key, " ", until.Sub(clock)))
	p.LocalPace.Hold(ctx, key, until)
}

// Only an answer with 429 that may pass holds the others: not a server that is down, nor an account that is empty.
func TestHoldsOn429Only(t *testing.T) {
	tests := []struct {
		name  string
		reply llmtest.Reply
		want  string // of the first hold; empty: none
	}{
		{"seconds", llmtest.Reply{Status: 429, Header: map[string]string{"Retry-After": "90"}, Body: new(string)}, "1m30s"},
		{"huge", llmtest.Reply{Status: 429, Header: map[string]string{"Retry-After": "86400"}, Body: new(string)}, "1h0m0s"},
		{"nothing said", llmtest.Raw(429, ""), "1s"},
		{"in a stream", llmtest.Raw(200, "data: {\"error\":{\"code\":429,\"message\":\"slow down\"}}\n\n"), "1s"},
		{"unavailable", llmtest.Reply{Status: 503, Header: map[string]string{"Retry-After": "90"}, Body: new(string)}, ""},
		{"no quota", llmtest.Raw(429, `{"error":{"code":"insufficient_quota"}}`), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := llmtest.Server(t, func(llmtest.Request) llmtest.Reply { return test.reply })
			pace := &recordingPace{}
			client, _ := newClient(t, server, func(c *llm.Config) { c.Pace, c.Attempts = pace, 1 })
			r := stepRequest()
			r.Tokens = func(string) {}
			_, err := client.Complete(t.Context(), r)
			modelError(t, err)
			var want []string
			if test.want != "" {
				want = []string{server.URL + " m " + test.want}
			}
			if diff := cmp.Diff(want, pace.holds); diff != "" {
				t.Errorf("holds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimitsPerMinute(t *testing.T) {
	tests := []struct {
		name  string
		conf  llm.Config
		calls int
		least time.Duration
		most  time.Duration
	}{
		// One at once, then one a second.
		{"requests", llm.Config{RequestsPerMinute: 60}, 11, 10 * time.Second, 10 * time.Second},
		// Each is taken for 510 tokens or so, and used 120: twenty are far below what the estimate would allow.
		{"tokens are settled", llm.Config{TokensPerMinute: 3000}, 20, 0, time.Second},
		{"tokens", llm.Config{TokensPerMinute: 1200}, 25, 100 * time.Second, 150 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &bucketServer{rate: 1e6, burst: 1e6}
				listener, stop := serveInMemory(server)
				defer stop()
				transport := &http.Transport{DialContext: listener.Dial}
				defer transport.CloseIdleConnections()
				test.conf.BaseURL, test.conf.Transport = "http://model/v1", transport
				client, err := llm.New(test.conf)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for range test.calls {
					untilAnswered(t, client)
				}
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("took %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}

// Those who are sent away are told to come back one after the other, not all at the same time.
func TestSentAwayOneByOne(t *testing.T) {
	for name, limit := range map[string]func(*llm.Config){
		"by the configured limit": func(c *llm.Config) { c.RequestsPerMinute = 60 },
		"by the learnt rate": func(c *llm.Config) {
			c.Pace = &llm.LocalPace{}
			c.Pace.Hold(t.Context(), "http://model/v1 m", time.Now().Add(time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener, stop := serveInMemory(&bucketServer{rate: 1e6, burst: 1e6})
				defer stop()
				transport := &http.Transport{DialContext: listener.Dial}
				defer transport.CloseIdleConnections()
				conf := llm.Config{BaseURL: "http://model/v1", Transport: transport}
				limit(&conf)
				client, err := llm.New(conf)
				if err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				var sent int
				back := map[time.Duration]bool{}
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						_, err := client.Complete(t.Context(), stepRequest())
						var me *loop.ModelError
						if errors.As(err, &me) {
							mu.Lock()
							defer mu.Unlock()
							sent++
							if !me.Unsent {
								t.Errorf("%v counts as a request that failed", me)
							}
							back[me.After.Round(time.Second)] = true
						}
					})
				}
				all.Wait()
				if sent < 10 || len(back) != sent {
					t.Errorf("%d were told to come back at %d different times, want many and as many", sent, len(back))
				}
			})
		})
	}
}

// A request that the endpoint refused was sent, and counts.
func TestARefusalCounts(t *testing.T) {
	client := llmtest.Server(t, llmtest.Replies(llmtest.Raw(429, `{"error": {"message": "slow down"}}`))).Client(t)
	var me *loop.ModelError
	if _, err := client.Complete(t.Context(), stepRequest()); !errors.As(err, &me) || me.Unsent || !me.Passing || me.Cause != llm.CauseRateLimit {
		t.Errorf("the error is %+v", me)
	}
}

// When a hold ends, the workers that it kept back do not return together.
func TestReturnFromAHoldIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 60
		began := time.Now()
		end := began.Add(2 * time.Second)
		var mu sync.Mutex
		arrived := map[time.Duration]int{}
		pace := &llm.LocalPace{}
		pace.Hold(t.Context(), "http://model/v1 m", end)
		var all sync.WaitGroup
		for range workers {
			client, err := llm.New(llm.Config{
				BaseURL: "http://model/v1", Pace: pace,
				Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					arrived[time.Since(end).Truncate(200*time.Millisecond)]++
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(completionBody))}, nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() { untilAnswered(t, client) })
		}
		all.Wait()
		total := 0
		for at, n := range arrived {
			total += n
			if at < 0 || n > workers/3 {
				t.Errorf("%d of %d arrived %v after the hold's end", n, workers, at)
			}
		}
		if total != workers {
			t.Errorf("%d requests, want %d", total, workers)
		}
	})
}

// A call is one that was not sent only where no model was asked: one that broke down counts, whoever else waits for its turn.
func TestAFailureBesideAWaitCounts(t *testing.T) {
	server := llmtest.Server(t, func(r llmtest.Request) llmtest.Reply {
		return llmtest.Reply{Status: 503, Header: map[string]string{"Retry-After": "60"}, Body: new(string)}
	})
	for _, test := range []struct {
		models []string
		unsent bool
	}{
		{[]string{"down", "held"}, false},
		{[]string{"held", "down"}, false},
		{[]string{"held"}, true},
		{[]string{"held", "held too"}, true},
		{[]string{"down"}, false},
	} {
		pace := &llm.LocalPace{}
		for _, model := range []string{"held", "held too"} {
			pace.Hold(t.Context(), server.URL+" "+model, time.Now().Add(10*time.Second))
		}
		client, err := llm.New(llm.Config{BaseURL: server.URL, Pace: pace, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := stepRequest()
		r.Model, r.Fallback = test.models[0], test.models[1:]
		_, err = client.Complete(t.Context(), r)
		if me := modelError(t, err); me.Unsent != test.unsent {
			t.Errorf("%v: %+v, want unsent %t", test.models, me, test.unsent)
		}
	}
}
