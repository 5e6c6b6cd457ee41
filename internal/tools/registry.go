// Package tools owns what a worker can do: a registry of named tools, each with the JSON Schema of its arguments, the
// effect a repeat would have, and the function that performs it. The registry checks arguments, calls tools so that none
// of them can hang, crash or flood a run, and asks guards and reconcile checks, which are tools themselves.
//
// A tool is a [Tool] value. [Typed] makes one from a Go function whose argument struct becomes the schema; [Builtins]
// returns the three that every worker has; package demo holds the samples. Tools from elsewhere come through adapters:
// natstool, mcptool, httptool, filetool, mailtool; toolfile reads the file that says which of them a worker offers.
package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

var _ loop.Tools = (*Registry)(nil)

// nameRule is what a tool's name may look like; it is also what OpenAI-compatible endpoints accept as a function name.
var nameRule = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Func performs a tool call. The result is any value that encoding/json can write, a json.RawMessage that is passed on,
// a string (text), or a []byte (text where it is valid UTF-8, else described). An error's text is shown to the model: it
// says what was wrong and what to do instead. The context ends at the tool's timeout and when the run is cancelled.
type Func func(ctx context.Context, c loop.Invocation) (any, error)

// Tool is one tool as its source describes it.
type Tool struct {
	// Spec names the tool. Name, Description and Schema are required. An empty Effect is once, a zero Timeout the
	// registry's, an empty Source "builtin". Digest, Check, CheckPart and Fields are filled in by [New].
	Spec loop.ToolSpec
	// Sample says that the tool works on sample data; its description then begins with [SampleLabel].
	Sample bool
	// Internal says that the tool is there for the engine (as a guard or a reconcile check) and is not offered to models.
	Internal bool
	// Guard names the tool that is asked whether a call may go out, see [GuardRequest]; empty: none.
	Guard string
	// Reconcile names the tool that is asked what became of a started call, see [ReconcileRequest]; empty: none.
	Reconcile string
	// MaxResult bounds the result that goes into the run, in bytes of JSON; 0: the registry's.
	MaxResult int
	// MaxParallel bounds how many calls of the tool this worker makes at once; 0: any number.
	MaxParallel int
	// Rate bounds how often this worker calls the tool; the zero value does not.
	Rate Rate
	// Group names the tools that [Registry.Replace] exchanges together; empty: the tool stays for ever.
	Group string
	// Instant says that Run only computes and returns at once, whatever its context says: it is called without a goroutine and
	// a timer of its own, unless MaxParallel or Rate make it wait.
	Instant bool
	// Run performs the call.
	Run Func
}

// SampleLabel is what the description of a sample tool begins with, so that neither a person nor a model takes its data
// for real.
const SampleLabel = "[sample data] "

// Config says what a registry holds and how it bounds calls.
type Config struct {
	Tools     []Tool
	Timeout   time.Duration // of a call whose tool names none; 30 s
	MaxResult int           // bytes of JSON of a result that go into the run; 8192
	MaxFull   int           // bytes of a larger result that are kept beside it; 16 MiB
	Secrets   *Secrets      // never shown in descriptions, results or errors; nil: none
	Logger    *slog.Logger  // gets the stacks of panics; slog.Default()

	// Open says that tools come and go while the worker runs. A guard or reconcile tool that is not there when the registry
	// is made is then no error: until it comes, a missing guard says no and a missing reconcile check unknown.
	Open bool
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MaxResult = cmp.Or(c.MaxResult, 8<<10)
	c.MaxFull = cmp.Or(c.MaxFull, 16<<20)
	c.Logger = c.Secrets.Logger(cmp.Or(c.Logger, slog.Default()))
	return c
}

// minResult is the smallest useful bound of a result: room for a head, a tail and the mark between them.
const minResult = 256

func (c Config) validate() error {
	switch {
	case c.Timeout < 0:
		return fmt.Errorf("timeout is %v: it must be positive", c.Timeout)
	case c.MaxResult < minResult:
		return fmt.Errorf("max result is %d bytes: it must be at least %d", c.MaxResult, minResult)
	case c.MaxFull < c.MaxResult:
		return fmt.Errorf("max full is %d bytes: it must be at least max result, %d", c.MaxFull, c.MaxResult)
	}
	return nil
}

// ErrClash says that two sources have a tool of the same name.
var ErrClash = errors.New("one tool name, two tools")

// Registry is what a worker offers. It is safe for concurrent use, also while [Registry.Replace] changes it: a call that
// is under way goes on with the tool it found.
type Registry struct {
	config    Config
	writing   sync.Mutex // held by who makes the next set
	changed   chan struct{}
	current   atomic.Pointer[set]
	schemas   schemaCache
	abandoned atomic.Int64
}

