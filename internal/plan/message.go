package plan

import "encoding/json"

// Type is the type of a model's message.
type Type string

// The types of message of the plan_react strategy.
const (
	CreatePlan    Type = "create_plan"
	UpdatePlan    Type = "update_plan"
	ToolCall      Type = "tool_call"
	ReasoningStep Type = "reasoning_step"
	AskUser       Type = "ask_user"
	FinalAnswer   Type = "final_answer"
)

// types lists them in the order in which corrections name them.
var types = []Type{CreatePlan, UpdatePlan, ToolCall, ReasoningStep, AskUser, FinalAnswer}

// Message is what a model said, after reading and before checking.
type Message struct {
	Type         Type
	Thought      string
	Plan         Plan
	Calls        []Call          // tool_call: one, or several to be run in parallel
	Question     string          // ask_user
	AnswerSchema json.RawMessage // ask_user; nil where there is none
	Answer       string          // final_answer
}

// Call is a tool call as the model wrote it. Arguments is a JSON object with every digit as written.
type Call struct {
	Name      string
	Arguments json.RawMessage
}

// Violation is what is wrong with a reply. Its text is the correction that the model gets: what is wrong, where, and
// what to send instead.
type Violation struct {
	Rule string // a stable name, for tests and metrics: not_json, unknown_type, first_not_create …
	Text string
	// Problems is everything that is wrong, where a check looks for all of it at once; Rule is then that of the first, and
	// Text sums them up. Nil where the check stops at the first problem.
	Problems []Problem
}

// Problem is one of several things that are wrong with a reply.
type Problem struct {
	Rule string // as in [Violation]
	Text string // what is wrong, where
}

// Error returns the correction.
func (v *Violation) Error() string { return v.Text }

// Rules are the bounds a message is checked against.
type Rules struct {
	MinSteps int // least number of steps in a created plan
	// Tools lists the names of the tools the run may use, for corrections.
	Tools []string
	// Arguments checks a call's arguments against the tool's JSON Schema and returns them as they are to be used (after
	// lossless coercions). known is false where the run has no such tool; problems lists every violation. It must be set.
	Arguments func(tool string, args json.RawMessage) (checked json.RawMessage, problems []string, known bool)
}
