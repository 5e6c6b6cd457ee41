package main

import (
	"fmt"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/terminal"
)

// Run does with a user's facts what the action says.
func (c *factsCommand) Run(p *program) error {
	switch {
	case c.Action == "add" && c.Words == "":
		return usage("Which fact? submit facts add \"The user prefers window seats.\" --user ID")
	case c.Action == "forget" && c.All == (c.Words != ""):
		return usage("Which fact? Give the id of one, as submit facts lists it, or --all.")
	case c.Action == "list" && c.Words != "":
		return usage("facts list takes no words.")
	}
	return p.with(func(client *bus.Client) error {
		request := bus.FactsRequest{Op: c.Action, User: p.link.User, Kind: c.Kind}
		switch c.Action {
		case "add":
			request.Text = c.Words
		case "forget":
			request.ID = c.Words
			if c.All {
				request.Op = "forget_all"
			}
		case "list":
			return c.list(p, client, request)
		}
		answer, err := client.Facts(p.ctx, request)
		if err != nil {
			return p.explain(err)
		}
		if c.Action == "add" {
			p.say("Remembered.")
		} else {
			p.say(fmt.Sprintf("Forgotten: %d, and made sure that nothing of it is left.", answer.Changed))
		}
		return nil
	})
}

func (c *factsCommand) list(p *program, client *bus.Client, request bus.FactsRequest) error {
	var rows [][]string
	for {
		answer, err := client.Facts(p.ctx, request)
		if err != nil {
			return p.explain(err)
		}
		for _, f := range answer.Facts {
			if c.JSON {
				if err := p.printJSON(f); err != nil {
					return err
				}
				continue
			}
			state := "holds"
			if !f.Replaced.IsZero() {
				state = "replaced " + f.Replaced.Local().Format(time.DateOnly)
			}
			rows = append(rows, []string{f.ID, f.Kind, state, f.Text})
		}
		if answer.Next == "" {
			break
		}
		request.After = answer.Next
	}
	if c.JSON {
		return nil
	}
	if len(rows) == 0 {
		p.say("Nothing is known about this user.")
		return nil
	}
	const whole = 0 // a fact that is cut off tells nobody what is known about them
	for _, line := range terminal.Table([]string{"ID", "KIND", "STATE", "FACT"}, rows, whole, p.stdout.Style) {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}
