package loop

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"ratchet/internal/plan"
)

// The replies of a strategy as JSON Schemas, for endpoints that hold a model to one. They say what the protocol says and
// what the run's tools want, as far as a schema can; the referee is the check of the reply all the same. Each is the same
// byte for byte as long as the tools are, since providers cache it as the beginning of the prompt. Properties stand in the
// order in which a model should write them.

// toolTexts keeps what is made of sets of tools, for all runs of a worker: the schemas of replies, and the prompts' first messages.
type toolTexts struct {
	mu      sync.Mutex
	schemas map[string]*ReplySchema
	systems map[string]string
}

// maxTexts bounds each of the two: tools that are narrowed by tasks make many sets.
const maxTexts = 512

func (t *toolTexts) schema(key string, build func() *ReplySchema) *ReplySchema {
	return kept(&t.mu, &t.schemas, key, build)
}

func (t *toolTexts) system(key string, build func() string) string {
	return kept(&t.mu, &t.systems, key, build)
}

// kept returns what was built for the key.
func kept[V any](mu *sync.Mutex, built *map[string]V, key string, build func() V) V {
	mu.Lock()
	defer mu.Unlock()
	v, known := (*built)[key]
	if !known {
		v = build()
		keep(built, maxTexts, key, v)
	}
	return v
}

// keep enters a value for a key. A map that has as many as it may begins anew.
func keep[V any](in *map[string]V, most int, key string, value V) {
	if *in == nil || len(*in) >= most {
		*in = map[string]V{}
	}
	(*in)[key] = value
}

// maxToolSchemas is how long the schemas of all tools together may be, in bytes, to go into that of a reply. They stand in
// the prompt already; beyond this the names of the tools have to do.
const maxToolSchemas = 16 << 10

// Pieces of schemas. What a message of another type has no use for is null.
const (
	stringOrNull = `{"type":["string","null"]}`
	planItems    = `{"type":"array","items":{"type":"object","properties":{"step":{"type":"string"},` +
		`"status":{"type":"string","enum":["pending","in_progress","done","blocked"]},"result":{"type":["string","null"]}},` +
		`"required":["step","status","result"],"additionalProperties":false}}`
	// A person is asked for one simple value where the schema has to be strict.
	simpleSchema = `{"anyOf":[{"type":"null"},{"type":"object","properties":{"type":{"type":"string",` +
		`"enum":["string","number","integer","boolean"]}},"required":["type"],"additionalProperties":false},` +
		`{"type":"object","properties":{"type":{"type":"string","enum":["string"]},"enum":{"type":"array","items":{"type":"string"}}},` +
		`"required":["type","enum"],"additionalProperties":false}]}`
	objectOrNull = `{"type":["object","null"]}`
)

// object writes the schema of an object with these properties, all of them required, given as name and schema in turn.
func object(properties ...string) string {
	var b, required strings.Builder
	for i := 0; i < len(properties); i += 2 {
		if i > 0 {
			b.WriteByte(',')
			required.WriteByte(',')
		}
		name := quoted(properties[i])
		b.WriteString(name + ":" + properties[i+1])
		required.WriteString(name)
	}
	return `{"type":"object","properties":{` + b.String() + `},"required":[` + required.String() + `],"additionalProperties":false}`
}

// oneOf writes the schema of a text that is one of these.
func oneOf[T ~string](values ...T) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = quoted(string(v))
	}
	return `{"type":"string","enum":[` + strings.Join(list, ",") + `]}`
}

func quoted(text string) string { return string(plan.AppendString(nil, text)) }

// key identifies the set of tools.
func (t Toolbox) key(kind string) string {
	if t.set != "" {
		return kind + " " + t.set
	}
	var b strings.Builder
	b.WriteString(kind)
	for _, s := range t.specs {
		b.WriteString("\x00" + s.Name + "\x00" + s.Digest)
	}
	return b.String()
}

// messageSchema is that of a plan_react message.
func (t Toolbox) messageSchema() *ReplySchema {
	return t.texts.schema(t.key("message"), func() *ReplySchema {
		calls, strict := t.callsSchema()
		answer := simpleSchema
		if !strict {
			answer = objectOrNull
		}
		return told("message", strict, object(
			"type", oneOf(plan.CreatePlan, plan.UpdatePlan, plan.ToolCall, plan.ReasoningStep, plan.AskUser, plan.FinalAnswer),
			"thought", `{"type":"string"}`, "plan", planItems, "calls", calls, "question", stringOrNull, "answer_schema", answer,
			"answer", stringOrNull))
	})
}

