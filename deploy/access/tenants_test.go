package access_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// TestATenantReachesNothingElse: whatever a user of the tenant evil publishes or subscribes to, nothing of acme or of the
// workers changes, and nothing of it is heard.
func TestATenantReachesNothingElse(t *testing.T) {
	for _, form := range []string{users, accounts} {
		t.Run(form, func(t *testing.T) {
			r := newRig(t, form)
			r.work(nil)
			acme := r.client("acme-submit", "acme")
			submit(t, acme, loop.Task{ID: "open", Goal: buy, Session: "chat"})
			events := r.as("acme-submit").hear("agent.event.acme.*.*")
			waitFor(t, acme, "open", loop.StatusWaiting)
			before := r.stored()
			intruders := []string{"evil-submit", "evil-bot"}
			if form == accounts {
				intruders = append(intruders, "root") // an account is a wall whatever its users may do
			}
			for _, user := range intruders {
				evil := r.as(user)
				reaches(t, r, evil)
				listens(t, r, evil)
			}
			if diff := cmp.Diff(before, r.stored()); diff != "" {
				t.Errorf("something was stored or removed (-before +after):\n%s", diff)
			}
			finish(t, acme, "open")
			events.wait(t, "agent.answer")
		})
	}
}

// foreign are subjects of others: of the tenant acme, of the workers, and of JetStream.
var foreign = []string{
	"agent.task.acme", "agent.reply.acme.open", "agent.control.acme.open",
	"agent.api.submit.acme", "agent.api.reply.acme", "agent.api.control.acme", "agent.api.get.acme", "agent.api.list.acme",
	"agent.api.events.acme", "agent.api.prompt.acme", "agent.api.schedules.acme", "agent.api.facts.acme",
	"agent.event.acme.open.step", "agent.event.acme.open.user", "agent.event.evil.mine.user", "agent.stream.acme.open",
	"agent.wake.0.acme.open", "agent.wake.n0.evil.mine", "agent.schedule.acme.open.run", "agent.schedule.evil._task.x",
	"agent.dead.acme.task", "agent.dead.evil.task", "agent.outcome.x", "agent.claimed.acme.open",
	"$KV.AGENT_RUNS.acme.open", "$KV.AGENT_SESSIONS.acme.chat", "$KV.AGENT_FACTS.x", "$KV.AGENT_TOOLS.x", "$KV.AGENT_PACE.x",
	"$O.AGENT_BLOBS.M.x", "$O.AGENT_BLOBS.C.x",
	"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.AGENT_EVENTS",
	"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.AGENT_TASKS", "$JS.API.STREAM.DELETE.AGENT_EVENTS",
	"$JS.API.STREAM.PURGE.AGENT_EVENTS", "$JS.API.STREAM.MSG.GET.AGENT_EVENTS", "$JS.API.STREAM.MSG.DELETE.AGENT_EVENTS",
	"$JS.API.DIRECT.GET.AGENT_EVENTS", "$JS.API.DIRECT.GET.KV_AGENT_RUNS.$KV.AGENT_RUNS.acme.open",
	"$JS.API.CONSUMER.CREATE.AGENT_EVENTS.mine", "$JS.API.CONSUMER.CREATE.AGENT_EVENTS.mine.agent.event.evil.>",
	"$JS.API.CONSUMER.DURABLE.CREATE.AGENT_EVENTS.mine", "$JS.API.CONSUMER.LIST.AGENT_TASKS",
	"$JS.API.CONSUMER.INFO.AGENT_TASKS.inbox", "$JS.API.CONSUMER.DELETE.AGENT_TASKS.inbox",
	"$JS.API.CONSUMER.MSG.NEXT.AGENT_TASKS.inbox", "$JS.API.CONSUMER.MSG.NEXT.AGENT_WAKE.wakes",
	"$JS.ACK.AGENT_WAKE.wakes.1.1.1.1.0", "$SRV.INFO", "$SRV.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ", "_R_.x", "_INBOX.worker.x",
	"_INBOX.tenant.acme.submit.x",
}

// reaches publishes to everything that is none of the tenant's business.
func reaches(t *testing.T, r *rig, evil *conn) {
	t.Helper()
	reached := newJournal()
	referee := r.overhear(func(msg *nats.Msg) {
		if msg.Header.Get("X-From") != "" {
			reached.add(msg.Subject)
		}
	})
	body := []byte(`{"run": "open", "op": "cancel", "goal": "x", "text": "0 shares"}`)
	for _, subject := range foreign {
		must(t, evil.PublishMsg(&nats.Msg{Subject: subject, Data: body, Reply: evil.NewInbox(), Header: nats.Header{"X-From": {"evil"}}}))
	}
	must(t, evil.Flush()) // the server has seen all of it
	must(t, referee.PublishMsg(&nats.Msg{Subject: "agent.event.x.x.x", Header: nats.Header{"X-From": {"referee"}}}))
	reached.wait(t, "agent.event.x.x.x")
	if lines := reached.with(""); len(lines) > 1 {
		t.Errorf("%s reached %v", evil.user, lines)
	}
	for _, subject := range foreign {
		if evil.user != "root" {
			evil.said.wait(t, fmt.Sprintf("Publish to %q", subject)) // the client tells of errors when it comes to it
		}
	}
}

