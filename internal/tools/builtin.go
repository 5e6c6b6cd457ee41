package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"time"
	_ "time/tzdata" // time zones where the machine has none

	"ratchet/internal/loop"
)

// Builtins returns the tools that every worker offers unless told otherwise: calculate, current_time, add_numbers and
// delegate.
// clock is what current_time reads; nil means time.Now.
func Builtins(clock func() time.Time) []Tool {
	if clock == nil {
		clock = time.Now
	}
	return []Tool{calculator(), currentTime(clock), addNumbers(), Delegate()}
}

func calculator() Tool {
	type arguments struct {
		Expression string `json:"expression" jsonschema:"such as (17 + 25) * 1.5 ^ 2; operators + - * / % ^, functions abs ceil floor round min max sum mean sqrt exp ln log10 sin cos tan, constants pi and e"`
	}
	return Typed(Tool{Spec: loop.ToolSpec{
		Name:        "calculate",
		Description: "Calculates an arithmetic expression exactly and returns the number.",
		Example:     json.RawMessage(`{"expression":"(17 + 25) * 3"}`),
		Effect:      loop.EffectRead,
	}}, func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
		result, err := calculate(a.Expression)
		if err != nil {
			return nil, err
		}
		return json.RawMessage(FormatNumber(result)), nil
	})
}

func currentTime(clock func() time.Time) Tool {
	type arguments struct {
		Zone string `json:"zone,omitempty" jsonschema:"IANA time zone such as Asia/Singapore; UTC where it is left out"`
	}
	type result struct {
		Time    string `json:"time"`
		Zone    string `json:"zone"`
		Weekday string `json:"weekday"`
	}
	return Typed(Tool{Instant: true, Spec: loop.ToolSpec{
		Name:        "current_time",
		Description: "Returns the current date, time and weekday in a time zone.",
		Example:     json.RawMessage(`{"zone":"Asia/Singapore"}`),
		Effect:      loop.EffectRead,
	}}, func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
		zone, err := time.LoadLocation(a.Zone)
		if err != nil || a.Zone == "Local" {
			return nil, fmt.Errorf("%q is no time zone: use an IANA name such as Europe/Paris or America/New_York, or leave zone out for UTC", clip(a.Zone, 60))
		}
		now := clock().In(zone)
		return result{now.Format(time.RFC3339), zone.String(), now.Weekday().String()}, nil
	})
}

func addNumbers() Tool {
	type arguments struct {
		A json.Number `json:"a" jsonschema:"the first number"`
		B json.Number `json:"b" jsonschema:"the second number"`
	}
	return Typed(Tool{Instant: true, Spec: loop.ToolSpec{
		Name:        "add_numbers",
		Description: "Adds two numbers exactly and returns the sum.",
		Example:     json.RawMessage(`{"a":17,"b":25}`),
		Effect:      loop.EffectRead,
	}}, func(_ context.Context, _ loop.Invocation, args arguments) (any, error) {
		a, err := ParseNumber(args.A)
		if err != nil {
			return nil, fmt.Errorf("a: %w", err)
		}
		b, err := ParseNumber(args.B)
		if err != nil {
			return nil, fmt.Errorf("b: %w", err)
		}
		return json.RawMessage(FormatNumber(new(big.Rat).Add(a, b))), nil
	})
}
