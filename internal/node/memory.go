package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/memory"
	"ratchet/internal/memory/embedded"
	"ratchet/internal/memory/weaviate"
	"ratchet/internal/tools"
)

// MemoryOptions say where long-term facts are kept.
type MemoryOptions struct {
	Off            bool   // learn nothing from runs by itself
	Summaries      bool   // keep a summary of what was said in a session before the messages that a run is shown
	Weaviate       string // URL; empty: in a bucket of the same NATS
	WeaviateKey    string
	Vectorizer     string // module of Weaviate that makes vectors; empty: none
	EmbeddingModel string // of the model's endpoint; empty: facts are found by words
}

// startMemory opens the store of long-term facts. A Weaviate that can't be reached now is asked again at each use; one
// that holds something else under our name is an error.
func (n *Node) startMemory(ctx context.Context) error {
	store, err := n.openMemory(ctx)
	if err != nil {
		return err
	}
	n.memory = memory.Guard(store, memory.Options{Log: n.log, Observe: n.observeMemory})
	n.later(n.memory.Close)
	return nil
}

func (n *Node) openMemory(ctx context.Context) (memory.Store, error) {
	upper := strings.ToUpper(strings.ReplaceAll(n.bus.Prefix(), "-", "_"))
	o := n.opts.Memory
	if o.Weaviate == "" {
		js, err := jetstream.New(n.conn)
		if err != nil {
			return nil, fmt.Errorf("open memory: %w", err)
		}
		store, err := embedded.Open(ctx, js, embedded.Config{Bucket: upper + "_FACTS", Replicas: n.opts.Replicas, Log: n.log})
		if err != nil {
			return nil, fmt.Errorf("open memory: %w", err)
		}
		n.later(store.Close)
		return store, nil
	}
	conf := weaviate.Config{
		URL: o.Weaviate, APIKey: o.WeaviateKey, Vectorizer: o.Vectorizer, Log: n.log,
		Collection: collection(n.bus.Prefix()),
	}
	if o.EmbeddingModel != "" {
		embeddings, err := memory.NewEmbeddings(memory.EmbeddingsConfig{
			BaseURL: n.opts.Model.BaseURL, APIKey: n.opts.Model.APIKey, Model: o.EmbeddingModel,
		})
		if err != nil {
			return nil, fmt.Errorf("open memory: %w", err)
		}
		conf.Embedder = embeddings
	}
	store, err := weaviate.New(conf)
	if err != nil {
		return nil, fmt.Errorf("open memory: %w", err)
	}
	if err := store.Setup(ctx); errors.Is(err, memory.ErrUnreachable) {
		n.log.Warn("Weaviate can't be reached; runs go on without long-term facts until it can", "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("open memory: %w", err)
	}
	return store, nil
}

// collection is the name of the Weaviate collection for a prefix: AgentFacts for agent.
func collection(prefix string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(prefix, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String() + "Facts"
}

// memoryTools are the tools with which an agent searches and stores facts of its run's user by itself.
func memoryTools(store memory.Store) []tools.Tool {
	if store == nil {
		return nil
	}
	return []tools.Tool{
		tools.Typed(tools.Tool{Spec: loop.ToolSpec{
			Name: "recall_facts", Description: memory.RecallDescription, Effect: loop.EffectRead,
			Example: json.RawMessage(`{"query": "seat preference"}`),
		}}, func(ctx context.Context, c loop.Invocation, a memory.RecallArgs) (any, error) {
			return memory.RecallTool(ctx, store, c.Run.Tenant, c.User, a)
		}),
		tools.Typed(tools.Tool{Spec: loop.ToolSpec{
			Name: "remember_fact", Description: memory.RememberDescription, Effect: loop.EffectIdempotent,
			Example: json.RawMessage(`{"text": "The user prefers window seats.", "kind": "preference"}`),
		}}, func(ctx context.Context, c loop.Invocation, a memory.RememberArgs) (any, error) {
			return memory.RememberTool(ctx, store, c.Run.Tenant, c.User, c.Run.Run, a)
		}),
	}
}

// facts answers the API's operation on long-term facts.
func (n *Node) facts(ctx context.Context, tenant string, body []byte) (any, error) {
	var r bus.FactsRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, &bus.APIError{Code: 400, Message: "the request is no JSON object: " + err.Error()}
	}
	answer, err := n.factsAnswer(ctx, tenant, r)
	switch {
	case errors.Is(err, memory.ErrNotFound):
		return nil, &bus.APIError{Code: 404, Message: err.Error()}
	case errors.Is(err, memory.ErrInvalid):
		return nil, &bus.APIError{Code: 400, Message: err.Error()}
	case err != nil:
		return nil, &bus.APIError{Code: 503, Message: err.Error()}
	}
	return answer, nil
}

func (n *Node) factsAnswer(ctx context.Context, tenant string, r bus.FactsRequest) (a bus.FactsAnswer, err error) {
	switch r.Op {
	case "list":
		limit := min(max(r.Limit, 0), 1000)
		if limit == 0 {
			limit = 100
		}
		facts, next, err := n.memory.List(ctx, tenant, r.User, r.After, limit)
		a.Next = next
		for _, f := range facts {
			a.Facts = append(a.Facts, bus.Fact{
				ID: f.ID, Text: f.Text, Kind: f.Kind, Run: f.SourceRun, Created: f.Created, LastUsed: f.LastUsed, Replaced: f.Replaced,
			})
		}
		return a, err
	case "add":
		err = n.memory.Remember(ctx, tenant, r.User, []memory.NewFact{{Text: r.Text, Kind: r.Kind}})
		a.Changed = 1
		return a, err
	case "forget":
		a.Changed = 1
		return a, n.memory.Forget(ctx, tenant, r.User, r.ID)
	case "forget_all":
		a.Changed, err = memory.ForgetAll(ctx, n.memory, tenant, r.User)
		return a, err
	default:
		return a, fmt.Errorf("op %q is %w: use list, add, forget or forget_all", r.Op, memory.ErrInvalid)
	}
}
