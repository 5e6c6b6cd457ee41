package bus_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// bury publishes a message, has it buried, and returns the sequence of its dead letter.
func bury(t *testing.T, nc *nats.Conn, b *bus.Bus, reason string, msg *nats.Msg) uint64 {
	t.Helper()
	ctx := bustest.Context(t)
	publish(t, nc, msg)
	d := fetchOne(t, b.Inbox())
	must(t, b.Bury(ctx, d, reason, "it is of no use"))
	must(t, d.Settler.Ack(ctx))
	all, _, err := b.DeadList(ctx, "", 0, 1000)
	must(t, err)
	return all[len(all)-1].Seq
}

func TestDeadList(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	before := time.Now()
	for i := range 5 {
		tenant := []string{"acme", "other"}[i%2]
		bury(t, nc, b, "invalid_task", &nats.Msg{
			Subject: "agent.task." + tenant, Data: fmt.Appendf(nil, `{"id": "r%d"}`, i), Header: nats.Header{"X": {"a", "b"}},
		})
	}
	bury(t, nc, b, "unknown_run", &nats.Msg{Subject: "agent.reply.acme.r9", Data: []byte(`{"text": "yes"}`)})
	list := func(tenant string, after uint64, limit int) (runs []string, next uint64) {
		t.Helper()
		letters, next, err := b.DeadList(ctx, tenant, after, limit)
		must(t, err)
		for _, d := range letters {
			runs = append(runs, d.Tenant+"/"+d.Run)
		}
		return runs, next
	}
	runs, next := list("acme", 0, 2)
	if diff := cmp.Diff([]string{"acme/r0", "acme/r2"}, runs); diff != "" || next == 0 {
		t.Errorf("next is %d (-want +got):\n%s", next, diff)
	}
	runs, next = list("acme", next, 2)
	if diff := cmp.Diff([]string{"acme/r4", "acme/r9"}, runs); diff != "" || next != 0 {
		t.Errorf("next is %d (-want +got):\n%s", next, diff)
	}
	runs, _ = list("", 0, 100)
	if len(runs) != 6 {
		t.Errorf("of all tenants there are %q", runs)
	}
	if _, _, err := b.DeadList(ctx, "a.b", 0, 1); err == nil {
		t.Error("a tenant of two tokens was accepted")
	}

	d, err := b.DeadShow(ctx, 1)
	must(t, err)
	if d.Stored.Before(before.Add(-time.Second)) || d.Stored.After(time.Now().Add(time.Second)) {
		t.Errorf("it was stored at %s", d.Stored)
	}
	d.Stored = time.Time{}
	want := bus.DeadLetter{
		Seq: 1, Tenant: "acme", Kind: loop.DeliverTask, Run: "r0", Reason: "invalid_task", Error: "it is of no use",
		Subject: "agent.task.acme", Sequence: 1, Deliveries: 1, Header: map[string][]string{"X": {"a", "b"}}, Payload: []byte(`{"id": "r0"}`),
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, seq := range []uint64{0, 99} {
		_, err = b.DeadShow(ctx, seq)
		wantErr(t, err, loop.ErrNotFound)
	}
}

// A task that fails again and again keeps its first id, and counts its tries.
func TestRedriveOfATaskWithoutID(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	body := []byte(`{"goal": "x"}`)
	seq := bury(t, nc, b, "invalid_task", &nats.Msg{
		Subject: "agent.task.acme", Data: body,
		Header: nats.Header{
			"Nats-Msg-Id": {"order-1"}, "Nats-Expected-Last-Sequence": {"0"}, "traceparent": {"00-1"}, "Ratchet-Outcome": {"token"},
		},
	})
	for k := 1; k <= 3; k++ {
		d, err := b.DeadRedrive(ctx, seq)
		must(t, err)
		if d.Redriven != k || d.Run != "order-1" {
			t.Errorf("redriven %d times, run %s", d.Redriven, d.Run)
		}
		_, err = b.DeadShow(ctx, seq)
		wantErr(t, err, loop.ErrNotFound)
		got := fetchOne(t, b.Inbox())
		want := nats.Header{"traceparent": {"00-1"}, "Ratchet-Redrive": {fmt.Sprint(k)}, "Ratchet-Redrive-Of": {"order-1"}}
		if diff := cmp.Diff(want, nats.Header(got.Header)); diff != "" || string(got.Body) != string(body) {
			t.Errorf("body %s (-want +got):\n%s", got.Body, diff)
		}
		must(t, b.Bury(ctx, got, "invalid_task", "again"))
		must(t, got.Settler.Ack(ctx))
		letters, _, err := b.DeadList(ctx, "", 0, 10)
		must(t, err)
		if len(letters) != 1 || letters[0].Redriven != k {
			t.Fatalf("dead letters %+v", letters)
		}
		seq = letters[0].Seq
	}
}

func TestRedriveKeepsWhatItWas(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	for _, msg := range []*nats.Msg{
		{Subject: "agent.task.acme", Data: []byte(`{"id": "mine", "goal": "x"}`)},
		{Subject: "agent.task.no%tenant", Data: []byte("\xff\x00")},
		{Subject: "agent.reply.acme.r1", Data: []byte(`{"text": "yes"}`)},
		{Subject: "agent.control.acme.r1", Data: []byte(`{}`)},
		{Subject: "agent.task.acme", Data: append(make([]byte, 1<<20-100), '!')}, // lies in a blob
	} {
		seq := bury(t, nc, b, "failed", msg)
		if _, err := b.DeadRedrive(ctx, seq); err != nil {
			t.Errorf("%s: %v", msg.Subject, err)
			continue
		}
		got := fetchOne(t, b.Inbox())
		_, named := got.Header["Ratchet-Redrive-Of"]
		wantNamed := strings.HasPrefix(msg.Subject, "agent.task.") && !strings.Contains(string(msg.Data), "mine")
		if got.Subject != msg.Subject || string(got.Body) != string(msg.Data) || named != wantNamed {
			t.Errorf("%s came back as %s with %d bytes and %v", msg.Subject, got.Subject, len(got.Body), got.Header)
		}
		must(t, got.Settler.Ack(ctx))
	}
	wake := loop.Delivery{
		Kind: loop.DeliverWake, RunID: run1, Subject: "agent.wake.0.acme.r1", Stream: "AGENT_WAKE", Seq: 1, Time: time.Unix(1, 0), Body: []byte("{}"),
	}
	must(t, b.Bury(ctx, wake, "poisoned", "nobody can drive it"))
	letters, _, err := b.DeadList(ctx, "", 0, 10)
	must(t, err)
	_, err = b.DeadRedrive(ctx, letters[0].Seq)
	must(t, err)
	if got := fetchOne(t, b.Wakes()); got.Run != "r1" {
		t.Errorf("woken is %s", got.Run)
	}
	left(t, nc, 0, 0)
}

// left compares what the streams of dead letters and of blobs hold.
func left(t *testing.T, nc *nats.Conn, dead, blobs uint64) {
	t.Helper()
	js, err := jetstream.New(nc)
	must(t, err)
	for name, want := range map[string]uint64{"AGENT_DEAD": dead, "OBJ_AGENT_BLOBS": blobs} {
		s, err := js.Stream(bustest.Context(t), name)
		must(t, err)
		if got := s.CachedInfo().State.Msgs; got != want {
			t.Errorf("stream %s holds %d messages, want %d", name, got, want)
		}
	}
}

func TestDeadDrop(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	small := bury(t, nc, b, "failed", &nats.Msg{Subject: "agent.task.acme", Data: []byte("x")})
	large := bury(t, nc, b, "failed", &nats.Msg{Subject: "agent.task.acme", Data: make([]byte, 1<<20)})
	must(t, b.PutBlob(ctx, "acme/r1/c1", []byte("a result")))
	for _, seq := range []uint64{small, large} {
		_, err := b.DeadDrop(ctx, seq)
		must(t, err)
		_, err = b.DeadDrop(ctx, seq)
		wantErr(t, err, loop.ErrNotFound)
	}
	left(t, nc, 0, 2) // the blob of the run alone: its description and its one chunk
}

// Who can publish dead letters can't have an operator publish elsewhere, or remove what is not a dead letter's.
func TestForgedDeadLetters(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	must(t, b.PutBlob(ctx, "acme/r1/c1", []byte("a result")))
	for i, subject := range []string{
		"$JS.API.STREAM.DELETE.AGENT_EVENTS", "agent.event.acme.r1.user", "agent.task.*", "agent.task", "agent.task.", "agent.task.a b",
		"agent.reply.acme.r1", "agent.task.a.b", "",
	} {
		publish(t, nc, &nats.Msg{
			Subject: "agent.dead.acme.task", Data: []byte("{}"),
			Header: nats.Header{"Ratchet-Subject": {subject}, "Ratchet-Blob": {"acme/r1/c1"}},
		})
		seq := uint64(i + 1)
		if _, err := b.DeadRedrive(ctx, seq); err == nil {
			t.Errorf("a message to %q was published", subject)
		}
		_, err := b.DeadDrop(ctx, seq)
		must(t, err)
	}
	if _, err := b.GetBlob(ctx, "acme/r1/c1"); err != nil {
		t.Errorf("the result of a run is gone: %v", err)
	}
}

func TestDeadLetterAsJSON(t *testing.T) {
	for payload, want := range map[string]string{
		`{"a": 1}`: `{"a":1}`, "no JSON": `"no JSON"`, "\xff": `"/w=="`, "": "null",
	} {
		encoded, err := json.Marshal(bus.DeadLetter{Seq: 7, Payload: []byte(payload)})
		must(t, err)
		var got struct {
			Seq     uint64          `json:"seq"`
			Payload json.RawMessage `json:"payload"`
		}
		must(t, json.Unmarshal(encoded, &got))
		if have := string(got.Payload); got.Seq != 7 || have != want && !(have == "" && want == "null") {
			t.Errorf("%q is written as %s", payload, encoded)
		}
	}
}

// An operator's tool finds what workers have set up, and makes nothing.
func TestAttach(t *testing.T) {
	server := bustest.Server(t)
	nc := bustest.Connect(t, server)
	if _, err := bus.Attach(bustest.Context(t), nc, bus.Options{}); err == nil || !strings.Contains(err.Error(), "AGENT_") {
		t.Errorf("attached to nothing: %v", err)
	}
	names := newJetStream(t, server).StreamNames(bustest.Context(t))
	for name := range names.Name() {
		t.Errorf("stream %s was made", name)
	}
	must(t, names.Err())
	bustest.Open(t, bustest.Connect(t, server), bus.Options{Lease: 7 * time.Second})
	b, err := bus.Attach(bustest.Context(t), nc, bus.Options{})
	must(t, err)
	defer b.Close()
	_, _, err = b.DeadList(bustest.Context(t), "", 0, 10)
	must(t, err)
	consumer, err := newJetStream(t, server).Consumer(bustest.Context(t), "AGENT_TASKS", "inbox")
	must(t, err)
	if got := consumer.CachedInfo().Config.AckWait; got != 7*time.Second {
		t.Errorf("the lease is now %s", got)
	}
}
