package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
)

// TestEverybodyCanWork: each user can do what it is there for, in both forms, and the worker may publish nothing that it
// does not use.
func TestEverybodyCanWork(t *testing.T) {
	for _, form := range []string{users, accounts} {
		t.Run(form, func(t *testing.T) {
			r := newRig(t, form)
			used := r.watch()
			n := r.work(func(o *node.Options) { o.Keep = time.Second })
			submitterWorks(t, r)
			botWorks(t, r)
			readerWorks(t, r)
			workerWorks(t, r, n)
			operatorWorks(t, r)
			used.wait(t, "$JS.API.STREAM.PURGE.AGENT_EVENTS") // a run has expired
			if form == users {
				checkUsed(t, r, used)
			}
		})
	}
}

// watch collects the subjects of all that is published where the workers are.
func (r *rig) watch() *journal {
	r.t.Helper()
	used := newJournal()
	var seen sync.Map
	r.overhear(func(msg *nats.Msg) {
		if _, known := seen.LoadOrStore(msg.Subject, true); !known {
			used.add(msg.Subject)
		}
	})
	return used
}

func submitterWorks(t *testing.T, r *rig) {
	t.Helper()
	ctx := bustest.Context(t)
	client := r.client("acme-submit", "acme")
	submit(t, client, loop.Task{ID: "s1", Goal: sum, Session: "chat"})
	follow(t, client, "s1", "17 plus 25 is 42")
	_, err := client.GetSession(ctx, "chat")
	must(t, err)
	_, err = client.List(ctx, bus.ListRequest{})
	must(t, err)
	_, err = client.Facts(ctx, bus.FactsRequest{Op: "add", User: "ada", Text: "Ada likes tea."})
	must(t, err)
	facts, err := client.Facts(ctx, bus.FactsRequest{Op: "list", User: "ada"})
	must(t, err)
	if len(facts.Facts) != 1 {
		t.Fatalf("facts: %+v", facts)
	}
	_, err = client.Facts(ctx, bus.FactsRequest{Op: "forget_all", User: "ada"})
	must(t, err)
	submit(t, client, loop.Task{ID: "s2", Goal: buy})
	_, err = client.Control(ctx, bus.ControlRequest{Run: "s2", Control: loop.Control{Op: "cancel"}})
	must(t, err)
	submit(t, client, loop.Task{ID: "later", Goal: sum, NotBefore: "2100-01-01T00:00:00Z"})
	for { // the door stores it
		page, err := client.Schedules(ctx, bus.SchedulesRequest{})
		must(t, err)
		if len(page.Schedules) == 1 {
			break
		}
	}
	_, err = client.Schedules(ctx, bus.SchedulesRequest{Op: "remove", ID: "later"})
	must(t, err)
}

// botWorks is a conversation over plain subjects, as a chat bot has it.
func botWorks(t *testing.T, r *rig) {
	t.Helper()
	bot := r.as("acme-bot")
	events := bot.hear("agent.event.acme.*.user")
	ack, err := bot.Request("agent.task.acme", []byte(`{"id": "b1", "goal": "`+buy+`"}`), patience)
	must(t, err)
	if !strings.Contains(string(ack.Data), `"stream":"AGENT_TASKS"`) {
		t.Fatalf("the task was acknowledged with %s", ack.Data)
	}
	events.wait(t, "How many shares")
	must(t, bot.Publish("agent.reply.acme.b1", []byte(`{"text": "200 shares."}`)))
	events.wait(t, "At what price")
	_, err = bot.Request("agent.api.reply.acme", []byte(`{"run": "b1", "text": "56.30 USD."}`), patience)
	must(t, err)
	events.wait(t, "agent.answer")
	answer, err := bot.Request("agent.api.events.acme", []byte(`{"run": "b1", "road": "user"}`), patience)
	must(t, err)
	if !strings.Contains(string(answer.Data), "agent.answer") {
		t.Errorf("the API's events are %s", answer.Data)
	}
	if lines := bot.said.with(""); len(lines) > 0 {
		t.Errorf("the bot may not: %s", lines)
	}
}

func readerWorks(t *testing.T, r *rig) {
	t.Helper()
	ctx := bustest.Context(t)
	reader := r.as("reader")
	reader.hear("agent.event.*.*.*")
	client, err := bus.NewClient(reader.Conn, "", "acme")
	must(t, err)
	page, err := client.Events(ctx, bus.EventsRequest{})
	must(t, err)
	if len(page.Events) == 0 {
		t.Error("the reader sees no events")
	}
	_, err = client.List(ctx, bus.ListRequest{})
	must(t, err)
	for _, subject := range []string{"$JS.API.STREAM.INFO.AGENT_EVENTS", "$JS.API.CONSUMER.LIST.AGENT_TASKS"} {
		_, err := reader.Request(subject, nil, patience)
		must(t, err)
	}
	if lines := reader.said.with(""); len(lines) > 0 {
		t.Errorf("the reader may not: %s", lines)
	}
}

