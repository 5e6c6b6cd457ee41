package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"ratchet/internal/loop"
	"ratchet/internal/plan"
)

const dialect = "https://json-schema.org/draft/2020-12/schema"

// schemaFile is the schema of a message as a file.
func schemaFile(words comments, m Message) ([]byte, error) {
	s, err := schemaOf(words, m)
	if err != nil {
		return nil, err
	}
	s.Schema, s.Title = dialect, m.Title
	return encode(s)
}

// eventFile is the schema of an event, its envelope included.
func eventFile(words comments, m Message) ([]byte, error) {
	data, err := schemaOf(words, m)
	if err != nil {
		return nil, err
	}
	if task := data.Properties["task"]; task != nil {
		loosen(task) // a journal may be older than a field
	}
	data.Properties["metadata"] = &jsonschema.Schema{Description: "the task's, as it was given"}
	text := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description}
	}
	one := func(value string) *jsonschema.Schema { return &jsonschema.Schema{Const: jsonschema.Ptr[any](value)} }
	least := 1.0
	return encode(&jsonschema.Schema{
		Schema: dialect, Title: "Event " + m.Title, Type: "object",
		Properties: map[string]*jsonschema.Schema{
			"specversion": one("1.0"), "type": one("agent." + m.Title), "datacontenttype": one("application/json"),
			"id":      text("tenant/run/n"),
			"source":  text("the worker that made it, as a URI reference"),
			"subject": text("the run"),
			"time":    {Type: "string", Format: "date-time", Description: "by that worker's clock"},
			"tenant":  text("who the run belongs to"),
			"n":       {Type: "integer", Minimum: &least, Description: "counts the run's events from 1 without gaps"},
			"cause":   text("the queue message that it came from: stream:sequence:nanoseconds"),
			"data":    data,
		},
		Required: []string{"specversion", "id", "type", "source", "subject", "time", "datacontenttype", "tenant", "n", "data"},
	})
}

func schemaOf(words comments, m Message) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(m.Type, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[loop.Duration]():   {Type: "string", Pattern: `^([0-9.]+(h|m|s|ms|us|µs|ns))+$|^0$`},
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[plan.Result]():     {Types: []string{"string", "null"}},
	}})
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", m.Name, err)
	}
	words.decorate(s, m.Type)
	if m.Required != nil {
		loosen(s)
		s.Required = m.Required
	}
	return s, nil
}

// loosen takes back what holds for messages that a worker writes: those of others may leave fields out.
func loosen(s *jsonschema.Schema) {
	s.Required = nil
	for _, p := range s.Properties {
		loosen(p)
	}
}

// decorate gives a schema the descriptions and the values that the source has for its type. Objects stay open: additions to
// the contract are free.
func (c comments) decorate(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		if values := c.enum(t); values != nil {
			s.Enum = values
		}
	case reflect.Slice:
		if s.Items != nil {
			c.decorate(s.Items, t.Elem())
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			c.decorate(s.AdditionalProperties, t.Elem())
		}
	case reflect.Struct:
		if s.Properties == nil {
			return // its JSON is no object
		}
		s.AdditionalProperties = nil
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			property := s.Properties[name]
			if property == nil || f.Anonymous {
				continue
			}
			property.Description = c.field(owner(t, f), f.Name)
			c.decorate(property, f.Type)
		}
	}
}

// owner is the struct that declares a field, which may be an embedded one.
func owner(t reflect.Type, f reflect.StructField) reflect.Type {
	for _, i := range f.Index[:len(f.Index)-1] {
		t = t.Field(i).Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}
