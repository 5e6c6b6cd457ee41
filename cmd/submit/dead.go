package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/terminal"
)

// Run does with dead letters what the action says.
func (c *deadCommand) Run(p *program) error {
	many := c.Action == "redrive" || c.Action == "drop"
	switch {
	case c.Action == "list" && len(c.Seq) > 0:
		return usage("dead list takes no number. To look at one dead letter: submit dead show %d", c.Seq[0])
	case c.All && (!many || len(c.Seq) > 0):
		return usage("--all goes with redrive or drop, and in place of numbers.")
	case c.AllTenants && c.Action != "list" && !c.All:
		return usage("--all-tenants goes with list, or with --all.")
	case c.Action != "list" && len(c.Seq) == 0 && !c.All:
		return usage("Which one? submit dead lists dead letters with their numbers.")
	}
	conn, err := p.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(p.ctx, deadLookUp)
	defer cancel()
	b, err := bus.Attach(ctx, conn, bus.Options{Prefix: p.link.Prefix})
	if err != nil {
		return problem{codeUnreachable, "The dead letters under prefix " + p.link.Prefix + " at " + p.link.where() + " can't be reached: " +
			err.Error() + ".\nHas a worker been started there? Does the NATS user have JetStream? Dead letters are for operators."}
	}
	defer b.Close()
	if c.Action == "list" {
		return c.list(p, b)
	}
	return c.eachOne(p, b)
}

// deadLookUp bounds the wait for JetStream: where it is forbidden, there is no answer.
const deadLookUp = 4 * time.Second

// tenant is whose dead letters are meant; empty for all.
func (c *deadCommand) tenant(p *program) string {
	if c.AllTenants {
		return ""
	}
	return p.link.Tenant
}

// letters reads all dead letters that are meant.
func (c *deadCommand) letters(p *program, b *bus.Bus) ([]bus.DeadLetter, error) {
	var all []bus.DeadLetter
	for after := uint64(0); ; {
		page, next, err := b.DeadList(p.ctx, c.tenant(p), after, listPage)
		if err != nil {
			return nil, p.explain(err)
		}
		for i := range page {
			page[i].Payload = nil // it may be large; show has it
		}
		all = append(all, page...)
		if next == 0 {
			return all, nil
		}
		after = next
	}
}

func (c *deadCommand) list(p *program, b *bus.Bus) error {
	letters, err := c.letters(p, b)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, d := range letters {
		if c.JSON {
			if err := p.printJSON(d); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			strconv.FormatUint(d.Seq, 10), d.Tenant, string(d.Kind), d.Run, d.Stored.Local().Format(time.DateTime), d.Reason, d.Error,
		})
	}
	if backlog, err := b.Backlog(p.ctx); err == nil && backlog.Dead > uint64(len(letters)) {
		p.say(fmt.Sprintf("There are %d dead letters of other tenants: submit dead --all-tenants", backlog.Dead-uint64(len(letters))))
	}
	if len(letters) == 0 && !c.JSON {
		whose := "."
		if !c.AllTenants {
			whose = " of tenant " + p.link.Tenant + "."
		}
		p.say("There are no dead letters" + whose)
	}
	return c.table(p, rows)
}

