package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/terminal"
)

// collectTimeout bounds one collection; what it does not reach, the next one does.
const collectTimeout = time.Hour

// Run finds, and unless it is a dry run removes, what is left of runs.
func (c *gcCommand) Run(p *program) error {
	if c.Keep < 0 {
		return usage("--keep %s is not valid: use 0 or more.", c.Keep)
	}
	conn, err := p.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	attaching, cancel := context.WithTimeout(p.ctx, deadLookUp)
	defer cancel()
	b, err := bus.Attach(attaching, conn, bus.Options{Prefix: p.link.Prefix})
	if err != nil {
		return problem{codeUnreachable, "What is stored under prefix " + p.link.Prefix + " at " + p.link.where() + " can't be reached: " +
			err.Error() + ".\nHas a worker been started there? Does the NATS user have JetStream? Clearing away is for operators."}
	}
	defer b.Close()
	ctx, stop := signal.NotifyContext(p.ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	bounded, end := context.WithTimeout(ctx, collectTimeout)
	defer end()
	found, err := b.Collect(bounded, bus.CollectOptions{Keep: c.Keep, Remove: !c.DryRun})
	if shown := c.show(p, found, err == nil); shown != nil {
		return shown
	}
	switch {
	case ctx.Err() != nil:
		return problem{codeInterrupted, "Interrupted; what was removed is gone, and the same command goes on with the rest."}
	case errors.Is(err, context.DeadlineExceeded):
		return failed("It was not done within %s; the same command goes on with the rest: %v.", collectTimeout, err)
	case err != nil:
		return failed("Not all of it could be looked at or removed: %v.", err)
	}
	return nil
}

// show prints what was found. whole says that all was looked at.
func (c *gcCommand) show(p *program, found bus.Collection, whole bool) error {
	var rows [][]string
	goes := 0
	for _, l := range found.Litter {
		if c.JSON {
			if err := p.printJSON(l); err != nil {
				return err
			}
		}
		what := "removed"
		switch {
		case l.Stays != "":
			what = "stays: " + l.Stays
		case c.DryRun:
			what = "would be removed"
			fallthrough
		default:
			goes += l.Count
		}
		rows = append(rows, []string{terminal.Thousands(l.Count), bytesText(l.Bytes), l.What, what})
	}
	if !c.JSON && len(rows) > 0 {
		width := 0
		if p.stdout.Is {
			width, _ = p.stdout.Dimensions()
		}
		for _, line := range terminal.Table([]string{"NUMBER", "SIZE", "WHAT", ""}, rows, width, p.stdout.Style) {
			if err := p.print(line); err != nil {
				return err
			}
		}
	}
	switch {
	case goes == 0 && whole:
		p.say("There is nothing to clear away.")
	case c.DryRun && goes > 0:
		p.say("Nothing was removed. To remove it:", "  "+p.command("gc", flag(nil, "--keep", c.Keep.String(), defaultKeep.String())...))
	case goes > found.Removed && goes > 0:
		p.say(fmt.Sprintf("%s of %s were removed; the others are in use again, or could not be.", terminal.Thousands(found.Removed), terminal.Thousands(goes)))
	}
	return nil
}

// defaultKeep is how long workers keep runs that have ended, unless they are told otherwise.
const defaultKeep = 168 * time.Hour

// bytesText writes a size for a person.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatUint(n, 10) + " B"
	}
	size, at := float64(n)/unit, 0
	for size >= unit && at < 4 {
		size, at = size/unit, at+1
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGTP"[at])
}
