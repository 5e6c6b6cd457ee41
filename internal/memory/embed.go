package memory

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Embedder turns texts into vectors: one for each text, in order, all of one length.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// EmbeddingsConfig says where vectors come from.
type EmbeddingsConfig struct {
	BaseURL string       // of an OpenAI-compatible API: vectors come from BaseURL/embeddings. Must be set
	APIKey  string       // sent as a bearer token; empty: none
	Model   string       // must be set
	Batch   int          // texts in one request; 64
	Cached  int          // vectors that are kept in memory; 2,000
	Client  *http.Client // one with a timeout of 30 s
}

// Embeddings asks an OpenAI-compatible endpoint for vectors. Texts that were asked for lately are not asked for again. A
// request that fails for a passing reason is repeated twice, as long as the context lasts.
type Embeddings struct {
	cfg EmbeddingsConfig

	mu     sync.Mutex
	recent *list.List // of *vector, the one used last in front
	byText map[[sha256.Size]byte]*list.Element
}

type vector struct {
	key    [sha256.Size]byte
	values []float32
}

var _ Embedder = (*Embeddings)(nil)

// NewEmbeddings makes a client. It does not connect.
func NewEmbeddings(cfg EmbeddingsConfig) (*Embeddings, error) {
	if cfg.BaseURL == "" || cfg.Model == "" {
		return nil, errors.New("embeddings need a base URL and a model")
	}
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	cfg.Batch, cfg.Cached = cmp.Or(cfg.Batch, 64), cmp.Or(cfg.Cached, 2000)
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: 30 * time.Second}
	}
	return &Embeddings{cfg: cfg, recent: list.New(), byText: map[[sha256.Size]byte]*list.Element{}}, nil
}

// Embed implements [Embedder]. Errors wrap [ErrUnreachable] where there was no answer.
func (e *Embeddings) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	var missing []int
	for i, text := range texts {
		if out[i] = e.cached(text); out[i] == nil {
			missing = append(missing, i)
		}
	}
	for len(missing) > 0 {
		batch := missing[:min(e.cfg.Batch, len(missing))]
		missing = missing[len(batch):]
		inputs := make([]string, len(batch))
		for j, i := range batch {
			inputs[j] = texts[i]
		}
		vectors, err := e.askPatiently(ctx, inputs)
		if err != nil {
			return nil, fmt.Errorf("embed %d texts with %s at %s: %w", len(inputs), e.cfg.Model, e.cfg.BaseURL, err)
		}
		for j, i := range batch {
			out[i] = vectors[j]
			e.keep(texts[i], vectors[j])
		}
	}
	return out, nil
}

func (e *Embeddings) askPatiently(ctx context.Context, texts []string) ([][]float32, error) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100 * time.Millisecond))
	return backoff.RetryWithData(func() ([][]float32, error) {
		vectors, passing, err := e.ask(ctx, texts)
		if err != nil && !passing {
			return nil, backoff.Permanent(err)
		}
		return vectors, err
	}, backoff.WithContext(backoff.WithMaxRetries(pause, 2), ctx))
}

// ask makes one request. passing says that the same request may succeed later.
func (e *Embeddings) ask(ctx context.Context, texts []string) (vectors [][]float32, passing bool, err error) {
	body, err := json.Marshal(map[string]any{"model": e.cfg.Model, "input": texts, "encoding_format": "float"})
	if err != nil {
		return nil, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.BaseURL+"/embeddings", bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if e.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.cfg.APIKey)
	}
	resp, err := e.cfg.Client.Do(req)
	if err != nil {
		return nil, true, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, true, fmt.Errorf("%w: read the answer: %w", ErrUnreachable, err)
	}
	if resp.StatusCode != http.StatusOK {
		passing := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500
		return nil, passing, fmt.Errorf("the endpoint answered %s: %s", resp.Status, OneLine(string(answer[:min(len(answer), 300)])))
	}
	vectors, err = decodeVectors(answer, len(texts))
	return vectors, false, err
}

// decodeVectors reads an answer. The vectors may come in any order.
func decodeVectors(answer []byte, n int) ([][]float32, error) {
	var reply struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, fmt.Errorf("the endpoint's answer is no list of embeddings: %w", err)
	}
	vectors := make([][]float32, n)
	for _, d := range reply.Data {
		if d.Index < 0 || d.Index >= n || vectors[d.Index] != nil || len(d.Embedding) == 0 {
			return nil, fmt.Errorf("the endpoint's answer has an empty, doubled or unasked embedding %d", d.Index)
		}
		vectors[d.Index] = d.Embedding
	}
	for i, v := range vectors {
		if len(v) == 0 || len(v) != len(vectors[0]) {
			return nil, fmt.Errorf("the endpoint's answer has %d numbers for text %d of %d and %d for the first", len(v), i+1, n, len(vectors[0]))
		}
	}
	return vectors, nil
}

func (e *Embeddings) cached(text string) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	element, ok := e.byText[sha256.Sum256([]byte(text))]
	if !ok {
		return nil
	}
	e.recent.MoveToFront(element)
	return element.Value.(*vector).values
}

func (e *Embeddings) keep(text string, values []float32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := sha256.Sum256([]byte(text))
	if _, ok := e.byText[key]; ok {
		return
	}
	e.byText[key] = e.recent.PushFront(&vector{key, values})
	if e.recent.Len() > e.cfg.Cached {
		oldest := e.recent.Back()
		delete(e.byText, oldest.Value.(*vector).key)
		e.recent.Remove(oldest)
	}
}
