package loop

import (
	"encoding/json"
	"time"

	"ratchet/internal/plan"
)

// Event is one fact of a run and one message of its journal. What happened is in Data; the rest says to whom, when and
// by whose hand. On the wire it is a CloudEvents 1.0 JSON object, see [Event.Encode] and [DecodeEvent].
type Event struct {
	RunID
	N        uint64    // 1 for the first event of the run, without gaps
	Seq      uint64    // sequence in the journal's stream; 0 until it is stored
	Time     time.Time // by the clock of the worker that made it
	Source   string    // URI reference of that worker, such as /agent/worker/w1
	Cause    string    // the queue message it came from, <stream>:<sequence>:<unix nanoseconds>; empty for driver events
	Metadata json.RawMessage
	Data     Data
}

// Data is the sealed sum of all that can happen to a run. Its members are
//
//	Accepted Facts                                     how it began
//	Plan Thought Call Rejection Reflection             what the model said
//	Started Observation                                what tools did
//	Question Reply Note Control                        what people were asked and said
//	Timeout Wait Child Summary                         what time, providers and other runs did
//	Answer Failed Cancelled                            how it ended: exactly one of these, last
//
// A switch over them must be complete; a linter checks it.
//
//sumtype:decl
type Data interface{ eventType() string }

// Made is what every model-made event carries about the call that made it.
type Made struct {
	Model string `json:"model,omitempty"`
	Usage *Usage `json:"usage,omitempty"`
	Seen  uint64 `json:"seen,omitempty"` // n of the last event that the prompt contained
	// Asked is the n of the last event that was stored when the prompt was made, where it is neither Seen nor the one
	// before this event.
	Asked uint64 `json:"asked,omitempty"`
	Room  int    `json:"room,omitempty"` // bytes that the prompt was cut to, where it was
	Lost  int    `json:"lost,omitempty"` // tokens that a call cut off by a crash may have cost, estimated
	MS    int64  `json:"ms,omitempty"`   // how long the call took, milliseconds
}

// Usage counts tokens and money, of one call or of a whole run.
type Usage struct {
	PromptTokens     int     `json:"prompt_tokens"`
	CompletionTokens int     `json:"completion_tokens"`
	CostUSD          float64 `json:"cost_usd,omitempty"`
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.PromptTokens + v.PromptTokens, u.CompletionTokens + v.CompletionTokens, u.CostUSD + v.CostUSD}
}

// Total is the number of tokens, prompt and completion together.
func (u Usage) Total() int { return u.PromptTokens + u.CompletionTokens }

