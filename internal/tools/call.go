package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"ratchet/internal/loop"
)

// errTimeout is the cause of a call's context when its own time is up, as opposed to that of the run.
var errTimeout = errors.New("the tool's time is up")

// Call runs a tool and returns what came of it; failures of every kind are outcomes with a text for the model.
//
// It returns at the tool's timeout even if the tool does not. A result that was there by then counts, whatever the
// context says. The outcome is cancelled only where the caller's context ended the call.
func (r *Registry) Call(ctx context.Context, c loop.Invocation) loop.Outcome {
	e, full, outcome := r.run(ctx, c)
	if outcome != nil {
		return *outcome
	}
	return r.cap(e, full)
}

// run does all of [Registry.Call] but the cap: it returns the whole result, or the outcome of a call without one.
func (r *Registry) run(ctx context.Context, c loop.Invocation) (*entry, json.RawMessage, *loop.Outcome) {
	e, ok := r.entry(c.Tool)
	if !ok {
		return nil, nil, failure("there is no tool %q here", clip(c.Tool, 64))
	}
	if c.Digest != "" && c.Digest != e.Spec.Digest {
		return nil, nil, failure("the arguments of %s changed since this run began (its JSON Schema is another one now), so it was not called: go on without this tool", c.Tool)
	}
	if !c.Checked || c.Digest == "" {
		checked, problems := e.Spec.Check(c.Arguments)
		if len(problems) > 0 {
			return nil, nil, failure("%s was not called: %s", c.Tool, strings.Join(problems, "; "))
		}
		c.Arguments = checked
	}
	value, err := r.perform(ctx, e, c)
	if err != nil {
		return nil, nil, r.failed(ctx, e, err)
	}
	full, err := encodeResult(value)
	if err != nil {
		return nil, nil, failure("%s was called, but its result can't be written as JSON: %s", c.Tool, r.config.Secrets.Hide(err.Error()))
	}
	return e, r.config.Secrets.HideJSON(full), nil
}

// perform waits for its turn, calls the tool's function in a goroutine of its own, and leaves it there when the context
// ends first. The tool's timeout covers all of it; the turn of a call that was left lasts until its function returns.
func (r *Registry) perform(ctx context.Context, e *entry, c loop.Invocation) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if e.Instant && e.MaxParallel == 0 && e.Rate.Calls == 0 {
		return r.protect(ctx, e, c)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.Spec.Timeout, errTimeout)
	defer cancel()
	leave, err := e.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	type end struct {
		value any
		err   error
	}
	done := make(chan end, 1)
	var one atomic.Bool // set by the first of the two to be through: the function, or the call that waits for it
	go func() {
		defer leave()
		value, err := r.attempt(ctx, e, c)
		done <- end{value, err}
		if one.Swap(true) {
			r.abandoned.Add(-1)
		}
	}()
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
	}
	r.abandoned.Add(1)
	if one.Swap(true) { // it got through in the same instant
		r.abandoned.Add(-1)
		got := <-done
		return got.value, got.err
	}
	return nil, context.Cause(ctx)
}

// protect turns a panic of the tool into an error; the stack goes to the log, not to the model.
func (r *Registry) protect(ctx context.Context, e *entry, c loop.Invocation) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			loop.LogFor(loop.WithRun(ctx, c.Run, loop.Traceparent(ctx)), r.config.Logger).Error("tool panicked", "tool", e.Spec.Name, "call", c.Call,
				"panic", clip(fmt.Sprint(p), 1000), "stack", string(debug.Stack()))
			value, err = nil, fmt.Errorf("%s broke down in the middle of the call: %s", e.Spec.Name, clip(fmt.Sprint(p), 200))
		}
	}()
	return e.Run(ctx, c)
}

// failed says why a call has no result. outer is the caller's context.
func (r *Registry) failed(outer context.Context, e *entry, err error) *loop.Outcome {
	switch {
	case outer.Err() != nil:
		return &loop.Outcome{Status: loop.ObservedCancelled, Result: text(clip("the call was cut off: "+context.Cause(outer).Error(), maxErrorText))}
	case errors.Is(err, errBusy):
		return failure("%s was not called: %v", e.Spec.Name, err)
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded):
		return uncertain(e, fmt.Sprintf("%s did not answer within %v", e.Spec.Name, e.Spec.Timeout))
	}
	message := r.config.Secrets.Hide(err.Error())
	var fault *Fault
	if errors.As(err, &fault) && fault.Sent {
		return uncertain(e, message)
	}
	return failure("%s", message)
}

// uncertain is the outcome of a call that was sent and never answered. Nobody knows what a once tool did.
func uncertain(e *entry, message string) *loop.Outcome {
	if e.Spec.Effect != loop.EffectOnce {
		return failure("%s", message)
	}
	out := failure("%s; it may have taken effect all the same: find out before you call it again", clip(message, maxErrorText/2))
	out.Status = loop.ObservedUnknown
	return out
}

// failure is an error outcome with a text for the model.
func failure(format string, args ...any) *loop.Outcome {
	return &loop.Outcome{Status: loop.ObservedError, Result: text(clip(printable(fmt.Sprintf(format, args...)), maxErrorText))}
}

