package llm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ratchet/internal/loop"
)

// Complete asks the request's model, or the default, and after it the fallback models in their order: each when the one
// before it failed for good or used up its attempts. The error is a [*loop.ModelError], or the cause of ctx. Where one of
// the models failed in a way that may pass, so does the error, with the shortest wait that an endpoint asked for.
func (c *Client) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	reply, err := c.askAll(ctx, &r)
	c.conf.Ended(err)
	if err != nil {
		return loop.ModelReply{}, err
	}
	return *reply, nil
}

// askAll asks the models in their order.
func (c *Client) askAll(ctx context.Context, r *loop.ModelRequest) (*loop.ModelReply, error) {
	if err := checkOptions(r.Options); err != nil {
		return nil, err
	}
	started := c.conf.Now()
	out := &pieces{hand: r.Tokens}
	var failed []modelFailure
	for _, model := range c.candidates(r) {
		reply, err := c.ask(ctx, model, r, out)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil {
			out.settle(reply.Text)
			reply.MS = c.conf.Now().Sub(started).Milliseconds()
			return reply, nil
		}
		failed = append(failed, modelFailure{model, asFailure(err)})
	}
	return nil, c.giveUp(failed)
}

// candidates lists the models to ask, each once. A request that names its model but no fallbacks has none: the worker's
// fallbacks belong to the worker's default.
func (c *Client) candidates(r *loop.ModelRequest) []string {
	models := append([]string{r.Model}, r.Fallback...)
	if r.Model == "" {
		models[0] = c.conf.Model
		if len(r.Fallback) == 0 {
			models = append(models, c.conf.Fallback...)
		}
	}
	var unique []string
	for _, m := range models {
		if m != "" && !slices.Contains(unique, m) {
			unique = append(unique, m)
		}
	}
	return unique
}

type modelFailure struct {
	model string
	*failure
}

// giveUp makes one error of all that failed. It is one of a request that was not sent only where no model was sent it.
func (c *Client) giveUp(failed []modelFailure) *loop.ModelError {
	main, unsent := failed[0], failed[0].unsent
	for _, f := range failed[1:] {
		unsent = unsent && f.unsent
		if f.passing && (!main.passing || f.after < main.after) {
			main = f
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "model %s at %s: %s", main.model, c.conf.BaseURL, main.Error())
	for _, f := range failed {
		if f != main {
			fmt.Fprintf(&text, "; model %s: %s: %s", f.model, f.cause, f.said)
		}
	}
	return &loop.ModelError{
		Cause:   main.cause,
		Message: text.String(),
		Passing: main.passing,
		After:   min(main.after, maxAfter),
		Unsent:  unsent,
	}
}

// maxAfter bounds what an endpoint may make a run wait before it is asked again.
const maxAfter = 24 * time.Hour
