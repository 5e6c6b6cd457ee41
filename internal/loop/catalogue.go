package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ratchet/internal/plan"
)

// What tools say of themselves is part of every prompt, and tools change while runs go on. So a worker stores what its tools
// say, all of it in one catalogue under its digest, before it accepts a first run with it, and a run's first event names the
// catalogue: the run's prompt stays the same on every worker, and can be made again for as long as there is a journal. Most
// runs share a catalogue, so that no run costs a write. Catalogues are small and few, and are never removed: a run may
// be parked for months.

// toolText is what a tool says of itself, to the byte. The schema and the example are text here, since JSON within JSON
// would be written anew.
type toolText struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Schema      string `json:"schema"`
	Example     string `json:"example,omitempty"`
	Effect      Effect `json:"effect"`
}

func textOf(s ToolSpec) toolText {
	return toolText{s.Name, s.Description, string(s.Schema), string(s.Example), s.Effect}
}

// catalogue is the texts of all tools that were offered at one time. It never changes.
type catalogue struct {
	digest string // SHA-256 of its stored form, hexadecimal
	tools  map[string]toolText
	stored []byte
}

// catalogueForm is how a catalogue is stored; v is 1.
type catalogueForm struct {
	V     int        `json:"v"`
	Tools []toolText `json:"tools"` // sorted by name
}

func newCatalogue(tools map[string]toolText) (*catalogue, error) {
	form := catalogueForm{V: 1}
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		form.Tools = append(form.Tools, tools[name])
	}
	stored, err := encodeJSON(form)
	if err != nil {
		return nil, fmt.Errorf("encode what the tools say: %w", err)
	}
	return &catalogue{digest: contentDigest(stored), tools: tools, stored: stored}, nil
}

func contentDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// readCatalogue reads a stored catalogue and checks that it is the one that was asked for.
func readCatalogue(digest string, stored []byte) (*catalogue, error) {
	if contentDigest(stored) != digest {
		return nil, fmt.Errorf("the catalogue of tools %s holds something else: %w", digest, ErrNotFound)
	}
	var form catalogueForm
	if err := json.Unmarshal(stored, &form); err != nil {
		return nil, fmt.Errorf("the catalogue of tools %s can't be read: %w: %w", digest, err, ErrNotFound)
	}
	if form.V != 1 {
		return nil, fmt.Errorf("the catalogue of tools %s has version %d: %w", digest, form.V, ErrNewer)
	}
	c := &catalogue{digest: digest, tools: make(map[string]toolText, len(form.Tools)), stored: stored}
	for _, t := range form.Tools {
		c.tools[t.Name] = t
	}
	return c, nil
}

// holds reports whether the catalogue says of these tools what they say themselves.
func (c *catalogue) holds(specs []ToolSpec) bool {
	for _, s := range specs {
		t, known := c.tools[s.Name]
		if !known || t.Description != s.Description || t.Schema != string(s.Schema) || t.Example != string(s.Example) ||
			t.Effect != s.Effect {
			return false
		}
	}
	return true
}

// shelf keeps the catalogues that a worker has seen.
type shelf struct {
	current atomic.Pointer[shelved]
	writing sync.Mutex // held by who stores the next one

	mu    sync.Mutex
	known map[string]*catalogue
}

// shelved is the catalogue of what is offered now, and until when it is taken for stored without another look.
type shelved struct {
	*catalogue
	until  time.Time
	absent bool // it could not be stored
}

const (
	shelfSize     = 64               // catalogues kept in memory; more are read again
	catalogueLook = time.Hour        // how long a stored catalogue is taken to be still there
	catalogueTry  = 30 * time.Second // after which storing one is tried again
	catalogueTime = 5 * time.Second  // for reading or writing one
	catalogueGets = 4                // failed attempts to read one after which a run goes on without
)

func (f *shelf) get(digest string) *catalogue {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[digest]
}

func (f *shelf) put(c *catalogue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = map[string]*catalogue{}
	}
	for digest := range f.known {
		if len(f.known) < shelfSize {
			break
		}
		delete(f.known, digest)
	}
	f.known[c.digest] = c
}

// pin returns the digest of a stored catalogue that has these tools, which are some of those offered. It is empty where
// there are none, and where the catalogue can't be stored: a run does not wait for that, and goes without.
func (w *Worker) pin(ctx context.Context, specs []ToolSpec) string {
	if len(specs) == 0 || w.Catalogues == nil {
		return ""
	}
	if digest, fresh := w.shelf.pinned(specs); fresh {
		return digest
	}
	w.shelf.writing.Lock()
	defer w.shelf.writing.Unlock()
	if digest, fresh := w.shelf.pinned(specs); fresh {
		return digest // somebody else was quicker
	}
	tools := map[string]toolText{}
	all, _ := w.Tools.Offer(nil)
	for _, s := range append(all, specs...) { // the set may have changed since specs were taken from it
		tools[s.Name] = textOf(s)
	}
	c, err := newCatalogue(tools)
	if err == nil {
		err = w.storeCatalogue(ctx, c)
	}
	if err != nil {
		w.Log.Warn("what the tools say could not be stored; until it is, runs begin without it, and their prompts change where "+
			"tools do", "error", err)
		w.shelf.current.Store(&shelved{catalogue: &catalogue{tools: tools}, until: time.Now().Add(catalogueTry), absent: true})
		return ""
	}
	w.shelf.put(c)
	w.shelf.current.Store(&shelved{catalogue: c, until: time.Now().Add(catalogueLook)})
	return c.digest
}

