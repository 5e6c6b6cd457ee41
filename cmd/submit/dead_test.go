package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// burial starts a worker and has it put messages aside: a task of default, one of acme, and a reply. It returns the
// URL of the server.
func burial(t *testing.T) string {
	t.Helper()
	s := bustest.Server(t)
	work(t, s)
	nc := bustest.Connect(t, s)
	b, err := bus.Attach(bustest.Context(t), nc, bus.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	for i, msg := range []*nats.Msg{
		{Subject: "agent.task.default", Data: []byte(`{"goal": "` + sum + `", "strategy": "wishful"}`), Header: nats.Header{"Nats-Msg-Id": {"order-1"}}},
		{Subject: "agent.task.acme", Data: []byte("no \x1b[31mJSON"), Header: nats.Header{"X-From": {"a bot"}}},
		{Subject: "agent.reply.default.nobody", Data: []byte(`{"text": "yes"}`)},
	} {
		if _, err := nc.RequestMsgWithContext(bustest.Context(t), msg); err != nil {
			t.Fatal(err)
		}
		waitForDead(t, b, i+1)
	}
	return s.URL()
}

// waitForDead waits until there are as many dead letters, and returns them.
func waitForDead(t *testing.T, b *bus.Bus, count int) []bus.DeadLetter {
	t.Helper()
	ctx := bustest.Context(t)
	for {
		letters, _, err := b.DeadList(ctx, "", 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(letters) == count {
			return letters
		}
	}
}

func TestDeadListAndShow(t *testing.T) {
	url := burial(t)
	listed := submit(t, "", "dead", "--nats", url)
	listed.want(t, codeAnswered)
	lines := strings.Split(strings.TrimSpace(listed.stdout), "\n")
	if len(lines) != 3 || strings.Fields(lines[0])[0] != "NUMBER" {
		t.Errorf("the list is:\n%s", listed.stdout)
	}
	contains(t, listed.stdout, "invalid_task", `strategy "wishful"`, "order-1", "unknown_run", "nobody")
	contains(t, listed.stderr, "1 dead letters of other tenants", "--all-tenants")

	none := submit(t, "", "dead", "list", "--nats", url, "--tenant", "empty")
	none.want(t, codeAnswered)
	contains(t, none.stderr, "There are no dead letters of tenant empty.")

	shown := submit(t, "", "dead", "show", "2", "--nats", url)
	shown.want(t, codeAnswered)
	contains(t, shown.stdout, "dead letter 2", "invalid_task", "agent.task.acme", "X-From: a bot", "JSON", "submit dead --nats "+url+" redrive 2")
	if strings.Contains(shown.stdout, "\x1b") {
		t.Errorf("what a stranger wrote reaches the terminal: %q", shown.stdout)
	}

	var got []string
	for line := range strings.Lines(submit(t, "", "dead", "--all-tenants", "--json", "--nats", url).stdout) {
		var d bus.DeadLetter
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		got = append(got, d.Tenant+"/"+d.Run+" "+string(d.Kind)+" "+d.Reason)
	}
	if len(got) == 3 {
		got[1] = strings.Replace(got[1], strings.Fields(strings.Split(got[1], "/")[1])[0], "ID", 1) // derived from the place
	}
	want := []string{"default/order-1 task invalid_task", "acme/ID task invalid_task", "default/nobody reply unknown_run"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A task that is redriven is a run of its own, and says of which it is a repeat.
func TestDeadRedrive(t *testing.T) {
	url := burial(t)
	redriven := submit(t, "", "dead", "redrive", "1", "--nats", url)
	redriven.want(t, codeAnswered)
	contains(t, redriven.stderr, "as run order-1-r1")
	submit(t, "", "events", "order-1-r1", "--follow", "--nats", url).want(t, codeFailed) // its strategy is still wishful

	b := attach(t, url)
	letters := waitForDead(t, b, 3)
	last := letters[2]
	if last.Run != "order-1" || last.Redriven != 1 {
		t.Errorf("the dead letter of the redriven task is %+v", last)
	}
	all := submit(t, "", "dead", "redrive", "--all", "--nats", url, "--json")
	all.want(t, codeAnswered)
	contains(t, all.stdout, `"again":"order-1-r2"`, `"kind":"reply"`)
	submit(t, "", "events", "order-1-r2", "--follow", "--nats", url).want(t, codeFailed)

	// A task that a worker can accept by now: it names itself the repeat.
	waitForDead(t, b, 3)
	deliver := loop.Delivery{
		Kind: loop.DeliverTask, RunID: loop.RunID{Tenant: "acme"}, Subject: "agent.task.acme", Stream: "AGENT_TASKS", Seq: 99,
		DefaultID: "late-1", Body: []byte(`{"goal": "` + sum + `"}`),
	}
	if err := b.Bury(bustest.Context(t), deliver, "failed", "the disk was full"); err != nil {
		t.Fatal(err)
	}
	letters = waitForDead(t, b, 4)
	if _, err := b.DeadRedrive(bustest.Context(t), letters[3].Seq); err != nil {
		t.Fatal(err)
	}
	follow := submit(t, "", "events", "late-1-r1", "--follow", "--json", "--tenant", "acme", "--nats", url)
	follow.want(t, codeAnswered)
	contains(t, strings.Split(follow.stdout, "\n")[0], `"redrive_of":"late-1"`)
}

func attach(t *testing.T, url string) *bus.Bus {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b, err := bus.Attach(bustest.Context(t), nc, bus.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestDeadDrop(t *testing.T) {
	url := burial(t)
	dropped := submit(t, "", "dead", "drop", "--all", "--nats", url)
	dropped.want(t, codeAnswered)
	contains(t, dropped.stderr, "Dead letter 1, a task, is gone.", "Dead letter 3, a reply, is gone.")
	again := submit(t, "", "dead", "drop", "1", "2", "--nats", url)
	again.want(t, codeFailed)
	contains(t, again.stderr, "There is no dead letter 1", "Dead letter 2, a task, is gone.", "1 of 2 failed")
	submit(t, "", "dead", "drop", "--all", "--all-tenants", "--nats", url).want(t, codeAnswered)
	if left := submit(t, "", "dead", "--json", "--all-tenants", "--nats", url); left.stdout != "" {
		t.Errorf("there is %s", left.stdout)
	}
}

func TestDeadWrongUsage(t *testing.T) {
	for _, args := range []string{
		"dead show", "dead redrive", "dead drop", "dead show one", "dead revive 1", "dead list 1", "dead show --all", "dead redrive 1 --all",
		"dead drop 1 --all-tenants",
	} {
		if o := submit(t, "", strings.Fields(args)...); o.code != codeUsage || o.stdout != "" {
			t.Errorf("submit %s: exit code %d, %s%s", args, o.code, o.stdout, o.stderr)
		}
	}
}

func TestDeadWithoutStreams(t *testing.T) {
	o := submit(t, "", "dead", "--nats", bustest.Server(t).URL())
	o.want(t, codeUnreachable)
	contains(t, o.stderr, "under prefix agent", "Has a worker been started there?")
}
