package telemetry

import (
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"ratchet/internal/loop"
)

// What spans say follows OpenTelemetry's semantic conventions for generative AI. Attributes of our own begin with ratchet.
const (
	keyTenant   = attribute.Key("ratchet.tenant")
	keyRun      = attribute.Key("ratchet.run")
	keyStatus   = attribute.Key("ratchet.status")
	keyEvents   = attribute.Key("ratchet.events")
	keyTurns    = attribute.Key("ratchet.turns")
	keyPurpose  = attribute.Key("ratchet.purpose")
	keyCost     = attribute.Key("ratchet.cost_usd")
	keyWorker   = attribute.Key("ratchet.worker")
	keyOutcome  = attribute.Key("ratchet.outcome")
	keyWaitsFor = attribute.Key("ratchet.waits_for")
	keyFrom     = attribute.Key("ratchet.taken_over_from")
	keyAttempt  = attribute.Key("ratchet.delivery")
	keyFacts    = attribute.Key("ratchet.facts")
)

// providers are known by the end of their host's name.
var providers = []struct {
	suffix string
	name   attribute.KeyValue
}{
	{"api.openai.com", semconv.GenAIProviderNameOpenAI},
	{"openai.azure.com", semconv.GenAIProviderNameAzureAIOpenAI},
	{"azure.com", semconv.GenAIProviderNameAzureAIInference},
	{"api.anthropic.com", semconv.GenAIProviderNameAnthropic},
	{"generativelanguage.googleapis.com", semconv.GenAIProviderNameGCPGemini},
	{"aiplatform.googleapis.com", semconv.GenAIProviderNameGCPVertexAI},
	{"amazonaws.com", semconv.GenAIProviderNameAWSBedrock},
	{"api.mistral.ai", semconv.GenAIProviderNameMistralAI},
	{"api.groq.com", semconv.GenAIProviderNameGroq},
	{"api.deepseek.com", semconv.GenAIProviderNameDeepseek},
	{"api.x.ai", semconv.GenAIProviderNameXAI},
	{"api.perplexity.ai", semconv.GenAIProviderNamePerplexity},
	{"api.cohere.com", semconv.GenAIProviderNameCohere},
}

// providerOf names who answers at a host. Whoever is not known speaks OpenAI's API, and the convention has no name for that.
func providerOf(host string) attribute.KeyValue {
	for _, p := range providers {
		if host == p.suffix || strings.HasSuffix(host, "."+p.suffix) {
			return p.name
		}
	}
	return semconv.GenAIProviderNameKey.String("openai_compatible")
}

// agentOf is the agent of a run: its strategy. A run whose task could not be accepted has none.
func agentOf(s *loop.State) string {
	if s.Task.Strategy == "" {
		return none
	}
	return s.Task.Strategy
}

func ofRun(id loop.RunID) []attribute.KeyValue {
	return []attribute.KeyValue{keyTenant.String(id.Tenant), keyRun.String(id.Run)}
}

func (t *tracer) describeRun(span trace.Span, s *loop.State) {
	span.SetAttributes(ofRun(s.RunID)...)
	span.SetAttributes(
		semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(agentOf(s)), keyStatus.String(string(s.Status())),
		keyEvents.Int64(int64(min(s.N, 1<<62))), keyTurns.Int(s.Turns), keyCost.Float64(s.Usage.CostUSD),
		semconv.GenAIUsageInputTokens(s.Usage.PromptTokens), semconv.GenAIUsageOutputTokens(s.Usage.CompletionTokens),
	)
	if s.Task.Session != "" {
		span.SetAttributes(semconv.GenAIConversationID(s.Task.Session))
	}
	if s.Task.Model != "" {
		span.SetAttributes(semconv.GenAIRequestModel(s.Task.Model))
	}
	answer := ""
	switch d := s.Ended.(type) {
	case loop.Answer:
		answer = d.Answer
	case loop.Failed:
		failed(span, string(d.Reason))
	default: // cancelled, which is no error
	}
	if t.content {
		span.SetAttributes(semconv.GenAIInputMessagesKey.String(messages(loop.Message{Role: "user", Content: s.Task.Goal})))
		if answer != "" {
			span.SetAttributes(semconv.GenAIOutputMessagesKey.String(messages(loop.Message{Role: "assistant", Content: answer})))
		}
	}
}

func driveAttributes(d loop.Driving) []attribute.KeyValue {
	attrs := append(ofRun(d.State.RunID), keyWorker.String(d.Worker), keyAttempt.Int64(int64(min(d.Attempt, 1<<62))))
	if d.From != "" {
		attrs = append(attrs, keyFrom.String(d.From))
	}
	return attrs
}

func describeDriven(span trace.Span, d loop.Driven) {
	span.SetAttributes(keyOutcome.String(string(d.Outcome)), keyEvents.Int64(int64(min(d.State.N, 1<<62))))
	switch s := d.State; {
	case d.Outcome == loop.DriveFailed, d.Outcome == loop.DriveLeaseLost:
		failed(span, string(d.Outcome))
	case d.Outcome != loop.DriveParked:
	case s.Question != nil:
		span.SetAttributes(keyWaitsFor.String(string(s.Question.Kind)))
	case s.Paused:
		span.SetAttributes(keyWaitsFor.String("resume"))
	case s.Wait != nil:
		span.SetAttributes(keyWaitsFor.String(waitsFor(*s.Wait)))
	}
}