func (c *deadCommand) table(p *program, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	width := 0
	if p.stdout.Is {
		width, _ = p.stdout.Dimensions()
	}
	titles := []string{"NUMBER", "TENANT", "KIND", "RUN", "STORED", "REASON", "ERROR"}
	for _, line := range terminal.Table(titles, rows, width, p.stdout.Style) {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}

// eachOne does one thing with each dead letter that is meant. What fails for one does not keep it from the others.
func (c *deadCommand) eachOne(p *program, b *bus.Bus) error {
	seqs := c.Seq
	if c.All {
		letters, err := c.letters(p, b)
		if err != nil {
			return err
		}
		for _, d := range letters {
			seqs = append(seqs, d.Seq)
		}
		if len(seqs) == 0 {
			p.say("There are no dead letters to " + c.Action + ".")
		}
	}
	failures := 0
	for _, seq := range seqs {
		err := c.one(p, b, seq)
		if err == nil {
			continue
		}
		failures++
		if errors.Is(err, loop.ErrNotFound) {
			err = fmt.Errorf("there is no dead letter %d; submit dead lists those there are", seq)
		}
		p.say(sentence(terminal.Clean(err.Error())))
	}
	if failures > 0 {
		return failed("%d of %d failed.", failures, len(seqs))
	}
	return nil
}

func (c *deadCommand) one(p *program, b *bus.Bus, seq uint64) error {
	var d bus.DeadLetter
	var err error
	done := ""
	switch c.Action {
	case "show":
		d, err = b.DeadShow(p.ctx, seq)
	case "redrive":
		d, err = b.DeadRedrive(p.ctx, seq)
		done = fmt.Sprintf("Dead letter %d, a %s, is back in the queue.", seq, d.Kind)
		if d.Again != "" {
			done = fmt.Sprintf("Dead letter %d is back in the queue, as run %s.", seq, d.Again)
		}
	case "drop":
		d, err = b.DeadDrop(p.ctx, seq)
		done = fmt.Sprintf("Dead letter %d, a %s, is gone.", seq, d.Kind)
	}
	switch {
	case err != nil && (c.Action != "show" || d.Seq == 0):
		return err
	case c.JSON:
		return errors.Join(p.printJSON(d), err)
	case c.Action == "show":
		return errors.Join(c.page(p, d), err) // the payload may be missing, the rest is there
	}
	p.say(done)
	return nil
}

// page shows one dead letter: what it says of itself, and the payload.
func (c *deadCommand) page(p *program, d bus.DeadLetter) error {
	style := p.stdout.Style
	lines := []string{style.Bold(fmt.Sprintf("dead letter %d", d.Seq)) + "  " + style.Bad(terminal.Clean(d.Reason)), ""}
	lines = append(lines, p.fit(p.stdout, []string{terminal.Clean(d.Error)})...)
	lines = append(lines, "")
	facts := [][2]string{
		{"subject", d.Subject},
		{"tenant", d.Tenant},
		{"run", d.Run},
		{"stored", d.Stored.Local().Format(time.DateTime)},
		{"deliveries", strconv.FormatUint(d.Deliveries, 10)},
	}
	if d.Redriven > 0 {
		facts = append(facts, [2]string{"redriven", strconv.Itoa(d.Redriven)})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Header)) {
		facts = append(facts, [2]string{"header", name + ": " + strings.Join(d.Header[name], ", ")})
	}
	if d.Dropped {
		facts = append(facts, [2]string{"headers", "too large to keep"})
	}
	for _, f := range facts {
		if f[1] != "" {
			lines = append(lines, fmt.Sprintf("  %-11s %s", f[0], terminal.Clean(f[1])))
		}
	}
	lines = append(lines, "", payloadText(d.Payload), "",
		"Try it again or remove it:", "  "+p.command("dead", "redrive", strconv.FormatUint(d.Seq, 10)),
		"  "+p.command("dead", "drop", strconv.FormatUint(d.Seq, 10)))
	for _, line := range lines {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}

// payloadText shows a payload: it may be anything at all.
func payloadText(payload []byte) string {
	switch {
	case len(payload) == 0:
		return "(no payload)"
	case !utf8.Valid(payload):
		return fmt.Sprintf("(%d bytes that are no text; --json has them in base64)", len(payload))
	case len(payload) > payloadShown:
		return terminal.CleanBlock(strings.ToValidUTF8(string(payload[:payloadShown]), "")) +
			fmt.Sprintf("\n… (%d bytes; --json has them all)", len(payload))
	default:
		return terminal.CleanBlock(string(payload))
	}
}

// payloadShown is how much of a payload is shown, in bytes.
const payloadShown = 4 << 10
