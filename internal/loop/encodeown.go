package loop

import (
	"bytes"
	"encoding/json"
	"strconv"

	"ratchet/internal/plan"
)

// The events that nearly all of a journal is made of write themselves: what encoding/json makes of them, byte for byte, without
// its reflection. A test holds the two together.

// appendData writes the data of an event; ok is false for types that are left to encoding/json.
func appendData(b []byte, d Data) (_ []byte, ok bool) {
	switch d := d.(type) {
	case Call:
		return d.append(b)
	case Observation:
		return d.append(b)
	case Thought:
		return d.append(b)
	case Plan, Accepted, Facts, Rejection, Reflection, Started, Question, Reply, Note, Control, Timeout, Wait, Child, Summary, Answer,
		Failed, Cancelled:
	}
	return b, false
}

func (d Call) append(b []byte) (_ []byte, ok bool) {
	if d.Calls == nil {
		return b, false
	}
	b = append(b, `{"calls":[`...)
	for i, c := range d.Calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = plan.AppendString(append(b, `{"call":`...), c.Call)
		b = plan.AppendString(append(b, `,"tool":`...), c.Tool)
		if b, ok = appendRaw(append(b, `,"arguments":`...), c.Arguments); !ok {
			return b, false
		}
		b = plan.AppendString(append(b, `,"effect":`...), string(c.Effect))
		if c.Step != "" {
			b = plan.AppendString(append(b, `,"step":`...), c.Step)
		}
		if len(c.Written) > 0 {
			if b, ok = appendRaw(append(b, `,"written":`...), c.Written); !ok {
				return b, false
			}
		}
		b = append(b, '}')
	}
	b = plan.AppendString(append(b, `],"thought":`...), d.Thought)
	b = appendPlan(append(b, `,"plan":`...), d.Plan)
	b, ok = d.Made.append(b)
	return append(b, '}'), ok
}

func (d Observation) append(b []byte) (_ []byte, ok bool) {
	b = plan.AppendString(append(b, `{"call":`...), d.Call)
	if d.Step != "" {
		b = plan.AppendString(append(b, `,"step":`...), d.Step)
	}
	b = plan.AppendString(append(b, `,"tool":`...), d.Tool)
	b = plan.AppendString(append(b, `,"status":`...), string(d.Status))
	if b, ok = appendRaw(append(b, `,"result":`...), d.Result); !ok {
		return b, false
	}
	if d.Truncated {
		b = append(b, `,"truncated":true`...)
	}
	if d.Blob != "" {
		b = plan.AppendString(append(b, `,"blob":`...), d.Blob)
	}
	b = strconv.AppendInt(append(b, `,"ms":`...), d.MS, 10)
	return append(b, '}'), true
}

func (d Thought) append(b []byte) (_ []byte, ok bool) {
	if d.Ask != nil {
		return b, false
	}
	b = plan.AppendString(append(b, `{"thought":`...), d.Thought)
	b = appendPlan(append(b, `,"plan":`...), d.Plan)
	if d.Answer != nil {
		b = plan.AppendString(append(b, `,"answer":`...), *d.Answer)
	}
	b, ok = d.Made.append(b)
	return append(b, '}'), ok
}

// append writes the fields behind others.
func (m Made) append(b []byte) (_ []byte, ok bool) {
	if m.Model != "" {
		b = plan.AppendString(append(b, `,"model":`...), m.Model)
	}
	if u := m.Usage; u != nil {
		b = strconv.AppendInt(append(b, `,"usage":{"prompt_tokens":`...), int64(u.PromptTokens), 10)
		b = strconv.AppendInt(append(b, `,"completion_tokens":`...), int64(u.CompletionTokens), 10)
		if u.CostUSD != 0 {
			cost, err := json.Marshal(u.CostUSD)
			if err != nil {
				return b, false
			}
			b = append(append(b, `,"cost_usd":`...), cost...)
		}
		b = append(b, '}')
	}
	for _, f := range [...]struct {
		name  string
		value uint64
	}{{`,"seen":`, m.Seen}, {`,"asked":`, m.Asked}} {
		if f.value != 0 {
			b = strconv.AppendUint(append(b, f.name...), f.value, 10)
		}
	}
	for _, f := range [...]struct {
		name  string
		value int64
	}{{`,"room":`, int64(m.Room)}, {`,"lost":`, int64(m.Lost)}, {`,"ms":`, m.MS}} {
		if f.value != 0 {
			b = strconv.AppendInt(append(b, f.name...), f.value, 10)
		}
	}
	return b, true
}

func appendPlan(b []byte, p plan.Plan) []byte {
	if p == nil {
		return append(b, "null"...)
	}
	return p.AppendJSON(b)
}

// appendRaw writes a JSON value as encoding/json does: compact. ok is false where it is none.
func appendRaw(b []byte, v json.RawMessage) (_ []byte, ok bool) {
	if v == nil {
		return append(b, "null"...), true
	}
	compact := bytes.NewBuffer(b)
	if json.Compact(compact, v) != nil {
		return b, false
	}
	return compact.Bytes(), true
}
