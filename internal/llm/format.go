package llm

import (
	"encoding/json"
	"hash/fnv"
	"slices"

	openai "github.com/sashabaranov/go-openai"

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
func formOf(r loop.ModelRequest, q quirks) form {
	switch {
	case r.Schema != nil && !q.noSchema && !slices.Contains(q.badSchemas, schemaSum(r)):
		return formSchema
	case r.JSON && !q.noObject:
		return formObject
	}
	return formPlain
}

func schemaSum(r loop.ModelRequest) uint64 {
	h := fnv.New64a()
	h.Write(r.Schema.Schema)
	return h.Sum64()
}

func responseFormat(r loop.ModelRequest, form form) *openai.ChatCompletionResponseFormat {
	switch form {
	case formSchema:
		return &openai.ChatCompletionResponseFormat{
			Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
			JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: r.Schema.Name, Schema: r.Schema.Schema, Strict: r.Schema.Strict},
		}
	case formObject:
		return &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONObject}
	}
	return nil
}

// formInWords says in the prompt what neither it nor the endpoint is told: the schema. JSON mode demands the word JSON there.
func formInWords(r loop.ModelRequest, form form, saysJSON bool) string {
	switch {
	case r.Schema != nil && form != formSchema && !r.Schema.Told:
		return "\n\nReply with one JSON object that satisfies this JSON Schema:\n" + string(r.Schema.Schema)
	case r.JSON && !saysJSON:
		return "\n\nReply with one JSON object."
	}
	return ""
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
