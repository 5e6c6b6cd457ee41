package weaviate_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	client "github.com/weaviate/weaviate-go-client/v4/weaviate"
	"github.com/weaviate/weaviate/entities/models"

	"ratchet/internal/memory"
	"ratchet/internal/memory/memorytest"
	"ratchet/internal/memory/weaviate"
	"ratchet/internal/memory/weaviate/weaviatetest"
)

// bare is a client without anything of ours around it.
func bare(t testing.TB, cfg weaviate.Config) *client.Client {
	t.Helper()
	c, err := client.NewClient(client.Config{
		Scheme: "http", Host: strings.TrimPrefix(cfg.URL, "http://"), ConnectionClient: cfg.Client,
		Headers: map[string]string{"Authorization": "Bearer " + cfg.APIKey},
	})
	if err != nil {
		t.Fatal(err)
	}
	bareClients = append(bareClients, c)
	return c
}

// bareClients are kept: a collected client stops the finalizers of the process.
var bareClients []*client.Client

func TestSetupRepeats(t *testing.T) {
	cfg, ctx := config(t, weaviatetest.Shared(t)), memorytest.Context(t)
	for range 3 {
		if err := open(t, cfg).Setup(ctx); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	cfg.Collection = collection()
	for range 6 {
		s := open(t, cfg)
		go func() { done <- s.Setup(ctx) }()
	}
	for range 6 {
		if err := <-done; err != nil {
			t.Errorf("six at once: %v", err)
		}
	}
}

func TestSetupUpgrades(t *testing.T) {
	cfg, ctx := config(t, weaviatetest.Shared(t)), memorytest.Context(t)
	yes := true
	err := bare(t, cfg).Schema().ClassCreator().WithClass(&models.Class{
		Class: cfg.Collection, Vectorizer: "none",
		MultiTenancyConfig: &models.MultiTenancyConfig{Enabled: true, AutoTenantCreation: true},
		Properties: []*models.Property{
			{Name: "text", DataType: []string{"text"}, Tokenization: "word", IndexSearchable: &yes},
			{Name: "user", DataType: []string{"text"}, Tokenization: "field", IndexFilterable: &yes},
		},
	}).Do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	if err := s.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	class, err := bare(t, cfg).Schema().ClassGetter().WithClassName(cfg.Collection).Do(ctx)
	if err != nil || len(class.Properties) != 8 {
		t.Fatalf("the upgraded collection is %+v, %v, want 8 properties", class, err)
	}
	if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "The user juggles."}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Recall(ctx, "acme", "ann", "who juggles?", 1); err != nil || len(got) != 1 {
		t.Errorf("recalled %v, %v", got, err)
	}
}

func TestForeignCollections(t *testing.T) {
	server, ctx := weaviatetest.Shared(t), memorytest.Context(t)
	text := &models.Property{Name: "text", DataType: []string{"text"}, Tokenization: "word"}
	user := &models.Property{Name: "user", DataType: []string{"text"}, Tokenization: "field"}
	tenants := &models.MultiTenancyConfig{Enabled: true, AutoTenantCreation: true}
	for want, class := range map[string]models.Class{
		"not multi-tenant":                {Properties: []*models.Property{text, user}},
		"does not make tenants":           {Properties: []*models.Property{text, user}, MultiTenancyConfig: &models.MultiTenancyConfig{Enabled: true}},
		"no properties text and user":     {Properties: []*models.Property{{Name: "title", DataType: []string{"text"}}}, MultiTenancyConfig: tenants},
		"text is of type int":             {Properties: []*models.Property{{Name: "text", DataType: []string{"int"}}, user}, MultiTenancyConfig: tenants},
		"user is tokenized by word":       {Properties: []*models.Property{text, {Name: "user", DataType: []string{"text"}}}, MultiTenancyConfig: tenants},
		`vectorizer is "text2vec-ollama"`: {Properties: []*models.Property{text, user}, MultiTenancyConfig: tenants, Vectorizer: weaviatetest.Module},
	} {
		t.Run(want, func(t *testing.T) {
			cfg := config(t, server)
			class.Class = cfg.Collection
			if class.Vectorizer == "" {
				class.Vectorizer = "none"
			}
			if err := bare(t, cfg).Schema().ClassCreator().WithClass(&class).Do(ctx); err != nil {
				t.Fatal(err)
			}
			s := open(t, cfg)
			err := s.Setup(ctx)
			var foreign *weaviate.SchemaError
			if !errors.As(err, &foreign) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cfg.Collection) {
				t.Errorf("setup: %v, want a schema error with %q", err, want)
			}
			if err := s.Remember(ctx, "acme", "ann", []memory.NewFact{{Text: "x"}}); !errors.As(err, &foreign) {
				t.Errorf("remember: %v", err)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []weaviate.Config{
		{},
		{URL: "127.0.0.1:8080"},
		{URL: "ftp://x"},
		{URL: "http://"},
		{URL: "http://u:sesame@x"},
		{URL: "http://x/path"},
		{URL: "http://x", Collection: "lower"},
		{URL: "http://x", Vectorizer: "m", Embedder: &memory.Embeddings{}},
	} {
		if _, err := weaviate.New(cfg); err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestWrongKey(t *testing.T) {
	cfg := config(t, weaviatetest.Shared(t))
	cfg.APIKey = "wrong"
	err := open(t, cfg).Setup(memorytest.Context(t))
	if err == nil || !strings.Contains(err.Error(), "WEAVIATE_API_KEY") || errors.Is(err, memory.ErrUnreachable) {
		t.Errorf("error is %v, want one about the key", err)
	}
}

func TestTLS(t *testing.T) {
	cfg := config(t, weaviatetest.Shared(t))
	target, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = cfg.Client.Transport
	front := httptest.NewUnstartedServer(proxy)
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	front.StartTLS()
	t.Cleanup(front.Close)
	cfg.URL = front.URL
	if err := open(t, cfg).Setup(memorytest.Context(t)); !errors.Is(err, memory.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with an unknown certificate: %v", err)
	}
	cfg.Client = front.Client()
	s := open(t, cfg)
	if err := s.Remember(memorytest.Context(t), "acme", "ann", []memory.NewFact{{Text: "The user trusts."}}); err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
