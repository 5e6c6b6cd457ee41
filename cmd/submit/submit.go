package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// Run hands the task in and follows its run.
func (c *runCommand) Run(p *program) (err error) {
	switch {
	case c.Local && c.Detach:
		return usage("--detach with --local would end the worker before it has done anything: leave one of them out.")
	case c.Data != "" && !c.Local:
		return usage("--data belongs to --local.")
	case c.Local && (c.NotBefore != "" || c.Every != ""):
		return usage("--not-before and --every need a worker that stays: leave --local out.")
	}
	task, err := c.task(p)
	if err != nil {
		return err
	}
	starting, stop := signal.NotifyContext(p.ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	client, done, err := c.reach(starting, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(done(), err) }() // the first one is told
	answer, err := client.Submit(starting, task)
	stop()
	var api *bus.APIError
	switch {
	case errors.As(err, &api) && api.Code == 400:
		return usage("No worker would accept this task: %s", sentence(api.Message))
	case errors.Is(err, context.Canceled):
		return problem{codeInterrupted, "Interrupted before a worker said that it has the task; it may have been taken as run " + c.ID + "."}
	case err != nil:
		return p.explain(err)
	case c.NotBefore != "" || c.Every != "":
		return c.planned(p, answer)
	case c.Detach:
		return p.print(answer.Run)
	}
	if answer.Status == loop.OutcomeDuplicate && !c.Quiet {
		p.say("Run " + answer.Run + " exists already; following it.")
	}
	return p.follow(client, c, answer.Run)
}

// planned says when a task for later begins, and prints its id.
func (c *runCommand) planned(p *program, answer bus.SubmitAnswer) error {
	text := "It begins now."
	switch {
	case answer.Status == loop.OutcomeDuplicate:
		text = "There is a run or schedule " + answer.Run + " already; nothing was changed."
	case c.Every != "":
		text = "The first run begins at " + moment(answer.Starts) + ". submit schedule lists it, submit schedule remove " + answer.Run + " ends it."
	case !answer.Starts.IsZero():
		text = "It begins at " + moment(answer.Starts) + ". Until then submit schedule lists it, and submit cancel " + answer.Run + " drops it."
	}
	if !c.Quiet {
		p.say(text)
	}
	return p.print(answer.Run)
}

// moment is a time for a person, in the time zone of this machine.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// reach connects to workers, or starts one here. done ends that again. starting bounds the start alone.
func (c *runCommand) reach(starting context.Context, p *program) (client *bus.Client, done func() error, err error) {
	if !c.Local {
		client, conn, err := p.dial()
		if err != nil {
			return nil, nil, err
		}
		return client, func() error { conn.Close(); return nil }, nil
	}
	l, err := p.startLocal(starting, c)
	if err != nil {
		return nil, nil, err
	}
	client, err = bus.NewClient(l.node.Conn(), p.link.Prefix, p.link.Tenant)
	if err != nil {
		_ = l.close() // the name that can't be used is what matters
		return nil, nil, usage("%v", err)
	}
	return client, l.close, nil
}
