// Package memory keeps long-term facts: short sentences about a user that outlive the run that learned them.
//
// A fact belongs to one tenant and one user and is found by them alone; a task without a user has the user "", whose
// facts are apart from everybody else's. Its id is derived from tenant, user and text, so that storing it again changes
// nothing. A fact that another one replaced is kept, marked with the time, and not recalled any more; one that is
// forgotten is gone.
//
// [Store] is what a store has to do. There are two, weaviate and embedded, in packages of their own, and one suite of
// tests for both in memorytest. Nobody uses a store bare: [Guarded] puts a deadline and a circuit around it, and refuses
// what looks like a credential. [Learner] turns a conversation into facts.
package memory

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"ratchet/internal/loop"
)

// MaxText is how many bytes the text of a fact may have.
const MaxText = 1000

// OtherKind is the kind of a fact that names none.
const OtherKind = "other"

// Errors of stores, which wrap them.
var (
	// ErrNotFound says that the tenant and user have no fact of that id.
	ErrNotFound = errors.New("no such fact")
	// ErrInvalid says that what was asked for can't be: the caller has to send something else.
	ErrInvalid = errors.New("not valid")
	// ErrUnreachable says that the store, or what it needs, could not be asked at all.
	ErrUnreachable = errors.New("unreachable")
)

// Fact is a stored fact.
type Fact struct {
	ID    string // UUIDv5 of tenant, user and normalised text: see [ID]
	Text  string
	Score float64 // 0 to 1, the best of one answer to [Store.Recall] being near 1; 0 where nothing was searched for
	Kind  string  // preference, project, decision, other …
	// SourceRun is the run that it was learned from; empty where a person added it.
	SourceRun string
	Created   time.Time
	LastUsed  time.Time // when it was last recalled, exact to a day; zero: never
	Replaced  time.Time // when another fact took its place; zero: it holds
}

// NewFact is a fact to be stored.
type NewFact struct {
	Text      string // at most [MaxText] bytes
	Kind      string // [a-z][a-z0-9_-]{0,31}; empty: other
	SourceRun string
}

// Store keeps facts. All methods are for one tenant and user and reach no other's facts; all may be called by many
// goroutines. Errors that are the caller's wrap [ErrInvalid] or [ErrNotFound].
type Store interface {
	// Recall returns up to k facts that have something to do with the query, the nearest first. Replaced ones are left
	// out. A user without facts has none: that is no error.
	Recall(ctx context.Context, tenant, user, query string, k int) ([]Fact, error)
	// Remember stores facts, several at once. One that is stored already stays as it is; if it was replaced it holds
	// again. On an error some may be stored: it may be called again with the same.
	Remember(ctx context.Context, tenant, user string, facts []NewFact) error
	// Replace stores a fact and marks the one of the id as replaced. With the same text it changes nothing.
	Replace(ctx context.Context, tenant, user, id string, by NewFact) error
	// List returns up to limit facts, replaced ones included, the oldest first. Next continues the list; empty: no more.
	List(ctx context.Context, tenant, user, after string, limit int) (facts []Fact, next string, err error)
	// Forget removes a fact and makes sure that it is gone.
	Forget(ctx context.Context, tenant, user, id string) error
	// Touch sets when facts were last used. Those that are gone are left out.
	Touch(ctx context.Context, tenant, user string, ids []string, at time.Time) error
}

// ForgetAll removes all facts of a user, replaced ones included, and returns how many there were.
func ForgetAll(ctx context.Context, s Store, tenant, user string) (forgotten int, err error) {
	for {
		facts, _, err := s.List(ctx, tenant, user, "", 100)
		if err != nil || len(facts) == 0 {
			return forgotten, err
		}
		for _, f := range facts {
			if err := s.Forget(ctx, tenant, user, f.ID); err != nil && !errors.Is(err, ErrNotFound) {
				return forgotten, err
			}
			forgotten++
		}
	}
}

// idSpace is the namespace of the ids of facts, for ever.
var idSpace = uuid.MustParse("5b0b2f0e-7c84-5c55-9d8b-0d7a3a9f4c11")

// ID returns the id of a fact: equal for texts that differ in case, spacing or a final full stop only.
func ID(tenant, user, text string) string {
	return uuid.NewSHA1(idSpace, []byte(tenant+"\x00"+user+"\x00"+normalise(text))).String()
}

func normalise(text string) string {
	folded := cases.Fold().String(norm.NFKC.String(text))
	return strings.TrimRight(strings.Join(strings.Fields(folded), " "), ".! ")
}

var kindPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// Check returns the fact as it is to be stored: on one line, with a kind. The error wraps [ErrInvalid].
func (f NewFact) Check() (NewFact, error) {
	f.Text = OneLine(f.Text)
	if f.Kind == "" {
		f.Kind = OtherKind
	}
	switch {
	case normalise(f.Text) == "":
		return f, fmt.Errorf("fact %w: its text is empty", ErrInvalid)
	case len(f.Text) > MaxText:
		return f, fmt.Errorf("fact %w: its text has %d bytes, at most %d are allowed; say it shorter", ErrInvalid, len(f.Text), MaxText)
	case !kindPattern.MatchString(f.Kind):
		return f, fmt.Errorf("fact %w: kind %q must be 1 to 32 of a-z, 0-9, _ and -, beginning with a letter", ErrInvalid, f.Kind)
	case f.SourceRun != "" && !loop.ValidID(f.SourceRun):
		return f, fmt.Errorf("fact %w: %q is no run's id", ErrInvalid, f.SourceRun)
	}
	return f, nil
}

// CheckAll checks facts, and leaves out those that occur a second time.
func CheckAll(tenant, user string, facts []NewFact) (checked []NewFact, ids []string, err error) {
	seen := make(map[string]bool, len(facts))
	for _, f := range facts {
		f, err := f.Check()
		if err != nil {
			return nil, nil, err
		}
		if id := ID(tenant, user, f.Text); !seen[id] {
			seen[id] = true
			checked, ids = append(checked, f), append(ids, id)
		}
	}
	return checked, ids, nil
}

// CheckScope refuses a tenant or user that could reach another's facts. The error wraps [ErrInvalid].
func CheckScope(tenant, user string) error {
	if !loop.ValidID(tenant) {
		return fmt.Errorf("tenant %q is %w: use 1 to 64 letters, digits, _ and -", tenant, ErrInvalid)
	}
	if len(user) > 256 || !utf8.ValidString(user) {
		return fmt.Errorf("user is %w: use at most 256 bytes of UTF-8", ErrInvalid)
	}
	return nil
}

// CheckID refuses what is no id of a fact. Since no fact has it, the error wraps [ErrNotFound].
func CheckID(id string) error {
	if u, err := uuid.Parse(id); err != nil || u.String() != id {
		return fmt.Errorf("%q: %w", id, ErrNotFound)
	}
	return nil
}

// OneLine returns text with every run of spaces, line ends and characters that can't be printed as one space.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, " "), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r)
	}), " ")
}
