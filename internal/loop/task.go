package loop

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// RunID names a run for ever: the tenant is the token of the subject the task came in on, the run is the task's id.
type RunID struct {
	Tenant string
	Run    string
}

// String returns tenant/run, the form used in event ids, idempotency keys and logs.
func (id RunID) String() string { return id.Tenant + "/" + id.Run }

// Task is what a service asks for, with the defaults filled in by [Task.withDefaults]. It is stored whole in the run's
// first event; the wire form is in docs/protocol.md.
type Task struct {
	Goal     string `json:"goal"`
	ID       string `json:"id,omitempty"`
	Session  string `json:"session,omitempty"`
	User     string `json:"user,omitempty"`
	Strategy string `json:"strategy,omitempty"`

	Model          string                     `json:"model,omitempty"`
	FallbackModels []string                   `json:"fallback_models,omitempty"`
	ModelOptions   map[string]json.RawMessage `json:"model_options,omitempty"`

	Tools   []string                   `json:"tools,omitempty"` // globs; nil: all that the worker offers
	Limits  Limits                     `json:"limits"`
	Ask     Ask                        `json:"ask"`
	Approve []string                   `json:"approve,omitempty"` // globs of tools that need a person's yes in this run
	Locked  *bool                      `json:"locked,omitempty"`
	Vars    map[string]json.RawMessage `json:"vars,omitempty"` // never shown to the model; at most 16 KiB
	Prompts map[string]string          `json:"prompts,omitempty"`

	OnBusy    string `json:"on_busy,omitempty"`
	Priority  string `json:"priority,omitempty"`
	NotBefore string `json:"not_before,omitempty"`
	Every     string `json:"every,omitempty"`
	Learn     *bool  `json:"learn,omitempty"`

	RetryWithReflection int             `json:"retry_with_reflection,omitempty"`
	Metadata            json.RawMessage `json:"metadata,omitempty"` // echoed in every event of the run; at most 4 KiB
}

// nativeTools is the name of the one model option that the worker keeps for itself: whether tools are offered to the model
// in the endpoint's own form, by the strategies that can do without it.
const nativeTools = "native_tools"

// offersTools reports whether the task wants native tool calls; otherwise is the strategy's default.
func (t Task) offersTools(otherwise bool) bool {
	var wanted bool
	if json.Unmarshal(t.ModelOptions[nativeTools], &wanted) != nil {
		return otherwise
	}
	return wanted
}

// endpointOptions are the model options without the worker's own.
func (t Task) endpointOptions() map[string]json.RawMessage {
	if _, ours := t.ModelOptions[nativeTools]; !ours {
		return t.ModelOptions
	}
	options := maps.Clone(t.ModelOptions)
	delete(options, nativeTools)
	return options
}

// Limits bound one run. They are part of its journal, so they survive restarts and crashes.
type Limits struct {
	MaxSteps      int      `json:"max_steps"`              // model turns, rejected ones included; 15
	MinPlanSteps  int      `json:"min_plan_steps"`         // 2
	MaxRejections int      `json:"max_rejections"`         // consecutive ones tolerated; 3
	MaxReplans    int      `json:"max_replans"`            // 3
	MaxIterations int      `json:"max_iterations"`         // 3
	MaxTokens     int      `json:"max_tokens"`             // prompt and completion together; 0: no limit
	MaxCostUSD    float64  `json:"max_cost_usd,omitempty"` // counts where the worker knows the model's price; 0: no limit
	MaxChildren   int      `json:"max_children"`           // child runs that the run may begin; 16
	MaxDepth      int      `json:"max_depth"`              // levels of child runs below the run; 2, in a child run what is left
	Timeout       Duration `json:"timeout"`                // time the run works; 10m
}

// Ask says what happens to a question that nobody answers.
type Ask struct {
	Timeout   Duration `json:"timeout"`           // 24h
	OnTimeout string   `json:"on_timeout"`        // fail, continue or default
	Default   string   `json:"default,omitempty"` // the text used with on_timeout: default
}

// Values of [Ask.OnTimeout].
const (
	AskFail     = "fail"
	AskContinue = "continue"
	AskDefault  = "default"
)

// Values of [Task.Priority].
const (
	PriorityHigh   = "high"
	PriorityNormal = "normal"
	PriorityLow    = "low"
)

// Values of [Task.OnBusy]: what becomes of a task whose session has a run going on.
const (
	BusyEnqueue   = "enqueue"   // it waits for its turn
	BusyReject    = "reject"    // it fails at once
	BusyInterrupt = "interrupt" // the others are cancelled, and what they did is shown to it
)

// Duration is a time.Duration that reads and writes text such as "10m" in JSON.
type Duration time.Duration

// MarshalText writes the duration in the form of time.Duration.String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s, 10m or 24h", text)
	}
	*d = Duration(v)
	return nil
}
