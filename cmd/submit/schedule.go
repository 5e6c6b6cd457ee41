package main

import (
	"errors"

	"ratchet/internal/bus"
	"ratchet/internal/terminal"
)

// Run does with the tasks for later what the action says.
func (c *scheduleCommand) Run(p *program) error {
	switch {
	case c.Action == "list" && c.ID != "":
		return usage("schedule list takes no id.")
	case c.Action == "remove" && c.ID == "":
		return usage("Which one? submit schedule lists them with their ids.")
	}
	return p.with(func(client *bus.Client) error {
		if c.Action == "list" {
			return c.list(p, client)
		}
		_, err := client.Schedules(p.ctx, bus.SchedulesRequest{Op: "remove", ID: c.ID})
		var api *bus.APIError
		switch {
		case errors.As(err, &api) && api.Code == 404:
			return failed("There is no schedule %s (tenant %s). submit schedule lists those there are.", c.ID, p.link.Tenant)
		case err != nil:
			return p.explain(err)
		}
		p.say("Schedule " + c.ID + " is removed. Runs that have begun go on.")
		return nil
	})
}

func (c *scheduleCommand) list(p *program, client *bus.Client) error {
	var rows [][]string
	for request := (bus.SchedulesRequest{}); ; {
		answer, err := client.Schedules(p.ctx, request)
		if err != nil {
			return p.explain(err)
		}
		for _, s := range answer.Schedules {
			if c.JSON {
				if err := p.printJSON(s); err != nil {
					return err
				}
			}
			rule := s.Every
			if rule == "" {
				rule = "once"
			}
			rows = append(rows, []string{s.ID, moment(s.Next), rule, s.Goal})
		}
		if answer.Next == 0 {
			break
		}
		request.After = answer.Next
	}
	switch {
	case c.JSON:
		return nil
	case len(rows) == 0:
		p.say("Nothing is planned.")
		return nil
	}
	width := 0
	if p.stdout.Is {
		width, _ = p.stdout.Dimensions()
	}
	for _, line := range terminal.Table([]string{"ID", "NEXT", "RULE", "GOAL"}, rows, width, p.stdout.Style) {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}
