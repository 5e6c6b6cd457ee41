package llm

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	openai "github.com/sashabaranov/go-openai"

	"ratchet/internal/loop"
)

// quirks is what a model's endpoint has refused so far. It is a value: adapt returns a changed copy.
type quirks struct {
	noSchema   bool     // response_format json_schema is not offered
	badSchemas []uint64 // sums of schemas that it does not take as response_format
	noObject   bool     // response_format json_object is not offered
	noStream   bool     // replies come as a whole only
	noUsage    bool     // stream_options are not offered
	noTools    *failure // how native tool calls were refused; nil: they were not
	limit      string   // the one name of the output limit it takes; empty: as the task says
	systemRole string   // role for system messages; empty: system
	dropped    []string // options it does not know, stop included
}

// nameOf is the name under which this model takes an option.
func (q quirks) nameOf(option string) string {
	if isLimit(option) && q.limit != "" {
		return q.limit
	}
	return option
}

// unsupported matches how endpoints say that they do not know a parameter, as opposed to not liking its value.
var unsupported = regexp.MustCompile(`unsupported|not.support|n't support|unrecogni[sz]ed|unknown|unexpected|unavailable|not available|` +
	`not (be )?permitted|not allowed|not compatible|incompatible|extra (inputs|fields)|deprecated`)

// adapt returns the quirks with what this failure teaches about the request that met it, and in a few words what
// changed; empty where the failure is no refusal of a parameter, or of none that was sent.
func (q quirks) adapt(f *failure, r *loop.ModelRequest, limit int) (quirks, string) {
	if f.cause == CauseToolsUnsupported && len(r.Tools) > 0 {
		q.noTools = f
		return q, "no tools are offered"
	}
	if f.cause != CauseRequestRejected || f.status != http.StatusBadRequest && f.status != http.StatusUnprocessableEntity {
		return q, ""
	}
	text := strings.ToLower(f.param + " " + f.code + " " + f.said)
	if next, changed := q.adaptForm(text, r); changed != "" {
		return next, changed
	}
	if !unsupported.MatchString(text) {
		return q, ""
	}
	if next, changed := q.adaptLimit(text, r, limit); changed != "" {
		return next, changed
	}
	if next, changed := q.adaptStream(text, r); changed != "" {
		return next, changed
	}
	if next, changed := q.adaptRole(text, r); changed != "" {
		return next, changed
	}
	names := sortedNames(r.Options)
	if len(r.Stop) > 0 {
		names = append(names, "stop")
	}
	for _, name := range names {
		if !slices.Contains(q.dropped, name) && !isLimit(name) && mentions(text, strings.ToLower(name)) {
			q.dropped = append(slices.Clone(q.dropped), name)
			return q, "without " + name
		}
	}
	return q, ""
}

// aboutForm are the words of a complaint about response_format.
var aboutForm = []string{"response_format", "json_schema", "json_object", "json mode", "structured output", "structured outputs", "grammar"}

// adaptForm gives the form of the reply up that was asked for; the next looser one follows. A complaint that the prompt
// does not mention JSON is none about the form, and one about a schema's keywords is none about schemas.
func (q quirks) adaptForm(text string, r *loop.ModelRequest) (quirks, string) {
	about := slices.ContainsFunc(aboutForm, func(word string) bool { return mentions(text, word) })
	if !about || strings.Contains(text, "must contain the word") {
		return q, ""
	}
	switch formOf(r, &q) {
	case formSchema:
		if badSchema.MatchString(text) {
			sums := append(slices.Clone(q.badSchemas), schemaSum(r))
			q.badSchemas = sums[max(0, len(sums)-maxBadSchemas):]
			return q, "this JSON Schema not as response_format"
		}
		q.noSchema = true
		return q, "without response_format json_schema"
	case formObject:
		q.noObject = true
		return q, "without response_format json_object"
	}
	return q, ""
}

// badSchema matches how endpoints say that they do not like a schema, as opposed to schemas.
var badSchema = regexp.MustCompile(`invalid.{0,20}\bschema|\bschema is (invalid|not valid|too)|\bschema.{0,40}(keyword|additionalproperties|too (large|complex|deep))`)

// maxBadSchemas bounds what is remembered of schemas: they come with the tools of tasks.
const maxBadSchemas = 100

// adaptStream does without the count of tokens at the end of a stream, or without streams.
func (q quirks) adaptStream(text string, r *loop.ModelRequest) (quirks, string) {
	switch {
	case r.Tokens == nil || q.noStream:
	case !q.noUsage && (mentions(text, "stream_options") || mentions(text, "include_usage")):
		q.noUsage = true
		return q, "without stream_options"
	case mentions(text, "stream") || mentions(text, "streaming"):
		q.noStream = true
		return q, "without streaming"
	}
	return q, ""
}

// adaptLimit sends the limit of output tokens under its other name.
func (q quirks) adaptLimit(text string, r *loop.ModelRequest, limit int) (quirks, string) {
	wanted := limitName(r.Options)
	if _, set := r.Options[wanted]; (!set && limit == 0) || q.limit != "" || !mentions(text, wanted) {
		return q, ""
	}
	q.limit = maxCompletionTokens
	if wanted == maxCompletionTokens {
		q.limit = maxTokens
	}
	return q, q.limit + " in place of " + wanted
}

// adaptRole moves system messages to the role developer, or, where that is refused too or the endpoint only says that
// it has no system role, to the user's.
func (q quirks) adaptRole(text string, r *loop.ModelRequest) (quirks, string) {
	system := slices.ContainsFunc(r.Messages, func(m loop.Message) bool { return m.Role == openai.ChatMessageRoleSystem })
	if !system || q.systemRole == openai.ChatMessageRoleUser || !mentions(text, "role") && !mentions(text, "roles") {
		return q, ""
	}
	switch {
	case q.systemRole == openai.ChatMessageRoleDeveloper:
		if !mentions(text, "developer") && !mentions(text, "role") {
			return q, ""
		}
		q.systemRole = openai.ChatMessageRoleUser
	case !mentions(text, "system"):
		return q, ""
	case strings.Contains(text, "messages[") || mentions(text, "developer"):
		q.systemRole = openai.ChatMessageRoleDeveloper
	default:
		q.systemRole = openai.ChatMessageRoleUser
	}
	return q, "system messages as " + q.systemRole
}

// mentions reports whether the name stands in the text by itself, not as part of a longer name.
func mentions(text, name string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(name)
		if (start == 0 || !nameByte(text[start-1])) && (end == len(text) || !nameByte(text[end])) {
			return true
		}
		from = end
	}
}

func nameByte(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z'
}

// maxQuirks bounds the book: names of models come from tasks.
const maxQuirks = 1000

// quirkBook remembers the quirks of the models of one endpoint for as long as the process lives.
type quirkBook struct {
	mu sync.Mutex
	m  map[string]quirks
}

func (b *quirkBook) of(model string) quirks {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.m[model]
}

func (b *quirkBook) learn(model string, q quirks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m == nil || len(b.m) >= maxQuirks {
		b.m = map[string]quirks{} // learnt again at the cost of one refusal each
	}
	b.m[model] = q
}
