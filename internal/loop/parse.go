package loop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Sizes in bytes that a task, reply or control may have.
const (
	maxTask     = 256 << 10
	maxGoal     = 64 << 10
	maxVars     = 16 << 10
	maxMetadata = 4 << 10
	maxPrompt   = 16 << 10
	maxReply    = 256 << 10
	maxNesting  = 64
	maxRule     = 256
)

// ParseTask reads a task as it came in and fills in the defaults. defaultID is the run id of a task that names none.
// unknown lists fields that have no meaning here. The error says what is wrong in words for the sender; the task then
// holds as much as could be read, its ID among it where that is valid.
func ParseTask(body []byte, defaultID string) (t Task, unknown []string, err error) {
	if err := checkJSON(body, maxTask, "a task"); err != nil {
		return Task{ID: defaultID}, nil, err
	}
	unknown = unknownFields(body, taskFields)
	if err := json.Unmarshal(body, &t); err != nil {
		return Task{ID: recoverID(body, defaultID)}, unknown, fmt.Errorf("the task can't be read: %w", explainJSON(err))
	}
	if t.ID == "" {
		t.ID = defaultID
	}
	t = t.withDefaults()
	return t, unknown, t.validate()
}

// recoverID finds the id of a task that has a field of the wrong type.
func recoverID(body []byte, defaultID string) string {
	var v struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &v) != nil || v.ID == "" {
		return defaultID
	}
	return v.ID
}

func (t Task) withDefaults() Task {
	t.Strategy = cmp.Or(t.Strategy, StrategyPlanReact)
	t.Limits.MaxSteps = cmp.Or(t.Limits.MaxSteps, 15)
	t.Limits.MinPlanSteps = cmp.Or(t.Limits.MinPlanSteps, 2)
	t.Limits.MaxRejections = cmp.Or(t.Limits.MaxRejections, 3)
	t.Limits.MaxReplans = cmp.Or(t.Limits.MaxReplans, 3)
	t.Limits.MaxIterations = cmp.Or(t.Limits.MaxIterations, 3)
	t.Limits.MaxChildren = cmp.Or(t.Limits.MaxChildren, 16)
	t.Limits.MaxDepth = cmp.Or(t.Limits.MaxDepth, 2)
	t.Limits.Timeout = cmp.Or(t.Limits.Timeout, Duration(10*time.Minute))
	t.Ask.Timeout = cmp.Or(t.Ask.Timeout, Duration(24*time.Hour))
	t.Ask.OnTimeout = cmp.Or(t.Ask.OnTimeout, AskFail)
	t.OnBusy = cmp.Or(t.OnBusy, BusyEnqueue)
	t.Priority = cmp.Or(t.Priority, PriorityNormal)
	return t
}