// listens subscribes to everything that is none of the tenant's business, and is heard when it happens.
func listens(t *testing.T, r *rig, evil *conn) {
	t.Helper()
	wide := []string{
		">", "*.>", "agent.>", "agent.event.>", "agent.event.*.*.*", "agent.event.*.*.user", "agent.*.acme.>", "agent.task.*",
		"agent.reply.*.*", "agent.control.*.*", "agent.api.>", "agent.stream.*.*", "agent.outcome.*", "agent.claimed.*.*", "_INBOX.>",
		"_INBOX.*.>", "_INBOX.worker.>", "_INBOX.tenant.*.*.>", "$KV.>", "$JS.>", "$JS.EVENT.>", "$SRV.>", "$SYS.>", "_R_.>",
	}
	heard := newJournal()
	listen := func(msg *nats.Msg) {
		if strings.HasPrefix(msg.Subject, inbox(evil.user)+".") {
			return // a late answer to what it has asked
		}
		if !strings.Contains(string(msg.Data), `"acc":"evil","user":"root"`) { // the server's word on what root itself has asked
			heard.add(msg.Subject + " " + string(msg.Data))
		}
	}
	for _, subject := range append(slices.Clone(foreign), wide...) {
		_, err := evil.Subscribe(subject, listen)
		must(t, err)
		_, err = evil.QueueSubscribe(subject, "q", listen)
		must(t, err)
	}
	must(t, evil.Flush())
	acme := r.client("acme-submit", "acme")
	id := "beside-" + evil.user
	submit(t, acme, loop.Task{ID: id, Goal: sum})
	follow(t, acme, id, "42")
	must(t, evil.Flush())
	if lines := heard.with(""); len(lines) > 0 {
		t.Errorf("%s heard %d messages of others, such as %s", evil.user, len(lines), lines[0])
	}
}

// stored is what lies in the streams for acme's open run, and how the streams are set up.
func (r *rig) stored() map[string]string {
	r.t.Helper()
	_, js := r.referee()
	ctx := bustest.Context(r.t)
	found := r.configs()
	for stream, subject := range map[string]string{"AGENT_EVENTS": "agent.event.acme.open.*", "KV_AGENT_SESSIONS": "$KV.AGENT_SESSIONS.acme.chat"} {
		s, err := js.Stream(ctx, stream)
		must(r.t, err)
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
		must(r.t, err)
		found[subject] = fmt.Sprint(info.State.Subjects)
	}
	return found
}

// configs are the streams, as they are set up.
func (r *rig) configs() map[string]string {
	r.t.Helper()
	_, js := r.referee()
	found := map[string]string{}
	for info := range js.ListStreams(bustest.Context(r.t)).Info() {
		config, err := json.Marshal(info.Config)
		must(r.t, err)
		found[info.Config.Name] = string(config)
	}
	return found
}

// TestHeadersHaveNoPower: a tenant's own subjects take no header that reaches further.
func TestHeadersHaveNoPower(t *testing.T) {
	for _, form := range []string{users, accounts} {
		t.Run(form, func(t *testing.T) {
			r := newRig(t, form)
			_, js := r.referee()
			ctx := bustest.Context(t)
			setUp(t, r) // nobody takes what lies in the queue
			acme, evil := r.as("acme-bot"), r.as("evil-bot")
			_, err := acme.Request("agent.task.acme", []byte(`{"goal": "x"}`), patience)
			must(t, err)
			for _, header := range []nats.Header{
				{"Nats-Rollup": {"all"}},
				{"Nats-Rollup": {"sub"}},
				{"Nats-Schedule": {"@at 2000-01-01T00:00:00Z"}, "Nats-Schedule-Target": {"agent.control.acme.open"}},
				{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"agent.task.acme"}},
				{"Nats-TTL": {"1s"}},
				{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}},
				{"Nats-Incr": {"+1"}},
			} {
				answer, err := evil.RequestMsg(&nats.Msg{Subject: "agent.task.evil", Header: header, Data: []byte(`{"goal": "x"}`)}, patience)
				must(t, err)
				if !strings.Contains(string(answer.Data), `"error"`) {
					t.Errorf("%v was taken: %s", header, answer.Data)
				}
			}
			s, err := js.Stream(ctx, "AGENT_TASKS")
			must(t, err)
			info, err := s.Info(ctx, jetstream.WithSubjectFilter("agent.>"))
			must(t, err)
			var subjects []string
			for subject := range info.State.Subjects {
				subjects = append(subjects, subject[strings.LastIndexByte(subject, '.')+1:])
			}
			if diff := cmp.Diff([]string{"acme"}, subjects); diff != "" {
				t.Errorf("the queue holds tasks of (-want +got):\n%s", diff)
			}
		})
	}
}

// setUp makes the streams as the worker's user, without a worker that takes anything.
func setUp(t *testing.T, r *rig) {
	t.Helper()
	nc, err := bus.Connect(bustest.Context(t), bus.ConnectOptions{URL: r.url("worker"), InboxPrefix: inbox("worker")})
	must(t, err)
	t.Cleanup(nc.Close)
	bustest.Open(t, nc, bus.Options{})
}

// waitFor waits until a run has a status, and returns its state.
func waitFor(t *testing.T, client *bus.Client, run string, status loop.Status) loop.Head {
	t.Helper()
	ctx := bustest.Context(t)
	for {
		h, err := client.Get(ctx, run)
		if ctx.Err() != nil {
			t.Fatalf("run %s is %s, not %s: %v", run, h.Status, status, err)
		}
		if err == nil && h.Status == status {
			return h
		}
	}
}

// waitPast waits until a run has gone on from a state.
func waitPast(t *testing.T, client *bus.Client, then loop.Head) {
	t.Helper()
	ctx := bustest.Context(t)
	for {
		h, err := client.Get(ctx, then.Run)
		must(t, err)
		if h.N > then.N && h.Question != nil && h.Question.Question != then.Question.Question || h.Status == loop.StatusDone {
			return
		}
	}
}
