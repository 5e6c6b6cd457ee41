package main

import (
	"cmp"
	"strings"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// with connects, does something, and disconnects.
func (p *program) with(do func(*bus.Client) error) error {
	client, conn, err := p.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(client)
}

// Run hands in a reply.
func (c *replyCommand) Run(p *program) error {
	return p.with(func(client *bus.Client) error {
		return p.reply(client, bus.ReplyRequest{Run: c.ID, Reply: loop.Reply{Question: c.Question, Text: c.Text}})
	})
}

// Run says yes to the call that is asked about.
func (c *approveCommand) Run(p *program) error {
	yes := true
	return p.with(func(client *bus.Client) error { return p.decide(client, c.ID, c.Question, loop.Reply{Approve: &yes}) })
}

// Run says no to the call that is asked about.
func (c *refuseCommand) Run(p *program) error {
	no := false
	return p.with(func(client *bus.Client) error {
		return p.decide(client, c.ID, c.Question, loop.Reply{Approve: &no, Reason: c.Reason})
	})
}

// decide answers an approval, and echoes the hash of the arguments that it showed.
func (p *program) decide(client *bus.Client, run, question string, reply loop.Reply) error {
	head, err := client.Get(p.ctx, run)
	if err != nil {
		return p.explain(err)
	}
	q := head.Question
	switch {
	case q == nil:
		return failed("Run %s asks nothing at the moment: it is %s.", run, head.Status)
	case q.Kind != loop.KindApproval:
		return failed("Run %s asks a question, not for an approval: %s\n%s", run, q.Text, strings.Join(p.waysToAnswer(run, *q), "\n"))
	case question != "" && question != q.Question:
		return failed("Run %s asks about question %s, not %s. Look at it first:\n  %s", run, q.Question, question, p.command("show", run))
	}
	p.say(terminal.NewForm(*q).Lines(p.width(), p.stderr.Style)...)
	reply.Question, reply.ArgumentsSHA256 = q.Question, q.ArgumentsSHA256
	return p.reply(client, bus.ReplyRequest{Run: run, Reply: reply})
}

func (p *program) width() int {
	width, _ := p.stderr.Dimensions()
	return width
}

// reply hands a reply in and says what came of it.
func (p *program) reply(client *bus.Client, request bus.ReplyRequest) error {
	request.By = p.link.User
	outcome, err := client.Reply(p.ctx, request)
	if err != nil {
		return p.explain(err)
	}
	message := sentence(outcome.Message)
	switch outcome.Status {
	case loop.OutcomeAccepted, loop.OutcomeDuplicate:
		p.say(cmp.Or(message, "Accepted."))
		return nil
	case loop.OutcomeInvalid:
		return usage("Run %s did not accept this: %s\nSee what it asks:\n  %s", request.Run, message, p.command("show", request.Run))
	default:
		return failed("This changed nothing: %s\nSee where the run stands:\n  %s", cmp.Or(message, sentence(outcome.Status)),
			p.command("show", request.Run))
	}
}

// Run orders the end of a run.
func (c *cancelCommand) Run(p *program) error {
	return p.control(c.ID, loop.Control{Op: loop.OpCancel, Reason: c.Reason}, "is being cancelled")
}

// Run orders a run to pause.
func (c *pauseCommand) Run(p *program) error {
	return p.control(c.ID, loop.Control{Op: loop.OpPause}, "is paused")
}

// Run orders a paused run to go on.
func (c *resumeCommand) Run(p *program) error {
	return p.control(c.ID, loop.Control{Op: loop.OpResume}, "goes on")
}

// control hands an order in and says what came of it.
func (p *program) control(run string, order loop.Control, done string) error {
	order.By = p.link.User
	return p.with(func(client *bus.Client) error {
		outcome, err := client.Control(p.ctx, bus.ControlRequest{Run: run, Control: order})
		switch {
		case err != nil:
			return p.explain(err)
		case outcome.Status == loop.OutcomeAccepted:
			p.say("Run " + run + " " + done + ".")
			return nil
		case outcome.Status == loop.OutcomeFinished:
			return failed("Run %s has ended already. See how:\n  %s", run, p.command("show", run))
		case outcome.Status == loop.OutcomeUnknown:
			return failed("There is no run %s (tenant %s). submit list shows the runs there are.", run, p.link.Tenant)
		default:
			return usage("Run %s did not take the order: %s", run, cmp.Or(sentence(outcome.Message), outcome.Status))
		}
	})
}
