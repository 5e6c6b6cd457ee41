package weaviate

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weaviate/weaviate-go-client/v4/weaviate/filters"
	"github.com/weaviate/weaviate-go-client/v4/weaviate/graphql"

	"ratchet/internal/memory"
)

// fields are what is read of a fact.
var fields = []graphql.Field{
	{Name: propText},
	{Name: propKind},
	{Name: propRun},
	{Name: propCreated},
	{Name: propLastUsed},
	{Name: propReplaced},
	{Name: propCurrent},
	{Name: "_additional", Fields: []graphql.Field{{Name: "id"}, {Name: "score"}}},
}

// object is a fact as a query returns it.
type object struct {
	Text       string    `json:"text"`
	Kind       string    `json:"kind"`
	Run        string    `json:"source_run"`
	Created    time.Time `json:"created"`
	LastUsed   time.Time `json:"last_used"`
	Replaced   time.Time `json:"replaced"`
	Current    bool      `json:"current"`
	Additional struct {
		ID    string `json:"id"`
		Score string `json:"score"`
	} `json:"_additional"`
}

func (o object) fact() memory.Fact {
	f := memory.Fact{ID: o.Additional.ID, Text: o.Text, Kind: o.Kind, SourceRun: o.Run, Created: o.Created, LastUsed: o.LastUsed}
	if !o.Current {
		f.Replaced = o.Replaced
	}
	return f
}

// own is the filter for a user's facts, and for what else must hold.
func own(user string, also ...*filters.WhereBuilder) *filters.WhereBuilder {
	mine := filters.Where().WithPath([]string{propUser}).WithOperator(filters.Equal).WithValueText(userValue(user))
	return filters.Where().WithOperator(filters.And).WithOperands(append(also, mine))
}

func current() *filters.WhereBuilder {
	return filters.Where().WithPath([]string{propCurrent}).WithOperator(filters.Equal).WithValueBoolean(true)
}

// get runs a query. Nothing was ever stored for a tenant that Weaviate does not know. A collection that queries do not
// know was made a moment ago, or removed: then it is made again.
func (s *Store) get(ctx context.Context, doing string, q *graphql.GetBuilder) ([]object, error) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for try := 0; ; try++ {
		found, err := s.getOnce(ctx, doing, q)
		switch {
		case noTenant(err):
			return nil, nil
		case err == nil || try == 50 || !s.unknown(err):
			return found, err
		}
		s.setReady(false)
		if err := s.Setup(ctx); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", doing, context.Cause(ctx))
		case <-pause.C:
		}
	}
}

// unknown reports whether an error says that the collection does not exist, or not yet for those who query.
func (s *Store) unknown(err error) bool {
	return strings.Contains(err.Error(), `Cannot query field "`+s.cfg.Collection+`"`) ||
		strings.Contains(err.Error(), "non-existing index for "+s.cfg.Collection)
}

