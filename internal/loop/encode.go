package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	eventTypePrefix = "agent."
	contentType     = "application/json"
)

// wireEvent is the CloudEvents 1.0 form of an Event. tenant, n and cause are extension attributes.
type wireEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Type            string          `json:"type"`
	Source          string          `json:"source"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Tenant          string          `json:"tenant"`
	N               uint64          `json:"n"`
	Cause           string          `json:"cause,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// ID is the event's CloudEvents id, tenant/run/n.
func (e Event) ID() string { return e.RunID.String() + "/" + strconv.FormatUint(e.N, 10) }

// Encode returns the event as a CloudEvents 1.0 JSON object. The envelope is written by hand: encoding/json would check
// and copy the data a second time.
func (e Event) Encode() ([]byte, error) {
	data, err := encodeJSON(e.Data)
	if err != nil {
		return nil, fmt.Errorf("encode %s of %s: %w", e.Type(), e.RunID, err)
	}
	out := make([]byte, 0, len(data)+len(e.Metadata)+384)
	member := func(name, value string) {
		out = append(out, `,"`+name+`":`...)
		out = appendText(out, value)
	}
	out = append(out, `{"specversion":"1.0"`...)
	member("id", e.ID())
	member("type", eventTypePrefix+e.Type())
	member("source", e.Source)
	member("subject", e.Run)
	member("time", e.Time.UTC().Format(time.RFC3339Nano))
	member("datacontenttype", contentType)
	member("tenant", e.Tenant)
	out = append(out, `,"n":`...)
	out = strconv.AppendUint(out, e.N, 10)
	if e.Cause != "" {
		member("cause", e.Cause)
	}
	out = append(out, `,"data":`...)
	out = append(out, data[:len(data)-1]...)
	if len(e.Metadata) > 0 {
		if len(data) > len("{}") {
			out = append(out, ',')
		}
		out = append(out, `"metadata":`...)
		out = append(out, e.Metadata...)
	}
	return append(out, "}}"...), nil
}

// appendText appends s as a JSON string. All that an envelope holds is plain, except perhaps a worker's name.
func appendText(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // a string can always be encoded
				panic(err)
			}
			return append(out, quoted...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

// encodeJSON is json.Marshal without the escaping of <, > and &, which only makes events harder to read.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeEvent reads what Encode wrote; the sequence is for the caller to set. An event of a type this program does not
// know gives an error that wraps ErrNewer; anything else that is no event of ours gives another error.
func DecodeEvent(encoded []byte) (Event, error) {
	var w wireEvent
	if err := json.Unmarshal(encoded, &w); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	name, ours := strings.CutPrefix(w.Type, eventTypePrefix)
	if w.SpecVersion != "1.0" || !ours || w.N == 0 || !ValidID(w.Tenant) || !ValidID(w.Subject) {
		return Event{}, fmt.Errorf("decode event: type %q, id %q is no event of a run", clip(w.Type, 80), clip(w.ID, 200))
	}
	data, err := decodeData(name, w.Data)
	if err != nil {
		return Event{}, fmt.Errorf("decode event %s: %w", clip(w.ID, 200), err)
	}
	e := Event{
		RunID: RunID{Tenant: w.Tenant, Run: w.Subject}, N: w.N, Time: w.Time, Source: w.Source, Cause: w.Cause, Data: data,
	}
	if bytes.Contains(w.Data, []byte(`"metadata":`)) {
		var m struct {
			Metadata json.RawMessage `json:"metadata"`
		}
		if err := json.Unmarshal(w.Data, &m); err == nil {
			e.Metadata = m.Metadata
		}
	}
	return e, nil
}

func decodeData(name string, data json.RawMessage) (Data, error) {
	decode, known := decoders[name]
	if !known {
		return nil, fmt.Errorf("event type %q: %w", clip(name, 80), ErrNewer)
	}
	return decode(data)
}

var decoders = map[string]func(json.RawMessage) (Data, error){
	Accepted{}.eventType():    decodeAs[Accepted],
	Facts{}.eventType():       decodeAs[Facts],
	Plan{}.eventType():        decodeAs[Plan],
	Thought{}.eventType():     decodeAs[Thought],
	Call{}.eventType():        decodeAs[Call],
	Rejection{}.eventType():   decodeAs[Rejection],
	Reflection{}.eventType():  decodeAs[Reflection],
	Started{}.eventType():     decodeAs[Started],
	Observation{}.eventType(): decodeAs[Observation],
	Question{}.eventType():    decodeAs[Question],
	Reply{}.eventType():       decodeAs[Reply],
	Note{}.eventType():        decodeAs[Note],
	Control{}.eventType():     decodeAs[Control],
	Timeout{}.eventType():     decodeAs[Timeout],
	Wait{}.eventType():        decodeAs[Wait],
	Child{}.eventType():       decodeAs[Child],
	Summary{}.eventType():     decodeAs[Summary],
	Answer{}.eventType():      decodeAs[Answer],
	Failed{}.eventType():      decodeAs[Failed],
	Cancelled{}.eventType():   decodeAs[Cancelled],
}

func decodeAs[D Data](data json.RawMessage) (Data, error) {
	var d D
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	return d, nil
}
