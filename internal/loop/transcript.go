package loop

import (
	"encoding/json"
	"fmt"
	"strings"
)

// entry is one message of the conversation as it came, before neighbours of one role are joined.
type entry struct {
	Message
	n    uint64 // of the event it came from
	kind entryKind
	line *line // of a tool's outcome: what it becomes when it is compacted; nil for all else
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
				added.line = s.lineOf(d, m.Content)
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

// line is the one line that an outcome becomes when it is compacted. Most never are, so it is written when it is asked for.
type line struct {
	outcome   Observation
	shown     string          // the whole message about it
	arguments json.RawMessage // of the call; empty where they are not known
	readable  bool            // there is a tool that reads stored results

	written bool
	text    string
}

func (s *State) lineOf(d Observation, shown string) *line {
	l := &line{outcome: d, shown: shown}
	if s.lastCall.Call == d.Call {
		l.arguments = s.lastCall.Arguments
	}
	_, l.readable = s.offered(resultTool)
	return l
}

// short is the line that an outcome becomes, empty where that saves nothing.
func (e entry) short() string {
	if e.line == nil {
		return ""
	}
	if !e.line.written {
		e.line.text, e.line.written = e.line.write(), true
	}
	return e.line.text
}

// write makes the line. What the tool said is in quotes, escaped, so that it can't end them.
func (l *line) write() string {
	d := l.outcome
	text := "[call " + d.Call + " " + d.Tool
	if len(l.arguments) > 0 {
		text += " " + clip(strings.Join(strings.Fields(string(l.arguments)), " "), shortArguments)
	}
	text += ": " + string(d.Status)
	result := jsonText(d.Result)
	head := clip(result, shortResult)
	quoted, err := encodeJSON(head)
	switch {
	case err != nil:
		text += ", compacted]"
	case head == result && !d.Truncated:
		text += ", data: " + string(quoted) + "]"
	case d.Blob != "" && l.readable:
		text += fmt.Sprintf(", compacted; %s shows it]", resultTool)
	default:
		text += fmt.Sprintf(", %d bytes, compacted; data, the beginning: %s]", len(d.Result), quoted)
	}
	if strings.HasPrefix(l.shown, reactMark) {
		text = reactMark + text
	}
	if len(text) >= len(l.shown) {
		return ""
	}
	return text
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
