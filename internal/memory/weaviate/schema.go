package weaviate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weaviate/weaviate-go-client/v4/weaviate/fault"
	"github.com/weaviate/weaviate/entities/models"
)

// The properties of a fact.
const (
	propText     = "text"
	propUser     = "user"
	propKind     = "kind"
	propRun      = "source_run"
	propCreated  = "created"
	propLastUsed = "last_used"
	propReplaced = "replaced"
	propCurrent  = "current" // false where another fact took its place
)

// stopwords are words that questions are made of, in addition to Weaviate's short list of English ones.
var stopwords = strings.Fields(`i me my mine we us our ours you your yours he him his she her hers its them theirs
	who whom whose what which when where why how do does did done doing have has had having am were been being can could
	should would may might must shall from about also any some than too very just here get got give tell please`)

// SchemaError says that a collection of our name is somebody else's, or set up in a way that can't be changed.
type SchemaError struct{ Collection, Problem string }

// Error says what does not fit, and the ways out.
func (e *SchemaError) Error() string {
	return fmt.Sprintf("Weaviate's collection %s can't be used for facts: %s; use another collection or prefix, or move what it "+
		"holds elsewhere and remove it", e.Collection, e.Problem)
}

func (s *Store) vectorizer() string {
	if s.cfg.Vectorizer == "" {
		return "none"
	}
	return s.cfg.Vectorizer
}

// class is the collection as it has to be.
func (s *Store) class() *models.Class {
	yes, no := true, false
	property := func(name, kind, tokenization string, searched, filtered bool, about string) *models.Property {
		p := &models.Property{
			Name: name, DataType: []string{kind}, Tokenization: tokenization, Description: about,
			IndexFilterable: &no, IndexSearchable: &no,
		}
		if searched {
			p.IndexSearchable = &yes
		}
		if filtered {
			p.IndexFilterable = &yes
		}
		if s.cfg.Vectorizer != "" {
			p.ModuleConfig = map[string]any{s.cfg.Vectorizer: map[string]any{"skip": name != propText, "vectorizePropertyName": false}}
		}
		return p
	}
	c := &models.Class{
		Class:       s.cfg.Collection,
		Description: "Facts about users, kept by Ratchet",
		Vectorizer:  s.vectorizer(),
		MultiTenancyConfig: &models.MultiTenancyConfig{
			Enabled: true, AutoTenantCreation: true, AutoTenantActivation: true,
		},
		VectorIndexConfig:   map[string]any{"distance": "cosine"},
		InvertedIndexConfig: &models.InvertedIndexConfig{Stopwords: &models.StopwordConfig{Preset: "en", Additions: stopwords}},
		Properties: []*models.Property{
			property(propText, "text", "word", true, false, "one sentence"),
			property(propUser, "text", "field", false, true, "whose fact it is: u. and the percent-encoded id of the user"),
			property(propKind, "text", "field", false, true, "preference, project, decision, other and so on"),
			property(propRun, "text", "field", false, true, "the run it was learned from"),
			property(propCreated, "date", "", false, true, "when it was first stored"),
			property(propLastUsed, "date", "", false, true, "when it was last recalled"),
			property(propReplaced, "date", "", false, true, "when another fact took its place"),
			property(propCurrent, "boolean", "", false, true, "false where another fact took its place"),
		},
	}
	if s.cfg.Vectorizer != "" {
		settings := map[string]any{"vectorizeClassName": false}
		maps.Copy(settings, s.cfg.VectorizerSettings)
		c.ModuleConfig = map[string]any{s.cfg.Vectorizer: settings}
	}
	return c
}

// Setup makes the collection where it is missing and adds properties that an older version did not have. It may be called
// at any time and by many workers at once. It fails with [*SchemaError], or with an error that wraps
// [memory.ErrUnreachable]; after the latter the store may be used all the same, and tries again.
func (s *Store) Setup(ctx context.Context) error {
	want := s.class()
	have, err := s.find(ctx)
	if err == nil && have == nil {
		err = s.client.Schema().ClassCreator().WithClass(want).Do(ctx)
		if err != nil {
			err = s.explain("make collection "+want.Class, err)
		}
		var found error
		if have, found = s.find(ctx); found == nil && have != nil {
			err = nil // ours, or that of another worker that was quicker
		}
	}
	if err != nil {
		return err
	}
	if have == nil {
		return fmt.Errorf("collection %s was made, but Weaviate does not know it; try again", want.Class)
	}
	missing, problem := compare(have, want)
	if problem != "" {
		return &SchemaError{want.Class, problem}
	}
	for _, p := range missing {
		if err := s.client.Schema().PropertyCreator().WithClassName(want.Class).WithProperty(p).Do(ctx); err != nil {
			return s.explain("add property "+p.Name+" to collection "+want.Class, err)
		}
	}
	s.setReady(true)
	return nil
}

// find returns the collection; nil where there is none.
func (s *Store) find(ctx context.Context) (*models.Class, error) {
	c, err := s.client.Schema().ClassGetter().WithClassName(s.cfg.Collection).Do(ctx)
	var answer *fault.WeaviateClientError
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain("look for collection "+s.cfg.Collection, err)
	}
	return c, nil
}

// compare says what has to be added to a collection, or why it can't be used.
func compare(have, want *models.Class) (missing []*models.Property, problem string) {
	if have.MultiTenancyConfig == nil || !have.MultiTenancyConfig.Enabled {
		return nil, "it is not multi-tenant"
	}
	if !have.MultiTenancyConfig.AutoTenantCreation {
		return nil, "it does not make tenants on first use (autoTenantCreation)"
	}
	if len(have.VectorConfig) > 0 || have.Vectorizer != want.Vectorizer {
		made := have.Vectorizer
		if len(have.VectorConfig) > 0 {
			made = "named vectors"
		}
		return nil, fmt.Sprintf("its vectorizer is %q where %q is configured", made, want.Vectorizer)
	}
	known := 0
	for _, p := range want.Properties {
		i := slices.IndexFunc(have.Properties, func(h *models.Property) bool { return strings.EqualFold(h.Name, p.Name) })
		if i < 0 {
			missing = append(missing, p)
			continue
		}
		known++
		if problem := differs(have.Properties[i], p); problem != "" {
			return nil, problem
		}
	}
	if known == 0 || slices.ContainsFunc(missing, func(p *models.Property) bool { return p.Name == propText || p.Name == propUser }) {
		return nil, "it has no properties " + propText + " and " + propUser
	}
	return missing, ""
}

// differs says in what a property is not as it has to be.
func differs(have, want *models.Property) string {
	switch {
	case !slices.Equal(have.DataType, want.DataType):
		return fmt.Sprintf("its property %s is of type %s where %s is needed", want.Name, strings.Join(have.DataType, " or "), want.DataType[0])
	case want.Tokenization != "" && have.Tokenization != want.Tokenization:
		return fmt.Sprintf("its property %s is tokenized by %s where %s is needed", want.Name, have.Tokenization, want.Tokenization)
	case *want.IndexFilterable && have.IndexFilterable != nil && !*have.IndexFilterable:
		return fmt.Sprintf("its property %s is not filterable", want.Name)
	case *want.IndexSearchable && have.IndexSearchable != nil && !*have.IndexSearchable:
		return fmt.Sprintf("its property %s is not searchable", want.Name)
	}
	return ""
}
