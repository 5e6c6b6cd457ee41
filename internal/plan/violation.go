package plan

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The rules a reply can break, as they stand in [Violation.Rule]. The names are stable: metrics count them.
const (
	RuleEmpty         = "empty"          // nothing but white space
	RuleTooLarge      = "too_large"      // longer than MaxReply
	RuleInvalidUTF8   = "invalid_utf8"   // bytes that are no text
	RuleOnlyReasoning = "only_reasoning" // a reasoning block that never ends
	RuleNoObject      = "no_object"      // text without an object in it
	RuleTruncated     = "truncated"      // the text ends inside the object
	RuleNotJSON       = "not_json"       // something that looks like an object but breaks JSON's grammar
	RuleTooDeep       = "too_deep"       // nested deeper than MaxDepth
	RuleDuplicateKey  = "duplicate_key"  // one object has a key twice
	RuleTwoObjects    = "two_objects"    // more than one object
	RuleNotObject     = "not_object"     // a list, a string or another value where the object belongs
	RuleMissingField  = "missing_field"  // a field every message needs is not there
	RuleWrongType     = "wrong_type"     // a field holds another kind of value than it should
	RuleUnknownType   = "unknown_type"   // type is none of the six
	RuleForeignField  = "foreign_field"  // a field that belongs to another type of message

	RuleFirstNotCreate = "first_not_create" // the run has no plan and the message is no create_plan
	RuleSecondCreate   = "second_create"    // the run has a plan already
	RuleMinSteps       = "min_steps"        // too few steps in a created plan
	RuleNotPending     = "not_pending"      // a created plan has a step that is not pending
	RuleEmptyPlan      = "empty_plan"       // no steps
	RuleStepText       = "step_text"        // a step without text
	RuleStepStatus     = "step_status"      // a status that is none of the four
	RuleStepResult     = "step_result"      // a closed step without a result
	RuleStepOrder      = "step_order"       // an open step before a closed one
	RuleInProgress     = "in_progress"      // two steps in progress, or not the first open one
	RuleDoneChanged    = "done_changed"     // a done step was changed, moved or left out
	RuleNoOpenStep     = "no_open_step"     // the type needs an open step
	RuleOpenSteps      = "open_steps"       // final_answer with open steps
	RuleNothingClosed  = "nothing_closed"   // reasoning_step that closes no step
	RuleBlankAnswer    = "blank_answer"     // final_answer without text
	RuleBlankQuestion  = "blank_question"   // ask_user without text
	RuleAnswerSchema   = "answer_schema"    // answer_schema is no object
	RuleNoCall         = "no_call"          // tool_call names no tool
	RuleNameAndCalls   = "name_and_calls"   // tool_call has both forms at once
	RuleTooManyCalls   = "too_many_calls"   // more than MaxCalls
	RuleUnknownTool    = "unknown_tool"     // no such tool in this run
	RuleArguments      = "arguments"        // arguments are no object, or break the tool's schema

	RuleTooManySteps = "too_many_steps"  // more steps than a plan may have
	RuleStepID       = "step_id"         // a step without an id, or with one that references can't name
	RuleDuplicateID  = "duplicate_id"    // two steps with one id
	RuleStepDone     = "step_done"       // a new plan gives the id of a step that stays to another step
	RuleNoTool       = "no_tool"         // a step names no tool
	RuleDependency   = "dependency"      // a step waits for one that does not exist
	RuleSelf         = "self_dependency" // a step waits for itself
	RuleCycle        = "cycle"           // steps wait for each other
	RuleReference    = "reference"       // a reference to a step that does not exist or does not come before
	RuleUnknownVar   = "unknown_var"     // a reference to a session value that the task does not have
	RuleOnce         = "once"            // a tool in more steps than it may be called
	RuleOpenField    = "open_field"      // an open field that the tool does not have
	RuleFillField    = "fill_field"      // a fill without an open field, or with another one
	RuleNoMove       = "no_move"         // neither an action nor a final answer
	RuleTwoMoves     = "two_moves"       // several actions, or an action and a final answer
	RuleActionForm   = "action_form"     // an action that is not written in one of the two forms
	RuleVerdict      = "verdict"         // a verdict without done, or that says neither done nor what to do
)

// Closing ends every correction.
const closing = "Return exactly one JSON object and nothing else."

// stepShape is how corrections show a step.
const stepShape = `{"step": "…", "status": "pending", "result": null}`

// violate makes a Violation from sentences; the closing one is added.
func violate(rule, format string, args ...any) *Violation {
	return &Violation{Rule: rule, Text: fmt.Sprintf(format, args...) + " " + closing}
}

// place says where an offset is, for people and models: lines and columns count from 1, columns in characters.
func place(text string, at int) string {
	at = min(at, len(text))
	line := 1 + strings.Count(text[:at], "\n")
	column := 1 + utf8.RuneCountInString(text[strings.LastIndexByte(text[:at], '\n')+1:at])
	return fmt.Sprintf("at line %d, column %d", line, column)
}

// quote shows a bit of what the model wrote: enough to recognise it, too little to repeat it.
func quote(s string) string { return strconv.Quote(clip(s, 40)) }

// clip cuts text after n characters and marks the cut.
func clip(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// typeList names the types, for corrections.
func typeList() string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
