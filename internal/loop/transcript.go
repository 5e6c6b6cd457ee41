package loop

import (
	"fmt"
	"strings"
)

// entry is one message of the conversation as it came, before neighbours of one role are joined.
type entry struct {
	Message
	n     uint64 // of the event it came from
	kind  entryKind
	short string // the one line it becomes when it is compacted; empty where there is none
}

type entryKind int

const (
	fromModel  entryKind = iota // what the model said
	fromWorker                  // what the worker answered
	fromTool                    // the outcome of a call
	fromPerson                  // what a person said, and what an earlier attempt has taught; never left out
	fromDigest                  // stands for turns that were left out
)

// add puts entries at the end of the conversation. It keeps two forms: the entries for compaction, and the joined messages,
// so that a prompt is made without joining all of it anew.
func (s *State) add(entries ...entry) {
	for _, e := range entries {
		s.entries = append(s.entries, e)
		s.Transcript = join(s.Transcript, e.Message)
	}
}

// hear adds what the strategy makes of an event.
func (s *State) hear(e Event, messages []Message) {
	for _, m := range messages {
		added := entry{Message: m, n: e.N, kind: fromWorker}
		switch d := e.Data.(type) {
		case Reply, Timeout: // a timeout stands for what the person did not say
			added.kind = fromPerson
		case Observation:
			if s.dag.steps == nil { // else the message is about the plan and not about this call
				added.kind = fromTool
				added.short = s.shortened(d, m.Content)
			}
		default: // the worker's own words
		}
		if m.Role == "assistant" {
			added.kind = fromModel
		}
		s.add(added)
	}
}

// Bounds of the line that a compacted result becomes, in bytes.
const (
	shortArguments = 100
	shortResult    = 200
)

// shortened is the line that an outcome becomes, empty where that saves nothing. What the tool said is in quotes, escaped, so
// that it can't end them.
func (s *State) shortened(d Observation, shown string) string {
	line := "[call " + d.Call + " " + d.Tool
	if s.lastCall.Call == d.Call && len(s.lastCall.Arguments) > 0 {
		line += " " + clip(strings.Join(strings.Fields(string(s.lastCall.Arguments)), " "), shortArguments)
	}
	line += ": " + string(d.Status)
	_, readable := s.offered(resultTool)
	text := jsonText(d.Result)
	head := clip(text, shortResult)
	quoted, err := encodeJSON(head)
	switch {
	case err != nil:
		line += ", compacted]"
	case head == text && !d.Truncated:
		line += ", data: " + string(quoted) + "]"
	case d.Blob != "" && readable:
		line += fmt.Sprintf(", compacted; %s shows it]", resultTool)
	default:
		line += fmt.Sprintf(", %d bytes, compacted; data, the beginning: %s]", len(d.Result), quoted)
	}
	if strings.HasPrefix(shown, reactMark) {
		line = reactMark + line
	}
	if len(line) >= len(shown) {
		return ""
	}
	return line
}

// resultTool is the tool that reads stored results.
const resultTool = "read_result"

// reactMark begins the worker's messages where the conversation is in the words of react.
const reactMark = "Observation: "

// promptBytes is the size of the text of messages.
func promptBytes(messages []Message) int {
	size := 0
	for _, m := range messages {
		size += len(m.Content)
	}
	return size
}
