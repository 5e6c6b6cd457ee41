// Package llm asks language models behind an OpenAI-compatible chat endpoint: it implements [loop.Model] over go-openai.
//
// One call travels through four layers, each in a file of its own:
//
//	complete.go   which model: the asked one, then its fallbacks
//	ask.go        one model: adapts refused parameters, raises an output limit that cut a reply; retry.go repeats what met
//	              a passing fault, and gate.go keeps to the pace of the endpoint
//	request.go    what is sent (format.go: the form of the reply; body.go: how it is written); quirks.go remembers
//	              what a model has refused
//	transport.go  one HTTP exchange over connect.go: bounded, its reply read at once where it is clean (clean.go), else mended
//	              (mend.go, for streams stream.go and chunk.go), its failures classified (classify.go)
//
// Endpoints and the proxies before them break the API in many small ways, and go-openai hides some of those. So both
// directions pass through our own transport, and no go-openai type or error leaves this package. Thousands of calls may wait
// for their replies at the same time: while one waits it holds neither the bytes that it has sent nor a deep stack.
package llm

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/loop"
)

// The defaults of [Config].
const (
	DefaultBaseURL = "https://api.openai.com/v1"
	DefaultModel   = "gpt-4o-mini"
)

// Config says which endpoint is asked and with how much patience. The zero value of a field means its default.
type Config struct {
	BaseURL  string   // OPENAI_BASE_URL, up to and including the version, without /chat/completions; DefaultBaseURL
	APIKey   string   // OPENAI_API_KEY; none, which only endpoints other than the default take
	Model    string   // --model, for requests that name none; DefaultModel
	Fallback []string // --fallback-model, for requests that name none; none

	NoHeaders bool // --no-llm-headers: do not send X-Ratchet-Run, X-Ratchet-Purpose and traceparent

	// Timeout of one attempt, from connecting to the last byte. Of a streamed one it is the longest silence between two
	// pieces, and five times as much the limit of the whole. 120s
	Timeout  time.Duration
	Attempts int           // of one request to one model where faults pass, the first included; 5
	Patience time.Duration // longest time spent waiting between those attempts, all together; 5s

	Pace              Pace             // what the workers know together of refusals; a [LocalPace] of this client
	RequestsPerMinute int              // this worker's share of the account's limit; none
	TokensPerMinute   int              // likewise, prompts and replies together, by an estimate until the reply; none
	Prices            map[string]Price // by model as requested; a model without one costs nothing

	Ended     func(error)          // is told how each call ended, with its error or nil; nobody
	Log       *slog.Logger         // what was learnt about models; none
	Transport http.RoundTripper    // carries the requests; one like http.DefaultTransport
	Now       func() time.Time     // time.Now
	Timer     func() backoff.Timer // makes the timer for the waits of one request; a real one
}

func (c Config) withDefaults() Config {
	c.BaseURL = strings.TrimRight(cmp.Or(c.BaseURL, DefaultBaseURL), "/")
	c.Model = cmp.Or(c.Model, DefaultModel)
	c.Timeout = cmp.Or(c.Timeout, 120*time.Second)
	c.Attempts = cmp.Or(c.Attempts, 5)
	c.Patience = cmp.Or(c.Patience, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	if c.Pace == nil {
		c.Pace = &LocalPace{}
	}
	if c.Ended == nil {
		c.Ended = func(error) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return fmt.Errorf("OPENAI_BASE_URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("OPENAI_BASE_URL %q is not an http or https address such as http://localhost:11434/v1", c.BaseURL)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("OPENAI_BASE_URL must have no user, query or fragment; a key goes into OPENAI_API_KEY")
	case strings.HasSuffix(u.Path, "/chat/completions"):
		return fmt.Errorf("OPENAI_BASE_URL %q is one part too long: leave out /chat/completions", c.BaseURL)
	case c.APIKey == "" && c.BaseURL == DefaultBaseURL:
		return fmt.Errorf("OPENAI_API_KEY is not set, and %s needs one; set it, or OPENAI_BASE_URL to another endpoint", DefaultBaseURL)
	case strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("OPENAI_API_KEY holds a space, a line break or another character that no key has")
	case strings.TrimSpace(c.Model) != c.Model:
		return fmt.Errorf("--model %q begins or ends with a space", c.Model)
	case c.Timeout < 0 || c.Attempts < 0 || c.Patience < 0:
		return errors.New("the timeout, attempts and patience of model calls must not be negative")
	case c.RequestsPerMinute < 0 || c.TokensPerMinute < 0:
		return errors.New("the requests and tokens per minute of model calls must not be negative")
	}
	for model, p := range c.Prices {
		if !(p.PromptPerMillion >= 0 && p.CompletionPerMillion >= 0) {
			return fmt.Errorf("the price of model %q must not be negative", model)
		}
	}
	for _, m := range c.Fallback {
		if m == "" || strings.TrimSpace(m) != m {
			return fmt.Errorf("--fallback-model %q is empty or begins or ends with a space", m)
		}
	}
	return nil
}

// Client asks one endpoint. It is safe for use by many goroutines.
type Client struct {
	conf      Config
	api       *openai.Client
	transport *transport
	quirks    quirkBook
	gate      *gate
}

var _ loop.Model = (*Client)(nil)

// New returns a client for the endpoint. It sends nothing; an error names the flag or the environment variable that is
// wrong.
func New(conf Config) (*Client, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, err
	}
	c := &Client{conf: conf}
	c.gate = newGate(&c.conf)
	oc := openai.DefaultConfig(conf.APIKey)
	oc.BaseURL = conf.BaseURL
	// Each attempt has a context with a deadline, so that a timeout can be told from a cancel.
	c.transport = &transport{next: conf.Transport, secret: conf.APIKey, now: conf.Now}
	oc.HTTPClient = c.transport
	c.api = openai.NewClientWithConfig(oc)
	return c, nil
}
