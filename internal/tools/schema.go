package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"ratchet/internal/plan"
)

// maxDepth is how deep arguments and checked values may nest. Nothing a model means is deeper; the validator and every
// later reader recurse.
const maxDepth = 64

// schemaURL is the address a schema has while it is compiled. It is nowhere: references lead to it or fail.
const schemaURL = "mem:///schema.json"

// schema is a JSON Schema, compiled once, with the document it came from.
type schema struct {
	compiled *jsonschema.Schema
	document any
	refers   bool // it has references
}

// noLoader refuses every schema that is not part of the document: a tool's schema must never make the worker read a file
// or a URL.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s: only references within the schema itself are followed; copy what it refers to into $defs", url)
}

// compile reads a JSON Schema, draft 2020-12 where it does not say otherwise.
func compile(raw json.RawMessage) (*schema, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, errors.New("it has no JSON Schema")
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the JSON Schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, document); err != nil {
		return nil, fmt.Errorf("read the JSON Schema: %w", err)
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile the JSON Schema: %w", err)
	}
	s := &schema{compiled: compiled, document: document, refers: refers(document)}
	if err := checkReferences(document, document); err != nil {
		return nil, err
	}
	return s, nil
}

// check is [loop.ToolSpec.Check]: it makes the lossless coercions of [coercer], lists every violation, and returns the
// arguments as they are to be used. Missing arguments are an empty object.
func (s *schema) check(args json.RawMessage) (checked json.RawMessage, problems []string) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("{}")
	}
	v, wrong := read("arguments", args)
	if len(wrong) > 0 {
		return args, wrong
	}
	if !s.affordable(v) {
		return args, []string{"arguments: " + errCostly.Error()}
	}
	c := coercer{root: s.document}
	v = c.coerce(s.document, v, 0)
	if problems = s.violations("arguments", v); len(problems) > 0 {
		return args, problems
	}
	if !c.changed {
		return args, nil
	}
	return encode(v), nil
}

// violations checks a value and says what is wrong with it.
func (s *schema) violations(name string, v any) []string {
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return []string{name + ": " + err.Error()}
	}
	return explain(name, s.document, invalid)
}

// read decodes a JSON value with its numbers as written, and refuses what no later reader could be trusted with: text
// that is not one JSON value, duplicate fields, nesting without end, numbers whose exponent would fill the memory.
func read(name string, raw json.RawMessage) (v any, problems []string) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, []string{fmt.Sprintf("%s: not JSON: %v", name, err)}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, []string{name + ": more than one JSON value"}
	}
	if _, plain := plan.Canonical(raw); plain {
		return v, nil
	}
	if problem := unusable(name, v, 0); problem != "" {
		return nil, []string{problem}
	}
	if _, err := jcs.Transform(raw); err != nil {
		return nil, []string{fmt.Sprintf("%s: not unambiguous JSON: %v", name, err)}
	}
	return v, nil
}

// unusable returns the first place where a value nests too deep or has a number out of range; empty: there is none.
func unusable(name string, v any, depth int) string {
	if depth > maxDepth {
		// The whole path would be as long as the nesting is deep.
		return fmt.Sprintf("%s: nested deeper than %d levels", name[:strings.IndexAny(name+".", ".[")], maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			if problem := unusable(name+"."+key, item, depth+1); problem != "" {
				return problem
			}
		}
	case []any:
		for i, item := range v {
			if problem := unusable(fmt.Sprintf("%s[%d]", name, i), item, depth+1); problem != "" {
				return problem
			}
		}
	case json.Number:
		if !readDecimal(v.String()).bounded() {
			return fmt.Sprintf("%s: the number %s is out of range", name, clip(v.String(), 40))
		}
	}
	return ""
}

// encode writes a decoded JSON value with its numbers as they were and without HTML escapes.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("tools: encode a decoded JSON value: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// coercer makes the coercions that lose nothing and that models need: "42" to 42 where a number is wanted and text is
// not, "true" to true likewise, 42.0 to 42 where an integer is wanted.
type coercer struct {
	root    any
	changed bool
	steps   int
}