func (s *Store) getOnce(ctx context.Context, doing string, q *graphql.GetBuilder) ([]object, error) {
	response, err := q.Do(ctx)
	if err != nil {
		return nil, s.explain(doing, err)
	}
	if len(response.Errors) > 0 {
		messages := make([]string, len(response.Errors))
		for i, e := range response.Errors {
			messages[i] = e.Message
		}
		return nil, fmt.Errorf("%s: Weaviate answered: %s", doing, clip(strings.Join(messages, "; ")))
	}
	raw, err := json.Marshal(response.Data["Get"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var found map[string][]object
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, fmt.Errorf("%s: read Weaviate's answer: %w", doing, err)
	}
	return found[s.cfg.Collection], nil
}

func (s *Store) query(tenant string) *graphql.GetBuilder {
	return s.client.GraphQL().Get().WithClassName(s.cfg.Collection).WithTenant(tenant).WithFields(fields...)
}

// Recall implements [memory.Store]. By words alone, the score is the one of BM25 as a part of the best one's; in a hybrid
// search it is Weaviate's relative score.
func (s *Store) Recall(ctx context.Context, tenant, user, query string, k int) ([]memory.Fact, error) {
	if err := s.connected(ctx, tenant, user); err != nil {
		return nil, err
	}
	query = memory.OneLine(query) // a query is sent as a quoted string, in which not every character can be written
	if query == "" || k < 1 {
		return nil, nil
	}
	q := s.query(tenant).WithWhere(own(user, current())).WithLimit(k)
	q, hybrid := s.search(ctx, q, query)
	found, err := s.get(ctx, "search facts", q)
	if err != nil {
		return nil, err
	}
	facts := make([]memory.Fact, len(found))
	best := 1.0
	for i, o := range found {
		facts[i] = o.fact()
		score, err := strconv.ParseFloat(o.Additional.Score, 64)
		if err != nil {
			return nil, fmt.Errorf("search facts: Weaviate's score %q is no number", o.Additional.Score)
		}
		if i == 0 && !hybrid {
			best = max(score, 1e-9)
		}
		facts[i].Score = min(score/best, 1)
	}
	return facts, nil
}

// search completes a query: hybrid where there are vectors. If the embeddings endpoint has no vector to give in half of
// the time there is, words must do.
func (s *Store) search(ctx context.Context, q *graphql.GetBuilder, query string) (_ *graphql.GetBuilder, hybrid bool) {
	both := s.client.GraphQL().HybridArgumentBuilder().WithQuery(query).WithProperties([]string{propText}).
		WithAlpha(s.cfg.Alpha).WithMaxVectorDistance(s.cfg.MaxDistance).WithFusionType(graphql.RelativeScore)
	if s.cfg.Vectorizer != "" {
		return q.WithHybrid(both), true
	}
	if s.cfg.Embedder != nil {
		vector, err := s.vectorInTime(ctx, query)
		if err == nil {
			return q.WithHybrid(both.WithVector(vector)), true
		}
		s.cfg.Log.Warn("facts are searched by words alone", "error", err)
	}
	return q.WithBM25(s.client.GraphQL().Bm25ArgBuilder().WithQuery(query).WithProperties(propText)), false
}

func (s *Store) vectorInTime(ctx context.Context, query string) ([]float32, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	vectors, err := s.cfg.Embedder.Embed(ctx, []string{query})
	if err != nil {
		return nil, err
	}
	return vectors[0], nil
}

// List implements [memory.Store]. A place in the list is a time and how many facts of that very time were seen.
func (s *Store) List(ctx context.Context, tenant, user, after string, limit int) ([]memory.Fact, string, error) {
	if err := s.connected(ctx, tenant, user); err != nil {
		return nil, "", err
	}
	where, skip, err := since(user, after)
	if err != nil {
		return nil, "", err
	}
	limit = max(limit, 1)
	found, err := s.get(ctx, "list facts", s.query(tenant).WithWhere(where).WithLimit(limit+1).WithOffset(skip).WithSort(
		graphql.Sort{Path: []string{propCreated}, Order: graphql.Asc}, graphql.Sort{Path: []string{"_id"}, Order: graphql.Asc}))
	if err != nil {
		return nil, "", err
	}
	facts := make([]memory.Fact, 0, len(found))
	for _, o := range found[:min(limit, len(found))] {
		facts = append(facts, o.fact())
	}
	if len(found) <= limit {
		return facts, "", nil
	}
	last := facts[limit-1].Created
	same := 0
	for _, f := range facts {
		if f.Created.Equal(last) {
			same++
		}
	}
	if same == limit {
		if from, _, _ := strings.Cut(after, "/"); from == last.UTC().Format(time.RFC3339Nano) {
			same += skip
		}
	}
	return facts, last.UTC().Format(time.RFC3339Nano) + "/" + strconv.Itoa(same), nil
}

// since is the filter for what comes after a place in a list, and how many of it were seen.
func since(user, after string) (where *filters.WhereBuilder, skip int, err error) {
	if after == "" {
		return own(user), 0, nil
	}
	from, seen, _ := strings.Cut(after, "/")
	at, err := time.Parse(time.RFC3339Nano, from)
	if err == nil {
		skip, err = strconv.Atoi(seen)
	}
	if err != nil || skip < 0 {
		return nil, 0, fmt.Errorf("%q is %w as a place in a list of facts", after, memory.ErrInvalid)
	}
	later := filters.Where().WithPath([]string{propCreated}).WithOperator(filters.GreaterThanEqual).WithValueDate(at)
	return own(user, later), skip, nil
}

// lookup returns those of the ids that are facts of the user.
func (s *Store) lookup(ctx context.Context, tenant, user string, ids []string) (map[string]object, error) {
	found := make(map[string]object, len(ids))
	for len(ids) > 0 {
		some := ids[:min(500, len(ids))]
		ids = ids[len(some):]
		these := filters.Where().WithPath([]string{"id"}).WithOperator(filters.ContainsAny).WithValueText(some...)
		objects, err := s.get(ctx, "look facts up", s.query(tenant).WithWhere(own(user, these)).WithLimit(len(some)))
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			found[o.Additional.ID] = o
		}
	}
	return found, nil
}