// pinned is the digest of the current catalogue; fresh says that it counts for these tools.
func (f *shelf) pinned(specs []ToolSpec) (digest string, fresh bool) {
	now := f.current.Load()
	switch {
	case now == nil || time.Now().After(now.until):
		return "", false
	case now.absent:
		return "", true
	default:
		return now.digest, now.holds(specs)
	}
}

// storeCatalogue stores a catalogue, if it is not there yet.
func (w *Worker) storeCatalogue(ctx context.Context, c *catalogue) error {
	ctx, cancel := context.WithTimeout(ctx, catalogueTime)
	defer cancel()
	return w.Catalogues.PutCatalogue(ctx, c.digest, c.stored)
}

// catalogue returns a catalogue by its digest; ErrNotFound where there is none.
func (w *Worker) catalogue(ctx context.Context, digest string) (*catalogue, error) {
	if c := w.shelf.get(digest); c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, catalogueTime)
	defer cancel()
	if w.Catalogues == nil {
		return nil, fmt.Errorf("this worker keeps no catalogues of tools: %w", ErrNotFound)
	}
	stored, err := w.Catalogues.GetCatalogue(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("load the catalogue of tools %s: %w", clip(digest, 64), err)
	}
	c, err := readCatalogue(digest, stored)
	if err != nil {
		return nil, err
	}
	w.shelf.put(c)
	return c, nil
}

// What a prompt is made with where it is not what was pinned.
const (
	unpinnedTools = "What the tools said when the run began was not kept; what they say today stands in its place."
	lostTools     = "What the tools said when the run began can't be read any more; what they say today stands in its place."
)

// toolbox returns the tools that were offered to a run when it began, with what they said then. A tool that is gone, or
// whose schema is another one now, is still in it: the prompt stays what it was, and a call of it is checked against the
// schema of then and fails in words. note is not empty where the texts are those of today, because what was said then was
// not kept, is gone or, with today set, is not to be looked for.
func (w *Worker) toolbox(ctx context.Context, s *State, today bool) (tools Toolbox, gone []string, note string, err error) {
	names := make([]string, len(s.Tools))
	for i, t := range s.Tools {
		names[i] = t.Name
	}
	live, gone := w.Tools.Offer(names)
	switch {
	case len(s.Tools) == 0:
		return NewToolbox(live), gone, "", nil
	case s.Catalogue == "":
		return NewToolbox(live), gone, unpinnedTools, nil
	case today:
		return NewToolbox(live), gone, lostTools, nil
	}
	if box, known := w.boxes.get(s, live); known {
		return box, gone, "", nil
	}
	now := NewToolbox(live)
	texts, err := w.catalogue(ctx, s.Catalogue)
	switch {
	case errors.Is(err, ErrNotFound):
		return now, gone, lostTools, nil
	case err != nil:
		return Toolbox{}, nil, "", err
	}
	specs, all := make([]ToolSpec, 0, len(s.Tools)), true
	for _, o := range s.Tools {
		spec, alive := now.Spec(o.Name)
		text, pinned := texts.tools[o.Name]
		switch {
		case pinned:
			specs = append(specs, w.asItWas(text, o, spec))
		case alive:
			specs, all = append(specs, spec), false
		}
	}
	box := NewToolbox(specs)
	if all {
		box.set = contentDigest([]byte(offeredKey(s)))
	}
	w.boxes.put(s, live, box)
	return box, gone, "", nil
}

// asItWas is a tool with the texts of then. spec is the tool of today, empty where it is gone.
func (w *Worker) asItWas(text toolText, o OfferedTool, spec ToolSpec) ToolSpec {
	same := spec.Name != "" && spec.Digest == o.Digest
	schema := json.RawMessage(text.Schema)
	spec.Name, spec.Description, spec.Schema, spec.Example = text.Name, text.Description, schema, nil
	if text.Example != "" {
		spec.Example = json.RawMessage(text.Example)
	}
	spec.Digest, spec.Effect = o.Digest, text.Effect
	if same {
		return spec
	}
	spec.CheckPart = nil
	spec.Fields, _ = plan.Properties(schema) // a schema that was offered once has readable ones
	spec.Check = func(args json.RawMessage) (json.RawMessage, []string) {
		problems, err := w.Tools.Validate(schema, args)
		if err != nil {
			return args, nil // the call fails in any case: the tool is another one now
		}
		return args, problems
	}
	return spec
}