// describeChat says what was asked and what came of it. Prompts and replies are in it only where that was asked for.
func (t *tracer) describeChat(span trace.Span, r loop.ModelRequest, asked string, reply loop.ModelReply, err error) {
	span.SetAttributes(ofRun(r.Run)...)
	span.SetAttributes(t.server...)
	span.SetAttributes(
		semconv.GenAIOperationNameChat, semconv.GenAIRequestModel(asked), keyPurpose.String(string(r.Purpose)),
		outputType(r), semconv.GenAIRequestStream(r.Tokens != nil),
	)
	span.SetAttributes(options(r.Options)...)
	if t.content {
		span.SetAttributes(semconv.GenAIInputMessagesKey.String(messages(r.Messages...)))
	}
	if err != nil {
		failed(span, causeOf(err))
		return
	}
	span.SetAttributes(
		semconv.GenAIResponseModel(reply.Model), semconv.GenAIResponseFinishReasons(finishReason(reply)),
		semconv.GenAIUsageInputTokens(reply.Usage.PromptTokens), semconv.GenAIUsageOutputTokens(reply.Usage.CompletionTokens),
	)
	if reply.Usage.CostUSD > 0 {
		span.SetAttributes(keyCost.Float64(reply.Usage.CostUSD))
	}
	if t.content {
		span.SetAttributes(semconv.GenAIOutputMessagesKey.String(replied(reply)))
	}
}

func outputType(r loop.ModelRequest) attribute.KeyValue {
	if r.JSON {
		return semconv.GenAIOutputTypeJSON
	}
	return semconv.GenAIOutputTypeText
}

func finishReason(r loop.ModelReply) string {
	switch {
	case r.Truncated:
		return "length"
	case len(r.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

// options are those of the request for which the convention has a name.
func options(given map[string]json.RawMessage) (attrs []attribute.KeyValue) {
	for name, key := range map[string]attribute.Key{
		"temperature": semconv.GenAIRequestTemperatureKey, "top_p": semconv.GenAIRequestTopPKey,
		"frequency_penalty": semconv.GenAIRequestFrequencyPenaltyKey, "presence_penalty": semconv.GenAIRequestPresencePenaltyKey,
	} {
		var value float64
		if json.Unmarshal(given[name], &value) == nil {
			attrs = append(attrs, key.Float64(value))
		}
	}
	for name, key := range map[string]attribute.Key{
		"max_tokens": semconv.GenAIRequestMaxTokensKey, "max_completion_tokens": semconv.GenAIRequestMaxTokensKey, "seed": semconv.GenAIRequestSeedKey,
	} {
		var value int
		if json.Unmarshal(given[name], &value) == nil {
			attrs = append(attrs, key.Int(value))
		}
	}
	return attrs
}

func (t *tracer) describeTool(span trace.Span, c loop.Invocation, out loop.Outcome) {
	span.SetAttributes(ofRun(c.Run)...)
	span.SetAttributes(
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(c.Tool), semconv.GenAIToolCallID(c.Call),
		semconv.GenAIToolType("function"), keyOutcome.String(string(out.Status)),
	)
	if out.Status != loop.ObservedOK {
		failed(span, string(out.Status))
	}
	if t.content {
		span.SetAttributes(semconv.GenAIToolCallArgumentsKey.String(string(c.Arguments)), semconv.GenAIToolCallResultKey.String(string(out.Result)))
	}
}

func (t *tracer) describeRecall(span trace.Span, query string, found int, err error) {
	span.SetAttributes(semconv.GenAIOperationNameRetrieval, semconv.GenAIDataSourceIDKey.String("facts"), keyFacts.Int(found))
	if err != nil {
		failed(span, "degraded")
	}
	if t.content {
		span.SetAttributes(semconv.GenAIRetrievalQueryText(query))
	}
}

// failed marks a span. It says what kind of failure it was and no more: a message may quote what was said.
func failed(span trace.Span, kind string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, kind)
}

type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
}

type said struct {
	Role   string `json:"role"`
	Parts  []part `json:"parts"`
	Finish string `json:"finish_reason,omitempty"`
}

// messages writes messages in the form of the convention.
func messages(list ...loop.Message) string {
	out := make([]said, len(list))
	for i, m := range list {
		out[i] = said{Role: m.Role, Parts: []part{{Type: "text", Content: m.Content}}}
	}
	return text(out)
}

func replied(r loop.ModelReply) string {
	out := said{Role: "assistant", Finish: finishReason(r)}
	if r.Text != "" {
		out.Parts = append(out.Parts, part{Type: "text", Content: r.Text})
	}
	for _, c := range r.Calls {
		out.Parts = append(out.Parts, part{Type: "tool_call", ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)})
	}
	return text([]said{out})
}

func text(list []said) string {
	encoded, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(encoded)
}
