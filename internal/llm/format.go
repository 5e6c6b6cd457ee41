package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"ratchet/internal/loop"
)

// form is how an endpoint is told that the reply must be a JSON object.
type form int

const (
	formPlain  form = iota // not at all
	formObject             // JSON mode: some object
	formSchema             // an object that satisfies a JSON Schema, strictly where that is possible
)

// formOf is the strictest form that the request wants and the model is not known to refuse.
func formOf(r *loop.ModelRequest, q *quirks) form {
	switch {
	case r.Schema != nil && !q.noSchema && (len(q.badSchemas) == 0 || !slices.Contains(q.badSchemas, schemaSum(r))):
		return formSchema
	case r.JSON && !q.noObject:
		return formObject
	}
	return formPlain
}

func schemaSum(r *loop.ModelRequest) uint64 {
	h := fnv.New64a()
	h.Write(r.Schema.Schema)
	return h.Sum64()
}

// write writes the member response_format, with a comma before it, where there is one.
func (f form) write(b *bytes.Buffer, schema *loop.ReplySchema) {
	switch f {
	case formPlain:
	case formObject:
		b.WriteString(`,"response_format":{"type":"json_object"}`)
	case formSchema:
		b.WriteString(`,"response_format":{"type":"json_schema","json_schema":{"name":`)
		writeText(b, schema.Name)
		b.WriteString(`,"schema":`)
		b.Write(schema.Schema)
		fmt.Fprintf(b, `,"strict":%t}}`, schema.Strict)
	}
}

// formInWords says in the prompt what neither it nor the endpoint is told: the schema. JSON mode demands the word JSON there.
func formInWords(r *loop.ModelRequest, form form) string {
	switch {
	case r.Schema != nil && form != formSchema && !r.Schema.Told:
		return "\n\nReply with one JSON object that satisfies this JSON Schema:\n" + string(r.Schema.Schema)
	case r.JSON && !slices.ContainsFunc(r.Messages, saysJSON):
		return "\n\nReply with one JSON object."
	}
	return ""
}

func saysJSON(m loop.Message) bool {
	return strings.Contains(m.Content, "JSON") || strings.Contains(m.Content, "json")
}

// toolList is the member tools of the request. It is not built from go-openai's types: that library refuses some models'
// requests with tools by itself, on the strength of a list of names.
func toolList(specs []loop.ToolSpec) []byte {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	list := make([]tool, 0, len(specs))
	for _, s := range specs {
		schema := s.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		list = append(list, tool{"function", function{s.Name, s.Description, schema}})
	}
	data, err := json.Marshal(list)
	if err != nil {
		panic(err) // schemas were checked when the tool was registered
	}
	return data
}