// set is what is offered at one moment. It never changes.
type set struct {
	tools map[string]*entry
	names []string // sorted
}

// entry is a tool with its schema compiled.
type entry struct {
	Tool
	schema *schema
	gate   *gate
}

func (s *set) add(e *entry) {
	s.tools[e.Spec.Name] = e
	at, _ := slices.BinarySearch(s.names, e.Spec.Name)
	s.names = slices.Insert(s.names, at, e.Spec.Name)
}

// entry returns the tool of a name as it is now.
func (r *Registry) entry(name string) (*entry, bool) {
	e, ok := r.current.Load().tools[name]
	return e, ok
}

// New checks the tools and returns the registry. Errors name the tool and its source: a name two tools share, a name or
// schema that can't be used, an example that its own schema refuses, a guard or reconcile tool that does not exist.
func New(config Config) (*Registry, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("tool registry: %w", err)
	}
	r := &Registry{config: config, changed: make(chan struct{})}
	r.current.Store(&set{})
	next, problems := r.extend(&set{tools: make(map[string]*entry, len(config.Tools))}, config.Tools)
	for _, name := range next.names {
		problems = append(problems, checkHelpers(next, next.tools[name], config.Open)...)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("tool registry: %w", err)
	}
	r.current.Store(next)
	return r, nil
}

// Replace puts tools in the place of all that the group offered until now; their Group is set to it. A tool that can't
// be offered (its name is another group's, which is an [ErrClash], its schema is none …) is left out and named in the error;
// the others are offered all the same. An empty list takes the whole group away.
func (r *Registry) Replace(group string, tools []Tool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	next := &set{tools: make(map[string]*entry)}
	now := r.current.Load()
	for _, name := range now.names {
		if e := now.tools[name]; e.Group != group || group == "" {
			next.add(e)
		}
	}
	grouped := slices.Clone(tools)
	for i := range grouped {
		grouped[i].Group = group
	}
	next, problems := r.extend(next, grouped)
	for _, t := range grouped {
		if e, ok := next.tools[t.Spec.Name]; ok && e.Group == group {
			problems = append(problems, checkHelpers(next, e, true)...)
		}
	}
	r.current.Store(next)
	close(r.changed)
	r.changed = make(chan struct{})
	return errors.Join(problems...)
}

// extend adds tools to a set that nobody else sees yet, and says which can't be added.
func (r *Registry) extend(next *set, tools []Tool) (*set, []error) {
	var problems []error
	now := r.current.Load()
	for _, t := range tools {
		t.Spec.Source = cmp.Or(t.Spec.Source, "builtin")
		if other, taken := next.tools[t.Spec.Name]; taken {
			problems = append(problems, fmt.Errorf("%w: %s is offered by %s and by %s: give one of them another name or leave it out",
				ErrClash, t.Spec.Name, other.Spec.Source, t.Spec.Source))
			continue
		}
		e, err := r.newEntry(t)
		if err != nil {
			problems = append(problems, fmt.Errorf("tool %q of %s: %w", t.Spec.Name, t.Spec.Source, err))
			continue
		}
		if old, ok := now.tools[t.Spec.Name]; ok && old.MaxParallel == e.MaxParallel && old.Rate == e.Rate {
			e.gate = old.gate // calls of the old one still count
		}
		next.add(e)
	}
	return next, problems
}

// Bounds of what a tool says of itself, in bytes: it lands in every prompt.
const (
	maxDescription = 4 << 10
	maxToolSchema  = 128 << 10
)

