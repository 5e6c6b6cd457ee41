package main

import (
	"context"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"ratchet/internal/bus"
	"ratchet/internal/completion"
	"ratchet/internal/loop"
)

const (
	// proposalTime bounds how long somebody who pressed the Tab key waits for what only workers know.
	proposalTime = 1500 * time.Millisecond
	// proposedRuns is how many of the last runs are proposed.
	proposedRuns = 100
)

// Run prints the script.
func (c *completionCommand) Run(p *program) error {
	script, err := completion.Script(c.Shell, "submit")
	if err != nil {
		return usage("%s", sentence(err.Error()))
	}
	return p.print(script[:len(script)-1])
}

// Help explains completion.
func (completionCommand) Help() string {
	return completion.Help("submit") + `

Ids of runs and of schedules are asked of the workers, and left out where none answers at once.`
}

// proposals are the values that this program knows of: names, and what the workers say.
func (p *program) proposals(command *kong.Node, of *kong.Value, said map[string]string) []completion.Proposal {
	switch {
	case of.Name == "strategy":
		return words(loop.Strategies())
	case of.Name == "kind" && command.Name == "facts":
		return words([]string{"preference", "project", "decision", "person", "other"})
	case of.Name == "model":
		return words([]string{"demo"})
	case of.Name == "run", of.Name == "id" && command.Name == "schedule" && said["action"] == "remove":
		return p.known(command.Name, said)
	}
	return nil
}

func words(values []string) (found []completion.Proposal) {
	for _, v := range values {
		found = append(found, completion.Proposal{Value: v})
	}
	return found
}

// statuses are those of the runs that a command is good for; others take any run.
var statuses = map[string][]loop.Status{
	"reply":   {loop.StatusWaiting, loop.StatusRunning},
	"approve": {loop.StatusWaiting},
	"refuse":  {loop.StatusWaiting},
	"pause":   {loop.StatusRunning, loop.StatusWaiting},
	"resume":  {loop.StatusPaused},
	"cancel":  {loop.StatusRunning, loop.StatusWaiting, loop.StatusPaused},
}

// known asks the workers for the runs or schedules that a command is good for, the newest first.
func (p *program) known(command string, said map[string]string) (found []completion.Proposal) {
	ctx, cancel := context.WithTimeout(p.ctx, proposalTime)
	defer cancel()
	p.ctx = ctx
	for flag, value := range map[string]*string{
		"nats": &p.link.NATS, "context": &p.link.Context, "inbox-prefix": &p.link.InboxPrefix, "prefix": &p.link.Prefix, "tenant": &p.link.Tenant,
		"creds": &p.link.Creds, "tls-ca": &p.link.TLSCA, "tls-cert": &p.link.TLSCert, "tls-key": &p.link.TLSKey,
	} {
		if text := said[flag]; text != "" {
			*value = text
		}
	}
	client, conn, err := p.dial()
	if err != nil {
		return nil // a Tab key is no place for errors
	}
	defer conn.Close()
	if command == "schedule" {
		answer, err := client.Schedules(ctx, bus.SchedulesRequest{})
		if err != nil {
			return nil
		}
		for _, s := range answer.Schedules {
			found = append(found, completion.Proposal{Value: s.ID, Help: s.Goal})
		}
		return found
	}
	return p.runs(ctx, client, statuses[command])
}

// runs are the last ones that have one of these statuses, or any, the newest first.
func (p *program) runs(ctx context.Context, client *bus.Client, wanted []loop.Status) (found []completion.Proposal) {
	request := bus.ListRequest{Limit: listPage}
	if len(wanted) == 1 {
		request.Status = wanted[0]
	}
	for {
		answer, err := client.List(ctx, request)
		if err != nil {
			break // what there is by now is of use
		}
		for _, r := range answer.Runs {
			if wanted == nil || slices.Contains(wanted, r.Status) {
				found = append(found, completion.Proposal{Value: r.Run, Help: string(r.Status) + ": " + r.Goal})
			}
		}
		if answer.Next == 0 {
			break
		}
		request.After = answer.Next
	}
	slices.Reverse(found)
	return found[:min(len(found), proposedRuns)]
}
