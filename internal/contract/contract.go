// Package contract derives the machine-readable forms of the wire contract from the Go types that read and write it: a JSON
// Schema for each message, and an AsyncAPI document that says on which subjects they go. docs/contract holds the result.
package contract

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// Message is one kind of message of the contract.
type Message struct {
	Name  string // of its schema's file, without .schema.json
	Title string
	Type  reflect.Type
	// Required are the fields that must be there; nil: those that a worker always writes.
	Required []string
}

// Events are the data of all events, by the name of their type.
func Events() []Message {
	all := []loop.Data{
		loop.Accepted{},
		loop.Facts{},
		loop.Plan{},
		loop.Thought{},
		loop.Call{},
		loop.Rejection{},
		loop.Reflection{},
		loop.Started{},
		loop.Observation{},
		loop.Question{},
		loop.Reply{},
		loop.Note{},
		loop.Control{},
		loop.Timeout{},
		loop.Wait{},
		loop.Child{},
		loop.Summary{},
		loop.Answer{},
		loop.Failed{},
		loop.Cancelled{},
	}
	messages := make([]Message, len(all))
	for i, data := range all {
		name := loop.Event{Data: data}.Type()
		messages[i] = Message{Name: "event." + name, Title: name, Type: reflect.TypeOf(data)}
	}
	return messages
}

// Inbox are the messages that others publish.
func Inbox() []Message {
	return []Message{
		{Name: "task", Title: "Task", Type: reflect.TypeFor[loop.Task](), Required: []string{"goal"}},
		{Name: "reply", Title: "Reply", Type: reflect.TypeFor[loop.Reply](), Required: []string{}},
		{Name: "control", Title: "Control", Type: reflect.TypeFor[loop.Control](), Required: []string{"op"}},
	}
}

// State is the state of a run.
func State() Message {
	return Message{Name: "state", Title: "State of a run", Type: reflect.TypeFor[loop.Head]()}
}

// Operation is one operation of the request/reply API.
type Operation struct {
	Name, Summary string
	Request       Message
	Answers       []Message // one of them
}

// Operations are those of the API.
func Operations() []Operation {
	op := func(name, summary string, request, answer reflect.Type, required ...string) Operation {
		return Operation{
			name, summary,
			Message{Name: "api." + name + ".request", Title: name + " request", Type: request, Required: slices.Concat([]string{}, required)},
			[]Message{{Name: "api." + name + ".answer", Title: name + " answer", Type: answer}},
		}
	}
	get := op("get", "The state of a run; with session, a conversation.", reflect.TypeFor[bus.GetRequest](), reflect.TypeFor[loop.Head]())
	get.Answers = append(get.Answers, Message{Name: "api.get.session", Title: "get answer for a session", Type: reflect.TypeFor[bus.SessionAnswer]()})
	return []Operation{
		op("submit", "Submit a task and learn that it is stored.", reflect.TypeFor[loop.Task](), reflect.TypeFor[bus.SubmitAnswer](), "goal"),
		op("reply", "Reply to a question and learn what came of it.", reflect.TypeFor[bus.ReplyRequest](), reflect.TypeFor[bus.Outcome](), "run"),
		op("control", "Cancel, pause or resume a run.", reflect.TypeFor[bus.ControlRequest](), reflect.TypeFor[bus.Outcome](), "run", "op"),
		get,
		op("list", "Runs in the order of their last change.", reflect.TypeFor[bus.ListRequest](), reflect.TypeFor[bus.ListAnswer]()),
		op("events", "Events as they are stored.", reflect.TypeFor[bus.EventsRequest](), reflect.TypeFor[bus.EventsAnswer]()),
		op("prompt", "What the model was sent at a turn of a run.", reflect.TypeFor[bus.PromptRequest](), reflect.TypeFor[loop.PromptView](), "run"),
		op("schedules", "Tasks that begin later or again and again: list or remove them.", reflect.TypeFor[bus.SchedulesRequest](), reflect.TypeFor[bus.SchedulesAnswer]()),
		op("facts", "Long-term facts of a user.", reflect.TypeFor[bus.FactsRequest](), reflect.TypeFor[bus.FactsAnswer](), "op"),
	}
}

// Files are the documents by file name. source is the internal folder of this project, whose comments become descriptions.
func Files(source fs.FS) (map[string][]byte, error) {
	words, err := readComments(source, "loop", "plan", "bus")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	messages := slices.Concat(Inbox(), []Message{State()})
	for _, op := range Operations() {
		messages = append(append(messages, op.Request), op.Answers...)
	}
	for _, m := range messages {
		if files[m.Name+schemaSuffix], err = schemaFile(words, m); err != nil {
			return nil, err
		}
	}
	for _, m := range Events() {
		if files[m.Name+schemaSuffix], err = eventFile(words, m); err != nil {
			return nil, err
		}
	}
	if files["asyncapi.yaml"], err = yaml.Marshal(asyncAPI()); err != nil {
		return nil, fmt.Errorf("write the AsyncAPI document: %w", err)
	}
	return files, nil
}

const schemaSuffix = ".schema.json"

func encode(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}

// Names are the file names of Files, sorted.
func Names(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }
