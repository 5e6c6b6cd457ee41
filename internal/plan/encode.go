package plan

// Encode returns the message as a model should have written it: one line of JSON with type, thought and plan first, then
// what the type has for itself. [Read] takes it back to the same message.
func (m Message) Encode() string {
	b := m.appendHead(make([]byte, 0, m.size()))
	return string(m.appendOwn(m.Plan.AppendJSON(append(b, `,"plan":`...))))
}

// AppendJSON appends the plan as a JSON list.
func (p Plan) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, s := range p {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(append(b, `{"step":`...), s.Step)
		b = AppendString(append(b, `,"status":`...), string(s.Status))
		b = append(s.Result.appendJSON(append(b, `,"result":`...)), '}')
	}
	return append(b, ']')
}

// EncodeMove is Encode without the plan. [ReadMove] takes it back to the same message.
func (m Message) EncodeMove() string {
	return string(m.appendOwn(m.appendHead(make([]byte, 0, m.size()))))
}

func (m Message) appendHead(b []byte) []byte {
	b = AppendString(append(b, `{"type":`...), string(m.Type))
	return AppendString(append(b, `,"thought":`...), m.Thought)
}

// appendOwn writes what the message's type has for itself, and the end.
func (m Message) appendOwn(b []byte) []byte {
	switch m.Type {
	case ToolCall:
		b = appendCalls(b, m.Calls)
	case AskUser:
		b = AppendString(append(b, `,"question":`...), m.Question)
		if m.AnswerSchema != nil {
			b = append(append(b, `,"answer_schema":`...), m.AnswerSchema...)
		}
	case FinalAnswer:
		b = AppendString(append(b, `,"answer":`...), m.Answer)
	case CreatePlan, UpdatePlan, ReasoningStep:
	}
	return append(b, '}')
}

func appendCalls(b []byte, calls []Call) []byte {
	if len(calls) == 1 {
		return appendCall(append(b, ','), calls[0])
	}
	b = append(b, `,"calls":[`...)
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendCall(append(b, '{'), c), '}')
	}
	return append(b, ']')
}

func appendCall(b []byte, c Call) []byte {
	b = AppendString(append(b, `"name":`...), c.Name)
	b = append(b, `,"arguments":`...)
	if c.Arguments == nil {
		return append(b, "{}"...)
	}
	return append(b, c.Arguments...)
}

// size is about how many bytes the message takes.
func (m Message) size() int {
	n := 128 + len(m.Thought) + len(m.Question) + len(m.AnswerSchema) + len(m.Answer)
	for _, s := range m.Plan {
		n += 64 + len(s.Step) + len(s.Result)
	}
	for _, c := range m.Calls {
		n += 64 + len(c.Name) + len(c.Arguments)
	}
	return n
}

// encodeString writes a JSON string without the HTML escapes of json.Marshal, which cost a model tokens.
func encodeString(s string) string { return string(AppendString(make([]byte, 0, len(s)+2), s)) }
