package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/custom"
	"github.com/blevesearch/bleve/v2/analysis/lang/de"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/analysis/lang/es"
	"github.com/blevesearch/bleve/v2/analysis/lang/fr"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/token/porter"
	"github.com/blevesearch/bleve/v2/analysis/token/unicodenorm"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve_index_api"
	"github.com/google/uuid"
)

// change is what happened to one key of the bucket. An empty text means that nothing is to be found there.
type change struct {
	key      string
	revision uint64
	text     string
}

func (c change) id() string { return c.key[strings.LastIndexByte(c.key, '.')+1:] }

// userIndex finds the facts of one user. An index in memory is made of segments that are never merged, one for each
// batch of changes: after a number of batches it is worn, and is made again.
type userIndex struct {
	open  sync.RWMutex // held for reading by those who use bleve
	bleve bleve.Index  // nil after close

	mu      sync.Mutex // guards the rest
	known   map[uuid.UUID]knownFact
	batches int
}

type knownFact struct {
	revision uint64
	found    bool
}

const textField = "text"

var textMapping = sync.OnceValues(newMapping)

// newMapping says how texts are cut into words: by Unicode, in lower case, without the commonest words of a few
// languages, and with English endings cut off. Other languages are found by whole words.
func newMapping() (mapping.IndexMapping, error) {
	m := bleve.NewIndexMapping()
	if err := m.AddCustomTokenFilter("compatible", map[string]any{"type": unicodenorm.Name, "form": unicodenorm.NFKC}); err != nil {
		return nil, err
	}
	err := m.AddCustomAnalyzer("facts", map[string]any{
		"type": custom.Name, "tokenizer": unicode.Name,
		"token_filters": []any{
			"compatible", en.PossessiveName, lowercase.Name, en.StopName, de.StopName, fr.StopName, es.StopName, porter.Name,
		},
	})
	if err != nil {
		return nil, err
	}
	m.ScoringModel = index.BM25Scoring
	text := bleve.NewTextFieldMapping()
	text.Analyzer = "facts"
	text.Store, text.DocValues, text.IncludeInAll, text.IncludeTermVectors = false, false, false, false
	document := bleve.NewDocumentStaticMapping()
	document.AddFieldMappingsAt(textField, text)
	document.AddSubDocumentMapping("_all", bleve.NewDocumentDisabledMapping())
	m.DefaultMapping = document
	return m, m.Validate()
}

func newUserIndex() (*userIndex, error) {
	m, err := textMapping()
	if err != nil {
		return nil, fmt.Errorf("describe the index of facts: %w", err)
	}
	b, err := bleve.NewUsing("", m, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, fmt.Errorf("make an index of facts: %w", err)
	}
	return &userIndex{bleve: b, known: map[uuid.UUID]knownFact{}}, nil
}

// errClosed says that an index was dropped while it was about to be used.
var errClosed = errors.New("index closed")

// apply takes changes in. They may come twice and out of order: the revision tells. It reports how many facts it holds
// then, and whether it is worn.
func (u *userIndex) apply(changes []change) (facts int, worn bool, err error) {
	u.open.RLock()
	defer u.open.RUnlock()
	if u.bleve == nil {
		return 0, false, errClosed
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	batch := u.bleve.NewBatch()
	for _, c := range changes {
		id, err := uuid.Parse(c.id())
		if err != nil {
			continue // no key of ours
		}
		had := u.known[id]
		if c.revision <= had.revision {
			continue
		}
		now := knownFact{c.revision, c.text != ""}
		switch { // the text of an id never changes
		case now.found && !had.found:
			if err := batch.Index(c.id(), map[string]string{textField: c.text}); err != nil {
				return 0, false, err
			}
		case !now.found && had.found:
			batch.Delete(c.id())
		}
		u.known[id] = now
	}
	if batch.Size() > 0 {
		if err := u.bleve.Batch(batch); err != nil {
			return 0, false, err
		}
		u.batches++
	}
	return len(u.known), u.batches > 16+len(u.known)/200, nil
}

type hit struct {
	id    string
	score float64 // as a part of the best one's
}

// search returns up to k facts with a word of the query.
func (u *userIndex) search(ctx context.Context, query string, k int) ([]hit, error) {
	u.open.RLock()
	defer u.open.RUnlock()
	if u.bleve == nil {
		return nil, errClosed
	}
	match := bleve.NewMatchQuery(query)
	match.SetField(textField)
	result, err := u.bleve.SearchInContext(ctx, bleve.NewSearchRequestOptions(match, k, 0, false))
	if err != nil {
		return nil, err
	}
	hits := make([]hit, len(result.Hits))
	for i, h := range result.Hits {
		hits[i] = hit{h.ID, h.Score / result.MaxScore}
	}
	return hits, nil
}

func (u *userIndex) close() {
	u.open.Lock()
	defer u.open.Unlock()
	if u.bleve != nil {
		_ = u.bleve.Close() // nothing is on disk: nothing can be lost
		u.bleve = nil
	}
}
