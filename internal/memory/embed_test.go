package memory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/memory"
)

func embeddings(t *testing.T, handle http.HandlerFunc, cfg memory.EmbeddingsConfig) *memory.Embeddings {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	cfg.BaseURL, cfg.Client = server.URL+"/v1/", server.Client()
	e, err := memory.NewEmbeddings(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEmbeddingsBatchAndCache(t *testing.T) {
	var requests []int
	e := embeddings(t, func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("request to %s: %v", r.URL, err)
		}
		requests = append(requests, len(asked.Input))
		var data []string
		for i := len(asked.Input) - 1; i >= 0; i-- {
			data = append(data, fmt.Sprintf(`{"index": %d, "embedding": [%d, 0.5]}`, i, len(asked.Input[i])))
		}
		fmt.Fprintf(w, `{"data": [%s]}`, strings.Join(data, ","))
	}, memory.EmbeddingsConfig{APIKey: "k", Model: "m", Batch: 3, Cached: 4})
	texts := []string{"a", "bb", "ccc", "dddd"}
	want := [][]float32{{1, 0.5}, {2, 0.5}, {3, 0.5}, {4, 0.5}}
	for range 2 {
		got, err := e.Embed(t.Context(), texts)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if _, err := e.Embed(t.Context(), []string{"eeeee", "a"}); err != nil { // e pushes a, the oldest, out
		t.Fatal(err)
	}
	if _, err := e.Embed(t.Context(), []string{"bb"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{3, 1, 1, 1}, requests); diff != "" {
		t.Errorf("texts asked for (-want +got):\n%s", diff)
	}
}

func TestEmbeddingsRepeatOnlyWhatPasses(t *testing.T) {
	for status, want := range map[int]int64{429: 3, 500: 3, 400: 1, 401: 1} {
		var asked atomic.Int64
		e := embeddings(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			http.Error(w, "no\nluck", status)
		}, memory.EmbeddingsConfig{Model: "m"})
		_, err := e.Embed(t.Context(), []string{"a"})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || !strings.Contains(err.Error(), "no luck") || asked.Load() != want {
			t.Errorf("%d: asked %d times, want %d; %v", status, asked.Load(), want, err)
		}
	}
}

func TestEmbeddingsAnswersAreChecked(t *testing.T) {
	for _, answer := range []string{
		``, `[]`, `{"data": []}`, `{"data": [{"index": 0, "embedding": [1]}]}`, `{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}`,
		`{"data": [{"index": 0, "embedding": [1]}, {"index": 2, "embedding": [1]}]}`, `{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": []}]}`,
		`{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}`, `{"data": [{"index": -1, "embedding": [1]}]}`,
	} {
		e := embeddings(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }, memory.EmbeddingsConfig{Model: "m"})
		if got, err := e.Embed(t.Context(), []string{"a", "b"}); err == nil {
			t.Errorf("%q gives %v", answer, got)
		}
	}
}

func TestEmbeddingsAway(t *testing.T) {
	e, err := memory.NewEmbeddings(memory.EmbeddingsConfig{BaseURL: "http://127.0.0.1:1", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, memory.ErrUnreachable) {
		t.Errorf("error is %v, want unreachable", err)
	}
	if _, err := memory.NewEmbeddings(memory.EmbeddingsConfig{Model: "m"}); err == nil {
		t.Error("no base URL is no error")
	}
}
