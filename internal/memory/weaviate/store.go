// Package weaviate keeps facts in Weaviate: one multi-tenant collection whose tenants are ours, made on first use.
//
// How facts are found depends on what is configured: by meaning and words together (hybrid), with vectors from an
// embeddings endpoint or from a vectorizer module of the server, or by words alone (BM25).
package weaviate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	client "github.com/weaviate/weaviate-go-client/v4/weaviate"
	"github.com/weaviate/weaviate-go-client/v4/weaviate/fault"

	"ratchet/internal/memory"
)

// Config of a store.
type Config struct {
	URL        string // http://host:port or https://host[:port]. Must be set
	APIKey     string // sent as a bearer token; empty: none
	Collection string // begins with a capital letter; AgentFacts

	// Embedder makes vectors outside of Weaviate, Vectorizer names the module that makes them inside, such as
	// text2vec-openai. Only one may be set; with neither, facts are found by words.
	Embedder   memory.Embedder
	Vectorizer string
	// VectorizerSettings are the module's own, such as its model; they count when the collection is made.
	VectorizerSettings map[string]any

	// Alpha weighs meaning (1) against words (0) in a hybrid search; 0.5.
	Alpha float32
	// MaxDistance is the cosine distance from which on a fact is not near by meaning; 0.75.
	MaxDistance float32

	Client *http.Client     // to Weaviate: for certificates of one's own; one with a timeout of 60 s
	Now    func() time.Time // time.Now
	Log    *slog.Logger     // nil: no log
}

var collectionPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9_]{0,62}$`)

// Store keeps facts in Weaviate.
type Store struct {
	cfg    Config
	client *client.Client

	mu    sync.Mutex
	ready bool // the collection was found or made
}

var _ memory.Store = (*Store)(nil)

// New makes a store. It does not connect: that is for [Store.Setup], or for the first use.
func New(cfg Config) (*Store, error) {
	cfg.Collection = cmp.Or(cfg.Collection, "AgentFacts")
	cfg.Alpha, cfg.MaxDistance = cmp.Or(cfg.Alpha, 0.5), cmp.Or(cfg.MaxDistance, 0.75)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: time.Minute}
	}
	at, err := url.Parse(cfg.URL)
	switch {
	case err != nil, at.Scheme != "http" && at.Scheme != "https", at.Host == "", at.User != nil, strings.Trim(at.Path, "/") != "":
		return nil, fmt.Errorf("the URL of Weaviate, %q, is not valid: use http://host:port or https://host", redact(cfg.URL))
	case !collectionPattern.MatchString(cfg.Collection):
		return nil, fmt.Errorf("collection %q is not valid: use letters, digits and _, beginning with a capital letter", cfg.Collection)
	case cfg.Embedder != nil && cfg.Vectorizer != "":
		return nil, errors.New("vectors come from an embedding model or from a vectorizer module of Weaviate, not from both: unset one")
	}
	headers := map[string]string{}
	if cfg.APIKey != "" {
		headers["Authorization"] = "Bearer " + cfg.APIKey
	}
	c, err := client.NewClient(client.Config{Scheme: at.Scheme, Host: at.Host, Headers: headers, ConnectionClient: cfg.Client})
	if err != nil {
		return nil, fmt.Errorf("make a client for Weaviate at %s: %w", at.Host, err)
	}
	keepAlive.Store(c, true)
	return &Store{cfg: cfg, client: c}, nil
}

// keepAlive holds every client for as long as the process lives. The finalizer of a client's connection sends on a channel
// that nobody reads: collected once, it would stop all finalizers of the process.
var keepAlive sync.Map

func redact(raw string) string {
	if u, err := url.Parse(raw); err == nil {
		return u.Redacted()
	}
	return "(unreadable)"
}

// connected makes sure that the collection is there, before its first use.
func (s *Store) connected(ctx context.Context, tenant, user string) error {
	if err := memory.CheckScope(tenant, user); err != nil {
		return err
	}
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	return s.Setup(ctx)
}

func (s *Store) setReady(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

// userValue is how a user stands in the collection: in characters that filters compare exactly and that need no quotes.
func userValue(user string) string { return "u." + url.QueryEscape(user) }

// explain translates an error of the client.
func (s *Store) explain(doing string, err error) error {
	var answer *fault.WeaviateClientError
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	for { // the client wraps its errors in its errors, without a way to unwrap them
		inner, ok := answer.DerivedFromError.(*fault.WeaviateClientError)
		if !ok {
			break
		}
		answer = inner
	}
	switch {
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: Weaviate refused the API key (%d); check WEAVIATE_API_KEY", doing, answer.StatusCode)
	case answer.StatusCode == http.StatusBadGateway, answer.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("%s: %w: Weaviate answered %d", doing, memory.ErrUnreachable, answer.StatusCode)
	case answer.StatusCode > 0:
		return fmt.Errorf("%s: Weaviate answered %d: %s", doing, answer.StatusCode, clip(answer.Msg))
	case answer.DerivedFromError != nil:
		return fmt.Errorf("%s: Weaviate is %w: %w", doing, memory.ErrUnreachable, answer.DerivedFromError)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func clip(text string) string {
	text = memory.OneLine(text)
	return text[:min(len(text), 500)]
}

// noTenant reports whether an error says that nothing was ever stored for the tenant.
func noTenant(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "tenant not found")
}
