package access_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// astray are subjects of others to which a tenant may want an answer to go that somebody else sends: the server, which
// acknowledges what it has stored, or a worker.
var astray = append([]string{
	"agent.wake.g0.acme.open", "agent.wake.0._._sweep", "agent.schedule.acme.open.timeout", "$JS.API.STREAM.PURGE.KV_AGENT_RUNS",
	"$JS.API.STREAM.PURGE.AGENT_WAKE", "$JS.API.STREAM.DELETE.AGENT_DEAD", "$JS.ACK.AGENT_TASKS.inbox.1.1.1.1.0",
}, foreign...)

// send has an acknowledgement, a refusal in the words of a lost compare-and-set, and answers of the API sent to a subject.
func (c *conn) send(reply string) {
	c.t.Helper()
	task := []byte(`{"goal": "What is 17 plus 25?"}`)
	for _, msg := range []*nats.Msg{
		{Subject: "agent.task.evil", Data: task},
		{Subject: "agent.task.evil", Data: task, Header: nats.Header{"Nats-Expected-Last-Sequence": {"77"}}},
		{Subject: "agent.api.submit.evil", Data: task},
		{Subject: "agent.api.list.evil"},
		{Subject: "agent.api.events.evil", Data: []byte(`{"road": "all"}`)},
		{Subject: "agent.api.get.evil", Data: []byte(`{"run": "none"}`)},
	} {
		msg.Reply = reply
		must(c.t, c.PublishMsg(msg))
	}
	must(c.t, c.Flush())
}

// TestAnswersThatGoAstray: within one account the server sends an acknowledgement wherever its publisher says. Nothing that
// such a message can hold makes a worker believe, start, answer, end or lose anything of another tenant's run.
func TestAnswersThatGoAstray(t *testing.T) {
	r := newRig(t, users)
	n := r.work(nil)
	acme, evil := r.client("acme-submit", "acme"), r.as("evil-bot")
	submit(t, acme, loop.Task{ID: "open", Goal: buy, Session: "chat"})
	asked := waitFor(t, acme, "open", loop.StatusWaiting)
	before := journalOf(t, acme, "open")
	config := r.configs()

	answers := newJournal()
	r.overhear(func(msg *nats.Msg) {
		if slices.Contains(astray, msg.Subject) && strings.Contains(string(msg.Data), `"events":`) {
			answers.add(msg.Subject) // the server's acknowledgements can't be kept from it, an answer of the API can
		}
	})
	for _, subject := range astray {
		evil.send(subject)
	}
	dead := waitForDead(t, n.Bus(), "acme", "task", "control")
	for _, d := range dead {
		if d.Reason != "" && !strings.HasPrefix(d.Reason, "invalid_") { // without a reason it is the acknowledgement itself
			t.Errorf("an acknowledgement became the dead letter %s: %s", d.Reason, d.Error)
		}
	}
	for _, subject := range answers.with("") {
		if !strings.HasPrefix(subject, "_INBOX.") {
			t.Errorf("a worker answered a request on %s", subject)
		}
	}
	if diff := cmp.Diff(config, r.configs()); diff != "" {
		t.Errorf("streams changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, journalOf(t, acme, "open")); diff != "" {
		t.Errorf("the run's events changed (-before +after):\n%s", diff)
	}
	now := waitFor(t, acme, "open", loop.StatusWaiting)
	if now.N != asked.N || now.Question == nil || now.Question.Question != asked.Question.Question {
		t.Errorf("the run's state is %+v", now)
	}
	finish(t, acme, "open")
	must(t, n.Bus().Ready(bustest.Context(t)))
}

// TestAccountsKeepAnswersIn: with an account for each tenant, a reply subject is one of the publisher's own account.
func TestAccountsKeepAnswersIn(t *testing.T) {
	r := newRig(t, accounts)
	r.work(nil)
	acme := r.client("acme-submit", "acme")
	submit(t, acme, loop.Task{ID: "open", Goal: buy})
	waitFor(t, acme, "open", loop.StatusWaiting)
	crossed := newJournal()
	r.overhear(func(msg *nats.Msg) {
		if slices.Contains(astray, msg.Subject) && (strings.HasPrefix(string(msg.Data), `{"stream":"AGENT_TASKS"`) || strings.Contains(string(msg.Data), `"events":`)) {
			crossed.add(msg.Subject)
		}
	})
	evil := r.as("root")
	own := evil.hear(astray[len(astray)-1])
	for _, subject := range astray {
		evil.send(subject)
	}
	own.wait(t, "AGENT_TASKS") // it did get there, in its own account
	for _, subject := range crossed.with("") {
		t.Errorf("an answer crossed over to %s", subject)
	}
	finish(t, acme, "open")
}

// finish answers what the run asks.
func finish(t *testing.T, client *bus.Client, run string) {
	t.Helper()
	for _, answer := range []string{"200 shares.", "56.30 USD."} {
		asked := waitFor(t, client, run, loop.StatusWaiting)
		_, err := client.Reply(bustest.Context(t), bus.ReplyRequest{Run: run, Reply: loop.Reply{Question: asked.Question.Question, Text: answer}})
		must(t, err)
		waitPast(t, client, asked)
	}
	follow(t, client, run, "200")
}

// journalOf is what the API shows of a run.
func journalOf(t *testing.T, client *bus.Client, run string) (types []string) {
	t.Helper()
	page, err := client.Events(bustest.Context(t), bus.EventsRequest{Run: run})
	must(t, err)
	for _, raw := range page.Events {
		var e struct {
			ID, Type string
		}
		must(t, json.Unmarshal(raw, &e))
		types = append(types, e.ID+" "+e.Type)
	}
	return types
}

// waitForDead waits until there is a dead letter of each kind, and returns all of the tenant.
func waitForDead(t *testing.T, b *bus.Bus, tenant string, kinds ...loop.DeliveryKind) []bus.DeadLetter {
	t.Helper()
	ctx := bustest.Context(t)
	for {
		dead, _, err := b.DeadList(ctx, tenant, 0, 1000)
		must(t, err)
		missing := slices.ContainsFunc(kinds, func(kind loop.DeliveryKind) bool {
			return !slices.ContainsFunc(dead, func(d bus.DeadLetter) bool { return d.Kind == kind })
		})
		if !missing {
			return dead
		}
	}
}
