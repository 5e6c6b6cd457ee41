package filetool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// Bounds of one slice, in bytes. The upper one leaves room for JSON escapes within the default cap of a result.
const (
	defaultSlice = 4000
	maxSlice     = 6000
)

// callRule is what the id of a call looks like. It has no slash, so no id leads to another run's results.
var callRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// Result returns the tool read_result: slices of results of the same run that were too long to be shown whole. get
// returns a stored result by its name, tenant/run/call, and an error that is [loop.ErrNotFound] where there is none.
func Result(get func(ctx context.Context, name string) ([]byte, error)) tools.Tool {
	type arguments struct {
		Call   string `json:"call" jsonschema:"id of the call whose result was shown in part, such as c3"`
		Offset int    `json:"offset,omitempty" jsonschema:"byte to begin at; 0 where it is left out"`
		Length int    `json:"length,omitempty" jsonschema:"bytes wanted, at most 6000; 4000 where it is left out"`
	}
	type slice struct {
		Text   string `json:"text"`
		Offset int    `json:"offset"`
		Next   int    `json:"next,omitempty"` // where to go on
		Size   int    `json:"size"`
	}
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{
		Name:        "read_result",
		Description: "Reads a part of an earlier result of this run that was too long to be shown whole. next is the offset to go on from.",
		Example:     json.RawMessage(`{"call":"c3","offset":4000}`),
		Effect:      loop.EffectRead,
	}}, func(ctx context.Context, c loop.Invocation, a arguments) (any, error) {
		if !callRule.MatchString(a.Call) {
			return nil, fmt.Errorf("%q is no id of a call", a.Call)
		}
		data, err := get(ctx, c.Run.Tenant+"/"+c.Run.Run+"/"+a.Call)
		if errors.Is(err, loop.ErrNotFound) {
			return nil, fmt.Errorf("no result of call %s is stored: either it was shown whole, or there was no such call", a.Call)
		} else if err != nil {
			return nil, &tools.Fault{Err: errors.New("the stored result can't be read at the moment")} // the cause is the operator's
		}
		if a.Offset < 0 || a.Offset > len(data) {
			return nil, fmt.Errorf("offset %d lies outside of the result, which has %d bytes", a.Offset, len(data))
		}
		if a.Length <= 0 {
			a.Length = defaultSlice
		}
		from := border(data, a.Offset)
		to := border(data, min(len(data), from+max(min(a.Length, maxSlice), utf8.UTFMax)))
		s := slice{Text: string(data[from:to]), Offset: from, Size: len(data)}
		if to < len(data) {
			s.Next = to
		}
		return s, nil
	})
}

// border returns the largest index of at most i at which a character begins.
func border(data []byte, i int) int {
	for i > 0 && i < len(data) && !utf8.RuneStart(data[i]) {
		i--
	}
	return i
}