// maxCoercions bounds the walk: references that lead back to where they came from could otherwise multiply without end.
const maxCoercions = 200_000

// coerce returns v as s wants it. It looks through properties, items and local references, and stops where a schema
// offers a choice between objects.
func (c *coercer) coerce(s, v any, refs int) any {
	object, ok := s.(map[string]any)
	if c.steps++; !ok || c.steps > maxCoercions {
		return v
	}
	if ref, ok := object["$ref"].(string); ok && refs < maxDepth {
		if target, ok := resolve(c.root, ref); ok {
			v = c.coerce(target, v, refs+1)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := object["properties"].(map[string]any)
		for key, item := range v {
			if property, ok := properties[key]; ok {
				v[key] = c.coerce(property, item, refs)
			} else {
				v[key] = c.coerce(object["additionalProperties"], item, refs)
			}
		}
	case []any:
		for i, item := range v {
			v[i] = c.coerce(object["items"], item, refs)
		}
	case string:
		return c.fromText(object, v)
	case json.Number:
		if whole, ok := readDecimal(v.String()).integer(); ok && whole != v.String() && accepts(object, "integer") && !accepts(object, "number") {
			c.changed = true
			return json.Number(whole)
		}
	}
	return v
}

// fromText turns text into the number or boolean that s wants, where it is exactly one and s has no use for text.
func (c *coercer) fromText(s map[string]any, text string) any {
	if accepts(s, "string") {
		return text
	}
	trimmed := strings.TrimSpace(text)
	if accepts(s, "boolean") && (trimmed == "true" || trimmed == "false") {
		c.changed = true
		return trimmed == "true"
	}
	number, isNumber := jsonNumber(trimmed)
	if !isNumber || !readDecimal(trimmed).bounded() {
		return text
	}
	if accepts(s, "number") {
		c.changed = true
		return number
	}
	if whole, ok := readDecimal(trimmed).integer(); ok && accepts(s, "integer") {
		c.changed = true
		return json.Number(whole)
	}
	return text
}

// accepts reports whether a schema names the type, itself or in one of its choices. A schema that names no type accepts
// anything, so it accepts text and nothing is coerced for it.
func accepts(s map[string]any, typ string) bool {
	switch types := s["type"].(type) {
	case string:
		return types == typ
	case []any:
		return slices.Contains(types, any(typ))
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if choices, ok := s[keyword].([]any); ok {
			return slices.ContainsFunc(choices, func(choice any) bool {
				object, ok := choice.(map[string]any)
				return !ok || accepts(object, typ)
			})
		}
	}
	return true
}

// schemaCache keeps compiled schemas that are no tool's: those of the answers to questions.
type schemaCache struct {
	mu       sync.Mutex
	compiled map[string]*schema
}

// Bounds of schemas that are no tool's. When the cache is full it starts anew: a schema that is still in use costs one
// compilation.
const (
	maxCached     = 256
	maxSchemaSize = 64 << 10 // bytes
)

// refers reports whether a schema has references. A model may write the schema of an answer, and a few references that
// each occur twice make a check take for ever; without them it takes time in proportion to schema and value.
func refers(document any) bool {
	switch node := document.(type) {
	case map[string]any:
		for key, item := range node {
			if key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || refers(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(node, refers)
	}
	return false
}

// get returns a compiled schema. It refuses large ones and references.
func (c *schemaCache) get(raw json.RawMessage) (*schema, error) {
	c.mu.Lock()
	s := c.compiled[string(raw)]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	if len(raw) > maxSchemaSize {
		return nil, fmt.Errorf("the JSON Schema has %d bytes; at most %d are allowed", len(raw), maxSchemaSize)
	}
	s, err := compile(raw)
	if err != nil {
		return nil, err
	}
	if s.refers {
		return nil, errors.New("the JSON Schema has a $ref: write out what it refers to")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil || len(c.compiled) >= maxCached {
		c.compiled = make(map[string]*schema)
	}
	c.compiled[string(raw)] = s
	return s, nil
}
