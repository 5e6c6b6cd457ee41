package memory

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"ratchet/internal/loop"
)

// maxLearned is how many facts one conversation may add or replace: a conversation that yields more was not judged.
const maxLearned = 10

// maxConversation bounds in bytes how much of a conversation is looked at; its end counts.
const maxConversation = 24_000

// Said is one message of a conversation.
type Said struct {
	Role string // user or assistant
	Text string
}

// Learned is what a model found worth keeping, checked.
type Learned struct {
	Add     []NewFact
	Replace map[string]NewFact // by the id of the fact that it takes the place of
	Refused int                // facts that were left out because they look like credentials
}

//go:embed learn.tmpl
var learnText string

var learnTemplate = template.Must(template.New("learn").Parse(learnText))

// LearnPrompt asks a model for the durable facts in a conversation. Known are the facts nearest to it, which the model
// may replace. What was said and what is known is data: it is sent as JSON, in a message of its own.
func LearnPrompt(conversation []Said, known []Fact) []loop.Message {
	var system strings.Builder
	if err := learnTemplate.Execute(&system, struct {
		Kinds        string
		Most, Length int
	}{"preference, project, decision, person, " + OtherKind, maxLearned, MaxText}); err != nil {
		panic(fmt.Sprintf("memory: learning prompt: %v", err)) // the template is ours and has no other input
	}
	type turn struct {
		Role string `json:"role"`
		Text string `json:"text"`
	}
	type fact struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	data := struct {
		Known        []fact `json:"known_facts"`
		Conversation []turn `json:"conversation"`
	}{Known: []fact{}, Conversation: []turn{}}
	for _, f := range known {
		data.Known = append(data.Known, fact{f.ID, f.Text})
	}
	for room, i := maxConversation, len(conversation)-1; i >= 0 && room > 0; i-- {
		text := clipFront(conversation[i].Text, room)
		room -= len(text)
		data.Conversation = slices.Insert(data.Conversation, 0, turn{conversation[i].Role, text})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		panic(fmt.Sprintf("memory: learning prompt: %v", err)) // texts and lists of them can always be written
	}
	return []loop.Message{{Role: "system", Content: system.String()}, {Role: "user", Content: b.String()}}
}

// ParseLearned checks a model's reply `{"add": [{"text", "kind"}, …], "replace": {"<id>": "…"}}`. Both members may be
// missing or empty; a fact may be its text alone. Only known facts can be replaced. Problems are written for the model;
// where there are any, nothing is learned. What looks like a credential is left out and counted, and is no problem.
func ParseLearned(reply string, known []Fact, run string) (l Learned, problems []string) {
	object, err := oneObject(reply)
	if err != nil {
		return l, []string{err.Error() + `; send one JSON object: {"add": [], "replace": {}}`}
	}
	var said struct {
		Add     []saidFact          `json:"add"`
		Replace map[string]saidFact `json:"replace"`
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&said); err != nil {
		return l, []string{fmt.Sprintf(`the object is not of the form {"add": [{"text": "…", "kind": "…"}], "replace": {"<id>": "…"}}: %v`, err)}
	}
	if n := len(said.Add) + len(said.Replace); n > maxLearned {
		return l, []string{fmt.Sprintf("%d facts are too many: send the %d that matter most", n, maxLearned)}
	}
	check := func(where string, s saidFact) (f NewFact, ok bool) {
		f, err := NewFact{Text: s.Text, Kind: s.Kind, SourceRun: run}.Check()
		if err != nil {
			problems = append(problems, where+": "+err.Error())
			return f, false
		}
		if _, secret := Secret(f.Text); secret {
			l.Refused++
			return f, false
		}
		return f, true
	}
	for i, s := range said.Add {
		if f, ok := check(fmt.Sprintf("add[%d]", i), s); ok {
			l.Add = append(l.Add, f)
		}
	}
	l.Replace = map[string]NewFact{}
	for id, s := range said.Replace {
		i := slices.IndexFunc(known, func(f Fact) bool { return f.ID == id })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("replace: %q is the id of no known fact; use add, or an id of known_facts", id))
			continue
		}
		if s.Kind == "" {
			s.Kind = known[i].Kind
		}
		if f, ok := check("replace["+id+"]", s); ok {
			l.Replace[id] = f
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return Learned{}, problems
	}
	return l, nil
}

// saidFact is a fact as a model writes it: an object, or its text alone.
type saidFact struct{ Text, Kind string }

func (s *saidFact) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &s.Text); err == nil {
		return nil
	}
	var object struct {
		Text string `json:"text"`
		Kind string `json:"kind"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&object); err != nil {
		return fmt.Errorf("a fact is a text, or an object of text and kind: %w", err)
	}
	s.Text, s.Kind = object.Text, strings.ToLower(strings.TrimSpace(object.Kind))
	return nil
}

var thinking = regexp.MustCompile(`(?s)^\s*<(think|thinking|reasoning|analysis)>.*?</(think|thinking|reasoning|analysis)>`)

// oneObject finds the JSON object of a reply: a reasoning block before it, a fence and prose around it are forgiven.
func oneObject(reply string) ([]byte, error) {
	reply = thinking.ReplaceAllString(reply, "")
	from := strings.IndexByte(reply, '{')
	if from < 0 {
		return nil, errors.New("the reply holds no JSON object")
	}
	if strings.Contains(reply[:from], "[") {
		return nil, errors.New("the reply is a list, not an object")
	}
	var object json.RawMessage
	dec := json.NewDecoder(strings.NewReader(reply[from:]))
	if err := dec.Decode(&object); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("the reply is cut off")
		}
		return nil, fmt.Errorf("the reply is no valid JSON: %w", err)
	}
	if strings.Contains(reply[from+int(dec.InputOffset()):], "{") {
		return nil, errors.New("the reply holds several objects")
	}
	return object, nil
}