// cap returns a result as it goes into the run: whole, or head and tail of a larger one with the whole beside it.
func (r *Registry) cap(e *entry, full json.RawMessage) loop.Outcome {
	if len(full) <= e.MaxResult {
		return loop.Outcome{Status: loop.ObservedOK, Result: full}
	}
	whole := plainText(full)
	return loop.Outcome{
		Status:    loop.ObservedOK,
		Result:    excerpt(whole, e.MaxResult),
		Truncated: true,
		Full:      []byte(headAndTail(whole, r.config.MaxFull)),
	}
}

// GuardRequest is what a guard is called with, as its arguments.
type GuardRequest struct {
	Tool      string                     `json:"tool" jsonschema:"the tool that is about to be called"`
	Arguments json.RawMessage            `json:"arguments" jsonschema:"its arguments"`
	Results   map[string]json.RawMessage `json:"results" jsonschema:"results of the run's earlier calls, by call or step"`
}

// GuardVerdict is what a guard answers. Without OK it is a no.
type GuardVerdict struct {
	OK       bool     `json:"ok"`
	Problems []string `json:"problems,omitempty"`
}

// Guard asks the tool's guard whether the call may go out; problems is empty where it may or where there is no guard. A
// guard that fails, or answers anything but {"ok": true}, has said no.
func (r *Registry) Guard(ctx context.Context, c loop.Invocation) (problems []string) {
	e, ok := r.entry(c.Tool)
	if !ok || e.Guard == "" {
		return nil
	}
	var results map[string]json.RawMessage
	if c.Results != nil {
		results = c.Results()
	}
	if results == nil {
		results = map[string]json.RawMessage{}
	}
	answer, outcome := r.ask(ctx, e.Guard, "guard", c, GuardRequest{Tool: c.Tool, Arguments: object(c.Arguments), Results: results})
	if outcome != nil {
		return []string{fmt.Sprintf("%s could not check this call of %s: %s", e.Guard, c.Tool, plainText(outcome.Result))}
	}
	var verdict GuardVerdict
	if err := json.Unmarshal(answer, &verdict); err != nil {
		return []string{fmt.Sprintf("%s could not check this call of %s: its answer is no verdict: %s", e.Guard, c.Tool, clip(string(answer), 200))}
	}
	if verdict.OK {
		return nil
	}
	for _, problem := range verdict.Problems {
		if problem = strings.TrimSpace(problem); problem != "" && len(problems) < maxProblems {
			problems = append(problems, clip(problem, maxErrorText))
		}
	}
	if len(problems) == 0 {
		problems = []string{fmt.Sprintf("%s refused this call of %s and gave no reason", e.Guard, c.Tool)}
	}
	return problems
}

// ReconcileRequest is what a reconcile check is called with, as its arguments.
type ReconcileRequest struct {
	Tool           string          `json:"tool" jsonschema:"the tool that was called"`
	Arguments      json.RawMessage `json:"arguments" jsonschema:"its arguments"`
	IdempotencyKey string          `json:"idempotency_key" jsonschema:"the key the call was sent with"`
	Started        time.Time       `json:"started" jsonschema:"when it was sent"`
}

// ReconcileVerdict is what a reconcile check answers: done (with the call's result), not_done or unknown.
type ReconcileVerdict struct {
	Outcome string          `json:"outcome"`
	Result  json.RawMessage `json:"result,omitempty"`
}

// The outcomes of a reconcile check.
const (
	ReconciledDone    = "done"
	ReconciledNotDone = "not_done"
	ReconciledUnknown = "unknown"
)

// Reconcile asks the tool's reconcile check what became of a call that was started. It is unknown where there is no such
// check, where it fails, and where its answer is anything else than one of the three.
func (r *Registry) Reconcile(ctx context.Context, c loop.Invocation, started time.Time) loop.Reconciled {
	unknown := loop.Reconciled{Outcome: ReconciledUnknown}
	e, ok := r.entry(c.Tool)
	if !ok || e.Reconcile == "" {
		return unknown
	}
	answer, outcome := r.ask(ctx, e.Reconcile, "reconcile", c,
		ReconcileRequest{Tool: c.Tool, Arguments: object(c.Arguments), IdempotencyKey: c.Key(), Started: started})
	if outcome != nil {
		return unknown
	}
	var verdict ReconcileVerdict
	if err := json.Unmarshal(answer, &verdict); err != nil {
		return unknown
	}
	switch verdict.Outcome {
	case ReconciledDone:
		if len(verdict.Result) == 0 {
			verdict.Result = json.RawMessage("null")
		}
		return loop.Reconciled{Outcome: ReconciledDone, Result: r.cap(e, verdict.Result).Result}
	case ReconciledNotDone:
		return loop.Reconciled{Outcome: ReconciledNotDone}
	}
	return unknown
}

// ask calls a helper tool about a call. The helper has an idempotency key of its own.
func (r *Registry) ask(ctx context.Context, helper, role string, c loop.Invocation, request any) (json.RawMessage, *loop.Outcome) {
	arguments, err := json.Marshal(request)
	if err != nil {
		return nil, failure("its request can't be written as JSON: %v", err)
	}
	_, answer, outcome := r.run(ctx, loop.Invocation{Run: c.Run, Call: c.Call + "-" + role, Tool: helper, Arguments: arguments, Vars: c.Vars})
	return answer, outcome
}

// object returns arguments as a JSON object even where there are none.
func object(arguments json.RawMessage) json.RawMessage {
	if len(arguments) == 0 {
		return json.RawMessage("{}")
	}
	return arguments
}