// moveSchema is that of a planner's move in plan_act_reflect: calls, or an answer.
func (t Toolbox) moveSchema() *ReplySchema {
	return t.texts.schema(t.key("move"), func() *ReplySchema {
		calls, strict := t.callsSchema()
		return told("move", strict, object("type", oneOf(plan.ToolCall, plan.FinalAnswer), "thought", `{"type":"string"}`, "calls", calls,
			"answer", stringOrNull))
	})
}

// dagSchema is that of a plan for plan_execute. Arguments may hold references in place of values, so nothing is said of them.
func (t Toolbox) dagSchema() *ReplySchema {
	return t.texts.schema(t.key("dag"), func() *ReplySchema {
		const texts = `{"type":"array","items":{"type":"string"}}`
		tool := `{"type":"string"}`
		if len(t.names) > 0 {
			tool = oneOf(t.names...)
		}
		step := object("id", `{"type":"string"}`, "tool", tool, "args", `{"type":"object"}`, "after", texts, "open", texts)
		return told("plan", false, object("type", oneOf(plan.CreatePlan), "thought", `{"type":"string"}`, "plan", `{"type":"array","items":`+step+`}`))
	})
}

var (
	answerSchema  = told("answer", true, object("type", oneOf(plan.FinalAnswer), "thought", `{"type":"string"}`, "answer", `{"type":"string"}`))
	verdictSchema = told("verdict", true, object("done", `{"type":"boolean"}`, "guidance", `{"type":"string"}`))
)

// told is a schema that the prompt tells in its own words.
func told(name string, strict bool, schema string) *ReplySchema {
	return &ReplySchema{Name: name, Schema: json.RawMessage(schema), Strict: strict, Told: true}
}

// callsSchema is that of a list of calls, or null; strict where the arguments of all tools have a strict form.
func (t Toolbox) callsSchema() (schema string, strict bool) {
	if len(t.specs) == 0 {
		return `{"type":"null"}`, true
	}
	size := 0
	for _, s := range t.specs {
		size += len(s.Schema)
	}
	if size > maxToolSchemas {
		return nullOrList(object("name", oneOf(t.names...), "arguments", `{"type":"object"}`)), false
	}
	calls := make([]string, len(t.specs))
	strict = true
	for i, s := range t.specs {
		args, ok := plan.StrictSchema(s.Schema)
		if strict = strict && ok; !strict {
			break
		}
		calls[i] = object("name", oneOf(s.Name), "arguments", string(args))
	}
	if !strict {
		for i, s := range t.specs {
			calls[i] = object("name", oneOf(s.Name), "arguments", embedded(s.Schema))
		}
	}
	if len(calls) == 1 {
		return nullOrList(calls[0]), strict
	}
	return nullOrList(`{"anyOf":[` + strings.Join(calls, ",") + `]}`), strict
}

func nullOrList(item string) string {
	return `{"anyOf":[{"type":"null"},{"type":"array","items":` + item + `}]}`
}

// embedded is a tool's schema as a part of another one. One that refers to its own parts can't be moved.
func embedded(schema json.RawMessage) string {
	var b bytes.Buffer
	for _, keyword := range []string{`"$ref"`, `"$dynamicRef"`, `"$id"`, `"$anchor"`} {
		if bytes.Contains(schema, []byte(keyword)) {
			return `{"type":"object"}`
		}
	}
	if len(schema) == 0 || json.Compact(&b, schema) != nil {
		return `{"type":"object"}`
	}
	return b.String()
}

// fillSchema is that of a fill: exactly the open fields of a tool, as its schema wants them.
func (t Toolbox) fillSchema(tool string, open []string) *ReplySchema {
	spec, _ := t.Spec(tool)
	return t.texts.schema("fill\x00"+tool+"\x00"+spec.Digest+"\x00"+strings.Join(open, "\x00"), func() *ReplySchema {
		var s struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		_ = json.Unmarshal(spec.Schema, &s) // without properties nothing is said of the fields but their names
		strict := true
		fields := make([]string, 0, 2*len(open))
		for _, name := range open {
			value, ok := plan.StrictSchema(s.Properties[name])
			if strict = strict && ok; !strict {
				break
			}
			fields = append(fields, name, string(value))
		}
		if !strict {
			fields = fields[:0]
			for _, name := range open {
				fields = append(fields, name, field(s.Properties[name]))
			}
		}
		return told("fill", strict, object("type", oneOf(plan.Fill), "fields", object(fields...)))
	})
}

func field(schema json.RawMessage) string {
	if text := embedded(schema); len(schema) > 0 && text != `{"type":"object"}` {
		return text
	}
	return `{}`
}