func (t Task) validate() error {
	if strings.TrimSpace(t.Goal) == "" {
		return errors.New("goal is missing: say what is to be done")
	}
	if len(t.Goal) > maxGoal {
		return fmt.Errorf("goal has %d bytes, at most %d are allowed", len(t.Goal), maxGoal)
	}
	if err := checkID("id", t.ID); err != nil {
		return err
	}
	if t.Session != "" {
		if err := checkID("session", t.Session); err != nil {
			return err
		}
	}
	if len(t.User) > 256 {
		return fmt.Errorf("user has %d bytes, at most 256 are allowed", len(t.User))
	}
	if _, known := strategies[t.Strategy]; !known {
		return fmt.Errorf("strategy %q is not one of %s", clip(t.Strategy, 80), strings.Join(Strategies(), ", "))
	}
	for _, check := range []func() error{
		t.Limits.validate, t.Ask.validate, t.validateNames, t.validateExtras, t.validateTiming,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (l Limits) validate() error {
	for _, f := range []struct {
		name       string
		value, top int
	}{
		{"max_steps", l.MaxSteps, 10_000},
		{"min_plan_steps", l.MinPlanSteps, 100},
		{"max_rejections", l.MaxRejections, 1_000},
		{"max_replans", l.MaxReplans, 1_000},
		{"max_iterations", l.MaxIterations, 1_000},
		{"max_tokens", l.MaxTokens, 1 << 40},
		{"max_children", l.MaxChildren, 100},
		{"max_depth", l.MaxDepth, 8},
	} {
		if f.value < 0 || f.value > f.top {
			return fmt.Errorf("limits.%s is %d, allowed are 0 (the default) to %d", f.name, f.value, f.top)
		}
	}
	if l.MaxCostUSD < 0 {
		return fmt.Errorf("limits.max_cost_usd is %g, it can't be negative", l.MaxCostUSD)
	}
	if l.Timeout < 0 {
		return fmt.Errorf("limits.timeout is %s, it can't be negative", time.Duration(l.Timeout))
	}
	return nil
}

func (a Ask) validate() error {
	if a.Timeout < 0 {
		return fmt.Errorf("ask.timeout is %s, it can't be negative", time.Duration(a.Timeout))
	}
	switch a.OnTimeout {
	case AskFail, AskContinue:
		return nil
	case AskDefault:
		if strings.TrimSpace(a.Default) == "" {
			return errors.New(`ask.on_timeout is "default" and ask.default is missing`)
		}
		return nil
	default:
		return fmt.Errorf("ask.on_timeout %q is not one of fail, continue, default", clip(a.OnTimeout, 80))
	}
}

func (t Task) validateNames() error {
	for field, globs := range map[string][]string{"tools": t.Tools, "approve": t.Approve} {
		for _, g := range globs {
			if _, err := path.Match(g, ""); err != nil || g == "" {
				return fmt.Errorf("%s holds %q, which is no tool name or pattern such as get_*", field, clip(g, 80))
			}
		}
	}
	if len(t.FallbackModels) > 8 {
		return fmt.Errorf("fallback_models has %d entries, at most 8 are allowed", len(t.FallbackModels))
	}
	if !slices.Contains([]string{PriorityHigh, PriorityNormal, PriorityLow}, t.Priority) {
		return fmt.Errorf("priority %q is not one of high, normal, low", clip(t.Priority, 80))
	}
	return nil
}

func (t Task) validateExtras() error {
	size := 0
	for name, value := range t.Vars {
		if err := checkID("vars name", name); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	if size > maxVars {
		return fmt.Errorf("vars have %d bytes, at most %d are allowed", size, maxVars)
	}
	if len(t.Metadata) > maxMetadata {
		return fmt.Errorf("metadata has %d bytes, at most %d are allowed", len(t.Metadata), maxMetadata)
	}
	if len(t.Metadata) > 0 && t.Metadata[0] != '{' && string(t.Metadata) != "null" {
		return errors.New("metadata must be a JSON object")
	}
	if t.Locked != nil && t.Strategy != StrategyPlanExecute {
		return errors.New("locked belongs to the strategy plan_execute")
	}
	if raw, ok := t.ModelOptions[nativeTools]; ok && string(raw) != "true" && string(raw) != "false" {
		return errors.New("model_options.native_tools must be true or false")
	}
	return t.validatePrompts()
}

func (t Task) validatePrompts() error {
	if len(t.Prompts) > 0 && t.Strategy != StrategyPlanActReflect {
		return errors.New("prompts belong to the strategy plan_act_reflect")
	}
	for name, text := range t.Prompts {
		switch {
		case name != "plan" && name != "reflect":
			return fmt.Errorf("prompts.%s: only plan and reflect can be replaced", clip(name, 64))
		case strings.TrimSpace(text) == "" || len(text) > maxPrompt:
			return fmt.Errorf("prompts.%s has %d bytes, allowed are 1 to %d", name, len(text), maxPrompt)
		}
	}
	return nil
}

// validateTiming checks when the task may begin. What only the queue can read, a rule for repeating, is left to it.
func (t Task) validateTiming() error {
	switch {
	case t.OnBusy != BusyEnqueue && t.OnBusy != BusyReject && t.OnBusy != BusyInterrupt:
		return fmt.Errorf("on_busy %q is not one of enqueue, reject, interrupt", clip(t.OnBusy, 80))
	case t.NotBefore != "" && t.notBefore().IsZero():
		return fmt.Errorf("not_before %q is no time such as 2030-01-01T09:00:00Z", clip(t.NotBefore, 80))
	case len(t.Every) > maxRule:
		return fmt.Errorf("every has %d bytes, at most %d are allowed", len(t.Every), maxRule)
	case t.Every != "" && len(t.ID) > maxRepeated:
		return fmt.Errorf("id has %d characters, with every at most %d are allowed, for each run has its time behind it", len(t.ID), maxRepeated)
	case t.RetryWithReflection < 0 || t.RetryWithReflection > maxRetries:
		return fmt.Errorf("retry_with_reflection is %d, allowed are 0 to %d", t.RetryWithReflection, maxRetries)
	default:
		return nil
	}
}

var (
	taskFields = map[string]bool{
		"goal": true, "id": true, "session": true, "user": true, "strategy": true, "model": true, "fallback_models": true,
		"model_options": true, "tools": true, "limits": true, "ask": true, "approve": true, "locked": true, "vars": true,
		"prompts": true, "on_busy": true, "priority": true, "not_before": true, "every": true, "learn": true,
		"retry_with_reflection": true, "metadata": true,
	}
	replyFields = map[string]bool{
		"question": true, "text": true, "value": true, "approve": true, "arguments_sha256": true, "arguments": true,
		"remember": true, "reason": true, "by": true, "run": true,
	}
	controlFields = map[string]bool{"op": true, "reason": true, "by": true, "run": true}
)

// unknownFields lists the fields of a JSON object that are not in known, sorted.
func unknownFields(body []byte, known map[string]bool) []string {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return nil
	}
	var unknown []string
	for name := range object {
		if !known[name] {
			unknown = append(unknown, clip(name, 64))
		}
	}
	slices.Sort(unknown)
	return unknown
}

// checkJSON refuses what is too large, no UTF-8, no JSON object, or nested too deep.
func checkJSON(body []byte, limit int, what string) error {
	switch {
	case len(body) > limit:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(body), limit)
	case !utf8.Valid(body):
		return fmt.Errorf("%s must be UTF-8 and this is not", what)
	case nesting(body) > maxNesting:
		return fmt.Errorf("%s is nested deeper than %d levels", what, maxNesting)
	case !json.Valid(body):
		var v any
		return fmt.Errorf("%s must be JSON: %w", what, explainJSON(json.Unmarshal(body, &v)))
	case bytes.TrimSpace(body)[0] != '{':
		return fmt.Errorf("%s must be a JSON object", what)
	default:
		return nil
	}
}

// nesting returns how deep the brackets of a JSON text are nested. It is right for valid JSON and never more than the
// number of opening brackets otherwise.
func nesting(body []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// explainJSON turns the decoder's errors into words that name the field or the place.
func explainJSON(err error) error {
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return fmt.Errorf("field %s has the wrong type: %s", cmp.Or(wrongType.Field, "(root)"), wrongType.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w at byte %d", syntax, syntax.Offset)
	default:
		return err
	}
}

func parseReply(body []byte) (r Reply, unknown []string, err error) {
	if err := checkJSON(body, maxReply, "a reply"); err != nil {
		return r, nil, err
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return r, nil, fmt.Errorf("the reply can't be read: %w", explainJSON(err))
	}
	return r, unknownFields(body, replyFields), nil
}

func parseControl(body []byte) (c Control, unknown []string, err error) {
	if err := checkJSON(body, maxReply, "a control"); err != nil {
		return c, nil, err
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return c, nil, fmt.Errorf("the control can't be read: %w", explainJSON(err))
	}
	switch c.Op {
	case OpCancel, OpPause, OpResume:
		c.Reason, c.By = clip(c.Reason, 2<<10), clip(c.By, 256)
		return c, unknownFields(body, controlFields), nil
	default:
		return c, nil, fmt.Errorf("op %q is not one of cancel, pause, resume", clip(string(c.Op), 80))
	}
}
