package main

import (
	"encoding/json"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// Run shows one run.
func (c *showCommand) Run(p *program) error {
	switch {
	case c.Prompt:
		return c.prompt(p)
	case c.Turn != 0:
		return usage("A turn goes with --prompt: submit show %s --prompt %d", c.ID, c.Turn)
	}
	return p.with(func(client *bus.Client) error {
		head, err := client.Get(p.ctx, c.ID)
		if err != nil {
			return p.explain(err)
		}
		if c.JSON {
			return p.printJSON(head)
		}
		var ways []string
		if head.Question != nil {
			ways = p.waysToAnswer(head.Run, *head.Question)
		}
		width, _ := p.stdout.Dimensions()
		for _, line := range terminal.Page(head, ways, time.Now(), width, p.stdout.Style) {
			if err := p.print(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// prompt shows what the model was sent at a turn.
func (c *showCommand) prompt(p *program) error {
	if c.Turn < 0 {
		return usage("Turns are counted from 1.")
	}
	return p.with(func(client *bus.Client) error {
		view, err := client.Prompt(p.ctx, bus.PromptRequest{Run: c.ID, Turn: c.Turn})
		if err != nil {
			return p.explain(err)
		}
		if c.JSON {
			return p.printJSON(view)
		}
		for _, line := range terminal.Prompt(view, p.stdout.Style) {
			if err := p.print(line); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *program) printJSON(v any) error {
	encoded, err := json.Marshal(v)
	if err != nil {
		return failed("What the worker said can't be written as JSON: %v.", err)
	}
	return p.print(p.json(encoded))
}

// Run lists runs.
func (c *listCommand) Run(p *program) error {
	return p.with(func(client *bus.Client) error {
		if c.JSON {
			return c.states(p, client)
		}
		var rows [][]string
		err := c.pages(p, client, func(page []bus.ListedRun) error {
			for _, r := range page {
				rows = append(rows, []string{r.Run, string(r.Status), r.Updated.Local().Format(time.DateTime), r.Goal})
			}
			return nil
		})
		if err != nil {
			return err
		}
		return c.table(p, rows)
	})
}

// pages calls each with one page of runs after the other.
func (c *listCommand) pages(p *program, client *bus.Client, each func([]bus.ListedRun) error) error {
	request := bus.ListRequest{Status: loop.Status(c.Status), Limit: listPage}
	for {
		page, err := client.List(p.ctx, request)
		if err != nil {
			return p.explain(err)
		}
		if err := each(page.Runs); err != nil {
			return err
		}
		if page.Next == 0 || page.Next == request.After {
			return nil
		}
		request.After = page.Next
	}
}

// states prints the whole state of each run, which a list does not have: a page of them may not fit into a message.
func (c *listCommand) states(p *program, client *bus.Client) error {
	return c.pages(p, client, func(page []bus.ListedRun) error {
		heads := make([]*loop.Head, len(page))
		asking, ctx := errgroup.WithContext(p.ctx)
		asking.SetLimit(listAtOnce)
		for i, r := range page {
			asking.Go(func() error {
				head, err := client.Get(ctx, r.Run)
				var api *bus.APIError
				switch {
				case errors.As(err, &api) && api.Code == 404:
					return nil // it has expired since
				case err != nil:
					return p.explain(err)
				}
				heads[i] = &head
				return nil
			})
		}
		if err := asking.Wait(); err != nil {
			return err
		}
		for _, head := range heads {
			// It may have moved on since it was listed, and be listed once more.
			if head == nil || c.Status != "" && head.Status != loop.Status(c.Status) {
				continue
			}
			if err := p.printJSON(head); err != nil {
				return err
			}
		}
		return nil
	})
}

// listAtOnce is how many states are asked for at the same time.
const listAtOnce = 16

// listPage is how many runs are asked for at once: their goals have a kilobyte at most, so they fit into a message.
const listPage = 200

func (c *listCommand) table(p *program, rows [][]string) error {
	switch {
	case len(rows) == 0 && c.Status != "":
		p.say("No run of tenant " + p.link.Tenant + " is " + c.Status + ".")
		return nil
	case len(rows) == 0:
		p.say("There are no runs of tenant " + p.link.Tenant + `. Start one: submit "What is 17 plus 25?"`)
		return nil
	}
	width := 0 // into a pipe or file, nothing is cut
	if p.stdout.Is {
		width, _ = p.stdout.Dimensions()
	}
	for _, line := range terminal.Table([]string{"RUN", "STATUS", "CHANGED", "GOAL"}, rows, width, p.stdout.Style) {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}

// Run prints the events of a run.
func (c *eventsCommand) Run(p *program) error {
	return p.with(func(client *bus.Client) error {
		if _, err := client.Get(p.ctx, c.ID); err != nil && !soon(err, c.Follow) {
			return p.explain(err)
		}
		if c.Follow {
			return c.follow(p, client)
		}
		return c.print(p, client)
	})
}

// soon reports whether an error says only that the run's state is being written, which does not hinder a follower.
func soon(err error, follow bool) bool {
	var api *bus.APIError
	return follow && errors.As(err, &api) && api.Code == 503
}

// print prints the events there are by now.
func (c *eventsCommand) print(p *program, client *bus.Client) error {
	request := bus.EventsRequest{Run: c.ID, From: c.From}
	for {
		page, err := client.Events(p.ctx, request)
		if err != nil {
			return p.explain(err)
		}
		for _, raw := range page.Events {
			if err := c.one(p, raw); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		request.After = page.Next
	}
}

// one prints an event as it is stored. One of a type that this program does not know has no readable form.
func (c *eventsCommand) one(p *program, raw json.RawMessage) error {
	if c.JSON {
		return p.print(p.json(raw))
	}
	event, err := loop.DecodeEvent(raw)
	if errors.Is(err, loop.ErrNewer) {
		return p.print("      an event that this program is too old to show; --json prints it")
	} else if err != nil {
		return failed("The worker sent what is no event: %v.", err)
	}
	return p.print(terminal.EventLine(event))
}

// follow prints events until the run's end, and makes its outcome the exit code.
func (c *eventsCommand) follow(p *program, client *bus.Client) error {
	ctx, stop := signal.NotifyContext(p.ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var last loop.Event
	err := client.Follow(ctx, c.ID, 1, func(e loop.Event) error {
		last = e // also of events that are not wanted: the last may be among them
		switch {
		case e.N < c.From:
			return nil
		case !c.JSON:
			return p.print(terminal.EventLine(e))
		}
		encoded, err := e.Encode()
		if err != nil {
			return failed("Event %d of run %s can't be written as JSON: %v.", e.N, c.ID, err)
		}
		return p.print(p.json(encoded))
	})
	var known problem
	switch {
	case ctx.Err() != nil:
		return problem{codeInterrupted, ""}
	case errors.As(err, &known):
		return known
	case err != nil:
		return p.explain(err)
	}
	switch last.Data.(type) { // the events have told it: no word more
	case loop.Failed:
		return problem{codeFailed, ""}
	case loop.Cancelled:
		return problem{codeCancelled, ""}
	default:
		return nil
	}
}
