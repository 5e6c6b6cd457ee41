package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"ratchet/internal/plan"
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
	if !ValidID(e.Tenant) || !ValidID(e.Run) {
		return nil, fmt.Errorf("encode %s of %q: that is no valid tenant and run id", e.Type(), e.RunID.String())
	}
	enc := encoders.Get().(*encoder)
	defer encoders.Put(enc)
	data, err := enc.data(e.Data)
	if err != nil {
		return nil, fmt.Errorf("encode %s of %s: %w", e.Type(), e.RunID, err)
	}
	out := make([]byte, 0, len(data)+len(e.Metadata)+len(e.Cause)+len(e.Source)+2*(len(e.Tenant)+len(e.Run))+256)
	out = append(out, `{"specversion":"1.0","id":"`...)
	out = append(append(append(append(out, e.Tenant...), '/'), e.Run...), '/')
	out = strconv.AppendUint(out, e.N, 10)
	out = append(append(out, `","type":"`+eventTypePrefix...), e.Type()...)
	out = plan.AppendString(append(out, `","source":`...), e.Source)
	out = append(append(out, `,"subject":"`...), e.Run...)
	out = e.Time.UTC().AppendFormat(append(out, `","time":"`...), time.RFC3339Nano)
	out = append(append(out, `","datacontenttype":"`+contentType+`","tenant":"`...), e.Tenant...)
	out = strconv.AppendUint(append(out, `","n":`...), e.N, 10)
	if e.Cause != "" {
		out = plan.AppendString(append(out, `,"cause":`...), e.Cause)
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

// encoder writes JSON without the escaping of <, > and &, which only makes events harder to read.
type encoder struct {
	text bytes.Buffer
	json *json.Encoder
}

// maxKept is the size in bytes of the largest buffer that is kept for another event.
const maxKept = 64 << 10

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.text)
	e.json.SetEscapeHTML(false)
	return e
}}

func (e *encoder) reset() {
	if e.text.Cap() > maxKept {
		e.text = bytes.Buffer{}
	}
	e.text.Reset()
}

// encode returns v as JSON, good until the encoder is used again.
func (e *encoder) encode(v any) ([]byte, error) {
	e.reset()
	if err := e.json.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(e.text.Bytes(), []byte("\n")), nil
}

// data returns the data of an event as JSON, good until the encoder is used again.
func (e *encoder) data(d Data) ([]byte, error) {
	e.reset()
	if b, ok := appendData(e.text.AvailableBuffer(), d); ok {
		e.text.Write(b) // in place, or keeps the larger buffer
		return b, nil
	}
	return e.encode(d)
}

// encodeJSON is json.Marshal as events are written.
func encodeJSON(v any) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	text, err := e.encode(v)
	return bytes.Clone(text), err
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