// newEntry fills in a tool's defaults, compiles its schema and checks what it says of itself.
func (r *Registry) newEntry(t Tool) (*entry, error) {
	s := &t.Spec
	s.Description = clip(printable(r.config.Secrets.Hide(s.Description)), maxDescription)
	s.Effect = cmp.Or(s.Effect, loop.EffectOnce)
	s.Timeout = cmp.Or(s.Timeout, r.config.Timeout)
	t.MaxResult = cmp.Or(t.MaxResult, r.config.MaxResult)
	if t.Sample && !strings.HasPrefix(s.Description, SampleLabel) {
		s.Description = SampleLabel + s.Description
	}
	switch {
	case !nameRule.MatchString(s.Name):
		return nil, fmt.Errorf("the name must be 1 to 64 of a-z, A-Z, 0-9, _ and -")
	case strings.TrimSpace(strings.TrimPrefix(s.Description, SampleLabel)) == "":
		return nil, errors.New("it has no description, and a model could not know what it is for")
	case t.Run == nil:
		return nil, errors.New("it has no function to run")
	case !slices.Contains([]loop.Effect{loop.EffectRead, loop.EffectIdempotent, loop.EffectOnce}, s.Effect):
		return nil, fmt.Errorf("effect is %q: it must be read, idempotent or once", s.Effect)
	case s.Timeout < 0:
		return nil, fmt.Errorf("timeout is %v: it must be positive", s.Timeout)
	case t.MaxParallel < 0:
		return nil, fmt.Errorf("max parallel is %d: it must be positive", t.MaxParallel)
	case t.Rate.Calls < 0 || t.Rate.Per < 0 || (t.Rate.Calls > 0) != (t.Rate.Per > 0):
		return nil, fmt.Errorf("rate is %d calls in %v: both must be positive", t.Rate.Calls, t.Rate.Per)
	case t.MaxResult < minResult || t.MaxResult > r.config.MaxFull:
		return nil, fmt.Errorf("max result is %d bytes: it must be between %d and %d", t.MaxResult, minResult, r.config.MaxFull)
	}
	if len(s.Schema) > maxToolSchema {
		return nil, fmt.Errorf("its JSON Schema has %d bytes: it must have at most %d", len(s.Schema), maxToolSchema)
	}
	compiled, err := compile(s.Schema)
	if err != nil {
		return nil, err
	}
	if s.Digest, err = Digest(s.Schema); err != nil {
		return nil, fmt.Errorf("digest of its schema: %w", err)
	}
	s.Check, s.CheckPart = compiled.check, checkPart(s.Schema)
	if s.Fields, err = plan.Properties(s.Schema); err != nil {
		return nil, err
	}
	if len(s.Example) > 0 {
		if _, wrong := s.Check(s.Example); len(wrong) > 0 {
			return nil, fmt.Errorf("its example does not satisfy its own schema: %s", strings.Join(wrong, "; "))
		}
	}
	return &entry{Tool: t, schema: compiled, gate: newGate(t.MaxParallel, t.Rate)}, nil
}

// checkHelpers checks that a tool's guard and reconcile tools exist, where they can't come later, and are others than
// itself.
func checkHelpers(s *set, e *entry, open bool) (problems []error) {
	for _, helper := range []struct{ role, name string }{{"guard", e.Guard}, {"reconcile", e.Reconcile}} {
		if helper.name == "" {
			continue
		}
		if _, ok := s.tools[helper.name]; !ok && !open || helper.name == e.Spec.Name {
			problems = append(problems, fmt.Errorf("tool %q of %s: its %s tool %q must be another tool that is offered too",
				e.Spec.Name, e.Spec.Source, helper.role, helper.name))
		}
	}
	return problems
}

// Offer returns the tools that match one of the globs (path.Match), sorted by name; nil globs mean all, an empty list
// none. unknown lists the exact names that no tool has, and globs that are malformed. Internal tools are never offered;
// naming one is no error.
func (r *Registry) Offer(globs []string) (specs []loop.ToolSpec, unknown []string) {
	now := r.current.Load()
	for _, glob := range globs {
		_, err := path.Match(glob, "")
		_, known := now.tools[glob]
		if err != nil || (!known && !strings.ContainsAny(glob, `*?[\`)) {
			unknown = append(unknown, glob)
		}
	}
	for _, name := range now.names {
		e := now.tools[name]
		matches := func(glob string) bool { ok, _ := path.Match(glob, name); return ok }
		if !e.Internal && (globs == nil || slices.ContainsFunc(globs, matches)) {
			specs = append(specs, e.Spec)
		}
	}
	return specs, unknown
}

// Validate checks value against a JSON Schema and lists every violation in plain words; its name in them is "value". An
// error means that the schema itself can't be used: it is none, it has more than 64 KiB, or it has references.
func (r *Registry) Validate(schema, value json.RawMessage) (problems []string, err error) {
	compiled, err := r.schemas.get(schema)
	if err != nil {
		return nil, err
	}
	v, wrong := read("value", value)
	if len(wrong) > 0 {
		return wrong, nil
	}
	return compiled.violations("value", v), nil
}

// Digest returns the SHA-256 of the canonical form of a JSON value, see the function of that name.
func (r *Registry) Digest(value json.RawMessage) (string, error) { return Digest(value) }

// Abandoned returns how many calls are still running although they were given up at their timeout or when their run was
// cancelled: tools that ignore their context.
func (r *Registry) Abandoned() int64 { return r.abandoned.Load() }