// workerWorks does what a worker does in rarer cases: large results, dead letters, the console.
func workerWorks(t *testing.T, r *rig, n *node.Node) {
	t.Helper()
	ctx := bustest.Context(t)
	b := n.Bus()
	large := strings.Repeat("x", 3<<20) // more than one chunk, and flow control while it is read
	must(t, b.PutBlob(ctx, "acme/s1/c1", []byte(large)))
	got, err := b.GetBlob(ctx, "acme/s1/c1")
	must(t, err)
	if len(got) != len(large) {
		t.Errorf("a blob of %d bytes has %d", len(large), len(got))
	}
	must(t, b.DeleteBlobs(ctx, loop.RunID{Tenant: "acme", Run: "s1"}))
	if _, err := b.GetCatalogue(ctx, strings.Repeat("0", 64)); !errors.Is(err, loop.ErrNotFound) {
		t.Errorf("a catalogue that there is not: %v", err)
	}
	pace, err := b.Pace(ctx)
	must(t, err)
	pace.Hold(ctx, "endpoint", time.Now().Add(time.Minute))
	_ = pace.NotBefore(ctx, "endpoint")
	pace.Close()
	must(t, b.Ready(ctx))
	_, err = b.Overview(ctx)
	must(t, err)
	b.Claimed(loop.RunID{Tenant: "acme", Run: "s1"}, "w1")
	for _, page := range []string{"/", "/system", "/readyz", "/metrics"} {
		answer, err := http.Get(n.HTTP() + page)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", page, answer.Status)
		}
	}
}

func operatorWorks(t *testing.T, r *rig) {
	t.Helper()
	ctx := bustest.Context(t)
	operator := r.as("operator")
	for range 2 {
		_, err := operator.Request("agent.task.evil", []byte(`{"goal": ""}`), patience)
		must(t, err)
	}
	b, err := bus.Attach(ctx, operator.Conn, bus.Options{})
	must(t, err)
	defer b.Close()
	var dead []bus.DeadLetter
	for len(dead) < 2 {
		dead, _, err = b.DeadList(ctx, "evil", 0, 10)
		must(t, err)
	}
	_, err = b.DeadRedrive(ctx, dead[0].Seq)
	must(t, err)
	_, err = b.DeadDrop(ctx, dead[1].Seq)
	must(t, err)
	if lines := operator.said.with(""); len(lines) > 0 {
		t.Errorf("the operator may not: %s", lines)
	}
}

// hear collects what comes on a subject.
func (c *conn) hear(subject string) *journal {
	c.t.Helper()
	heard := newJournal()
	_, err := c.Subscribe(subject, func(msg *nats.Msg) { heard.add(msg.Subject + " " + string(msg.Data)) })
	must(c.t, err)
	must(c.t, c.Flush())
	return heard
}

func submit(t *testing.T, client *bus.Client, task loop.Task) {
	t.Helper()
	body, err := json.Marshal(task)
	must(t, err)
	_, err = client.Submit(bustest.Context(t), body)
	must(t, err)
}

// follow waits for a run's answer.
func follow(t *testing.T, client *bus.Client, run, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(bustest.Context(t), patience)
	defer cancel()
	last := ""
	must(t, client.Follow(ctx, run, 1, func(e loop.Event) error {
		if a, ok := e.Data.(loop.Answer); ok {
			last = a.Answer
		}
		return nil
	}))
	if !strings.Contains(last, answer) {
		t.Errorf("the answer of %s is %q", run, last)
	}
}

// rare may be published by a worker and is not in this test: what makes streams anew after somebody deleted or changed
// them, what an earlier version left, what reads of replicated or trimmed streams ask the leader, what --max-waiting takes to
// count, and the forms of subjects that servers to come use.
var rare = []string{
	"$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.MSG.DELETE.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.KV_AGENT_PACE.>",
	"$JS.API.DIRECT.GET.AGENT_WAKE",
	"$JS.ACK.*.*.*.>", "$JS.FC.>",
}

// checkUsed fails where the worker's user may publish what nobody did while everything was done.
func checkUsed(t *testing.T, r *rig, used *journal) {
	t.Helper()
	for _, allowed := range r.allowed("worker", "publish") {
		if slices.ContainsFunc(rare, func(pattern string) bool { return covers(pattern, allowed) }) {
			continue
		}
		if !slices.ContainsFunc(used.with(""), func(subject string) bool { return covers(allowed, subject) }) {
			t.Errorf("the worker may publish %s and does not need it", allowed)
		}
	}
}

// allowed is what a user may publish or subscribe to.
func (r *rig) allowed(user, kind string) []string {
	r.t.Helper()
	config, _, err := print(r.t, nil, r.form, "acme", "evil")
	must(r.t, err)
	_, rest, found := strings.Cut(config, fmt.Sprintf("user: %q", user))
	_, rest, _ = strings.Cut(rest, kind+": [")
	list, _, _ := strings.Cut(rest, "]")
	if !found {
		r.t.Fatalf("there is no user %s", user)
	}
	var subjects []string
	for _, line := range strings.Fields(list) {
		subjects = append(subjects, strings.Trim(line, `"`))
	}
	return subjects
}

// covers reports whether a pattern of subjects covers a subject.
func covers(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		if token == ">" {
			return len(have) > i
		}
		if i >= len(have) || token != "*" && token != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}