type (
	// Accepted begins a run: the whole task with its defaults, and what was offered to it.
	Accepted struct {
		Task      Task          `json:"task"`
		Tools     []OfferedTool `json:"tools"`
		Prompt    string        `json:"prompt"`              // version of the prompt texts
		Catalogue string        `json:"catalogue,omitempty"` // digest of what the tools said of themselves
		Schedule  string        `json:"schedule,omitempty"`  // id of the repeated task whose run this is
		RedriveOf string        `json:"redrive_of,omitempty"`
		// Of a child run: the run above, the call of it that this run carries out, and all runs above, the first one first.
		Parent     string   `json:"parent,omitempty"`
		ParentCall string   `json:"parent_call,omitempty"`
		Chain      []string `json:"chain,omitempty"`
		// Traceparent is the W3C trace context of whoever asked for the run; empty: they gave none.
		Traceparent string `json:"traceparent,omitempty"`
	}
	// OfferedTool pins a tool as it was when the run began.
	OfferedTool struct {
		Name    string `json:"name"`
		Digest  string `json:"digest"` // SHA-256 of the canonical JSON Schema, hexadecimal
		Effect  Effect `json:"effect"`
		Approve bool   `json:"approve,omitempty"`
		// Delegate says that a call of it is carried out by a child run.
		Delegate bool `json:"delegate,omitempty"`
	}
	// Facts is what long-term memory and the conversation so far have to say, fetched once.
	Facts struct {
		Facts    []Fact           `json:"facts"`
		History  []SessionMessage `json:"history,omitempty"`
		Summary  string           `json:"summary,omitempty"`  // of what was said in the session before History
		Degraded string           `json:"degraded,omitempty"` // why memory could not be asked
	}
	// Fact is one long-term fact with the score that memory gave it.
	Fact struct {
		Text  string  `json:"text"`
		Score float64 `json:"score"`
	}

	// Plan records a new or changed plan.
	Plan struct {
		Plan    plan.Plan `json:"plan"`
		DAG     plan.DAG  `json:"dag,omitempty"` // the same plan as plan_execute runs it; results are in observations
		Thought string    `json:"thought"`
		Created bool      `json:"created"`
		Made
	}
	// Thought records a reasoning step, or the model's wish to ask or to answer, which the next event carries out.
	Thought struct {
		Thought string    `json:"thought"`
		Plan    plan.Plan `json:"plan"`
		Ask     *Asking   `json:"ask,omitempty"`
		Answer  *string   `json:"answer,omitempty"`
		Made
	}
	// Asking is a question the model wants to put to a person.
	Asking struct {
		Question     string          `json:"question"`
		AnswerSchema json.RawMessage `json:"answer_schema,omitempty"`
	}
	// Call records tool calls the model asked for; each ends in one Observation.
	Call struct {
		Calls   []ToolCall `json:"calls"`
		Thought string     `json:"thought"`
		Plan    plan.Plan  `json:"plan"`
		Made
	}
	// ToolCall is one call with its id in the run.
	ToolCall struct {
		Call      string          `json:"call"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Effect    Effect          `json:"effect"`
		Step      string          `json:"step,omitempty"` // of the DAG
		// Written are the arguments as the model wrote them, where they were changed without loss to fit the schema.
		Written json.RawMessage `json:"written,omitempty"`
	}
	// Rejection records a reply that could not be used and what was wrong with it.
	Rejection struct {
		Error   string `json:"error"`
		Attempt int    `json:"attempt"`          // consecutive rejections, this one included
		Reply   string `json:"reply"`            // first 2 KiB of what the model said
		Repeat  string `json:"repeat,omitempty"` // fingerprint of the call that was refused because it leads nowhere
		Step    string `json:"step,omitempty"`   // of the DAG that the model was asked about
		Made
	}
	// Reflection is a critic's verdict, or what is learnt from a failure before the run is tried again.
	Reflection struct {
		Text  string `json:"text"`
		Done  bool   `json:"done"`
		Retry int    `json:"retry,omitempty"` // looks back on a failure, and the run is tried again for the nth time
		Made
	}

	// Started says that a once call is about to be sent; without an Observation after it, nobody knows whether it was.
	Started struct {
		Call string `json:"call"`
	}
	// Observation is the outcome of one call, or of a step of the DAG that was never called.
	Observation struct {
		Call      string          `json:"call"`           // empty: no call was made
		Step      string          `json:"step,omitempty"` // of the DAG, where no call was made
		Tool      string          `json:"tool"`
		Status    ObservedStatus  `json:"status"`
		Result    json.RawMessage `json:"result"` // any JSON value; an error's text for status error
		Truncated bool            `json:"truncated,omitempty"`
		Blob      string          `json:"blob,omitempty"` // object name of the whole result
		MS        int64           `json:"ms"`
	}

	// Question is put to a person; the run waits for a Reply or a Timeout.
	Question struct {
		Question        string          `json:"question"` // its id in the run: q1, q2 …
		Kind            QuestionKind    `json:"kind"`
		Text            string          `json:"text"`
		AnswerSchema    json.RawMessage `json:"answer_schema,omitempty"`
		Deadline        time.Time       `json:"deadline"`
		Call            string          `json:"call,omitempty"`
		Tool            string          `json:"tool,omitempty"`
		Arguments       json.RawMessage `json:"arguments,omitempty"`
		ArgumentsSHA256 string          `json:"arguments_sha256,omitempty"`
		Chain           []string        `json:"chain,omitempty"` // of a child run: the runs above, the first one first
	}
	// Reply is a person's answer to a question.
	Reply struct {
		Question  string          `json:"question"`
		Text      string          `json:"text,omitempty"`
		Value     json.RawMessage `json:"value,omitempty"`
		Approve   *bool           `json:"approve,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"` // edited arguments of an approval
		// ArgumentsSHA256 is that of the approved question, echoed.
		ArgumentsSHA256 string `json:"arguments_sha256,omitempty"`
		Remember        string `json:"remember,omitempty"` // glob of tools that need no further yes in this run
		Reason          string `json:"reason,omitempty"`
		By              string `json:"by,omitempty"`
	}
	// Note is what a person said while the run was working.
	Note struct {
		Text string `json:"text"`
		By   string `json:"by,omitempty"`
	}
	// Control is a person's or a service's order.
	Control struct {
		Op     ControlOp `json:"op"`
		Reason string    `json:"reason,omitempty"`
		By     string    `json:"by,omitempty"`
	}

	// Timeout says that a deadline passed.
	Timeout struct {
		What     TimeoutKind `json:"what"`
		Question string      `json:"question,omitempty"`
	}
	// Wait parks the run: for a time, for its turn in a session, or for a call whose outcome is unknown.
	Wait struct {
		Until   time.Time `json:"until,omitzero"` // zero: until it is woken
		Why     string    `json:"why"`
		Attempt int       `json:"attempt,omitempty"`
		Session bool      `json:"session,omitempty"` // it waits for its turn in its session
		Call    string    `json:"call,omitempty"`    // it waits to reconcile this call
	}
	// Child writes down that a child run is about to be begun, or that it has ended with a status.
	Child struct {
		Call   string `json:"call"`
		Run    string `json:"run"`
		Tokens int    `json:"tokens,omitempty"` // taken from the limit of the run above until the child has ended
		Status Status `json:"status,omitempty"`
		Usage  *Usage `json:"usage,omitempty"` // of the whole child run, once it has ended
		Lost   int    `json:"lost,omitempty"`  // tokens that calls of the child cut off by crashes may have cost
	}
	// Summary makes later prompts shorter: of the conversation up to event Upto the results of tools are shown in one line
	// each; or, where Each is set, with so many bytes each; or, where Whole is set, Text stands for all of it but what the
	// person said. A text that a model wrote says which.
	Summary struct {
		Upto  uint64 `json:"upto"`
		Text  string `json:"text"`
		Whole bool   `json:"whole,omitempty"`
		Each  int    `json:"each,omitempty"`
		Made
	}

	// Answer ends a run well. Chain, here and in the other ends, is of a child run: the runs above, the first one first.
	Answer struct {
		Answer string   `json:"answer"`
		Usage  Usage    `json:"usage"`
		Chain  []string `json:"chain,omitempty"`
	}
	// Failed ends a run that could not reach its goal.
	Failed struct {
		Reason  FailReason `json:"reason"`
		Message string     `json:"message"`
		Usage   Usage      `json:"usage"`
		Chain   []string   `json:"chain,omitempty"`
	}
	// Cancelled ends a run that somebody stopped.
	Cancelled struct {
		Reason string   `json:"reason,omitempty"`
		By     string   `json:"by,omitempty"`
		Chain  []string `json:"chain,omitempty"`
	}
)

// Effect says what a repeat of a tool call would do.
type Effect string

// The effects of tools. Once is the default where nothing says otherwise.
const (
	EffectRead       Effect = "read"
	EffectIdempotent Effect = "idempotent"
	EffectOnce       Effect = "once"
)

// ObservedStatus is how a call came out.
type ObservedStatus string

// The outcomes of a call.
const (
	ObservedOK        ObservedStatus = "ok"
	ObservedError     ObservedStatus = "error"
	ObservedUnknown   ObservedStatus = "unknown" // a once call that was started and whose outcome nobody knows
	ObservedCancelled ObservedStatus = "cancelled"
	ObservedSkipped   ObservedStatus = "skipped"
)

// QuestionKind says what a question wants.
type QuestionKind string

// The kinds of question.
const (
	KindAsk        QuestionKind = "ask"
	KindApproval   QuestionKind = "approval"
	KindEscalation QuestionKind = "escalation"
)

// ControlOp is an order.
type ControlOp string

// The orders.
const (
	OpCancel ControlOp = "cancel"
	OpPause  ControlOp = "pause"
	OpResume ControlOp = "resume"
)

// TimeoutKind says what was waited for.
type TimeoutKind string

// What a deadline can belong to.
const (
	TimeoutQuestion TimeoutKind = "question"
	TimeoutRun      TimeoutKind = "run"
	TimeoutWait     TimeoutKind = "wait"
)

// FailReason is the machine-readable cause of a failed run.
type FailReason string

// Why runs fail.
const (
	FailInvalidTask         FailReason = "invalid_task"
	FailRejectionsExhausted FailReason = "rejections_exhausted"
	FailStepsExhausted      FailReason = "steps_exhausted"
	FailTokensExhausted     FailReason = "tokens_exhausted"
	FailReplansExhausted    FailReason = "replans_exhausted"
	FailNoProgress          FailReason = "no_progress"
	FailTimeout             FailReason = "timeout"
	FailQuestionTimeout     FailReason = "question_timeout"
	FailModelError          FailReason = "model_error"
	FailPoisoned            FailReason = "poisoned"
)

// Status is where a run stands.
type Status string

// The statuses; the last three are final.
const (
	StatusRunning   Status = "running"
	StatusWaiting   Status = "waiting"
	StatusPaused    Status = "paused"
	StatusDone      Status = "done"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
)

// Final reports whether nothing can follow.
func (s Status) Final() bool { return s == StatusDone || s == StatusFailed || s == StatusCancelled }

func (Accepted) eventType() string    { return "accepted" }
func (Facts) eventType() string       { return "facts" }
func (Plan) eventType() string        { return "plan" }
func (Thought) eventType() string     { return "thought" }
func (Call) eventType() string        { return "call" }
func (Rejection) eventType() string   { return "rejection" }
func (Reflection) eventType() string  { return "reflection" }
func (Started) eventType() string     { return "started" }
func (Observation) eventType() string { return "observation" }
func (Question) eventType() string    { return "question" }
func (Reply) eventType() string       { return "reply" }
func (Note) eventType() string        { return "note" }
func (Control) eventType() string     { return "control" }
func (Timeout) eventType() string     { return "timeout" }
func (Wait) eventType() string        { return "wait" }
func (Child) eventType() string       { return "child" }
func (Summary) eventType() string     { return "summary" }
func (Answer) eventType() string      { return "answer" }
func (Failed) eventType() string      { return "failed" }
func (Cancelled) eventType() string   { return "cancelled" }

// Type returns the event's CloudEvents type without its prefix: observation for agent.observation.
func (e Event) Type() string { return e.Data.eventType() }

// Road names the subject an event goes out on.
type Road string

// The roads of the event feed.
const (
	RoadStep Road = "step" // working state
	RoadUser Road = "user" // what is meant for a person
)

// Road returns the road the event goes out on: user for question, answer, failed and cancelled, else step. How a child run
// ended is for the run above and not for a person: step.
func (e Event) Road() Road {
	var chain []string
	switch d := e.Data.(type) {
	case Question:
		return RoadUser
	case Answer:
		chain = d.Chain
	case Failed:
		chain = d.Chain
	case Cancelled:
		chain = d.Chain
	default:
		return RoadStep
	}
	if len(chain) > 0 {
		return RoadStep
	}
	return RoadUser
}

// Final reports whether the event ends its run.
func (e Event) Final() bool {
	switch e.Data.(type) {
	case Answer, Failed, Cancelled:
		return true
	default:
		return false
	}
}
