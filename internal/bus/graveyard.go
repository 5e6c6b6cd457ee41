package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go"

	"ratchet/internal/loop"
)

// maxSentence is the longest explanation a dead letter's header carries, in bytes.
const maxSentence = 1 << 10

// deadSlack is what the server and the client add to a message on its way, in bytes, generously.
const deadSlack = 1 << 10

// Bury implements [loop.Graveyard]. A wake-up whose text was let go of is read again. Headers that mean something to the
// server or to readers of dead letters keep their values under another name: Ratchet-Original-Nats-Msg-Id for Nats-Msg-Id.
func (b *Bus) Bury(ctx context.Context, d loop.Delivery, reason, explanation string) error {
	tenant := d.Tenant
	if !loop.ValidID(tenant) {
		tenant = "_"
	}
	id := place(d)
	if !whatPattern.MatchString(string(d.Kind)) {
		return fmt.Errorf("bury message %s: %q is no kind of delivery", id, d.Kind)
	}
	if d.Kind == loop.DeliverWake && d.Body == nil {
		kept, err := b.leaderGet(ctx, b.names.wake, map[string]any{"seq": d.Seq})
		if err != nil && !errors.Is(err, errNoMessage) {
			return fmt.Errorf("bury message %s: read it again: %w", id, b.explain(err))
		}
		d.Header, d.Body = kept.Header, kept.Data
	}
	msg := &nats.Msg{Subject: b.names.deadLetter(tenant, string(d.Kind)), Data: d.Body, Header: nats.Header{}}
	ours := nats.Header{
		headerMsgID:      {id},
		headerReason:     {oneLine(reason)},
		headerError:      {oneLine(explanation)},
		headerSubject:    {d.Subject},
		headerSequence:   {formatSeq(d.Seq)},
		headerDeliveries: {formatSeq(d.Attempt)},
	}
	if run := firstRun(d); loop.ValidID(run) {
		ours.Set(headerRun, run)
	}
	maps.Copy(msg.Header, harmless(d.Header))
	maps.Copy(msg.Header, ours)
	room := int(b.nc.MaxPayload()) - deadSlack
	if msg.Size() > room {
		name := blobOfDeadLetter(tenant, id)
		if err := b.PutBlob(ctx, name, d.Body); err != nil {
			return fmt.Errorf("bury message %s: %w", id, err)
		}
		msg.Data = nil
		msg.Header.Set(headerBlob, name)
		if msg.Size() > room {
			msg.Header = ours
			msg.Header.Set(headerBlob, name)
			msg.Header.Set(headerDropped, "true")
		}
	}
	if _, err := b.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("bury message %s: %w", id, b.explain(err))
	}
	return nil
}

// firstRun names the run that a delivery is for; of a task that was published again from a dead letter, the first one.
func firstRun(d loop.Delivery) string {
	if d.Kind != loop.DeliverTask {
		return d.Run
	}
	return cmp.Or(idOf(d.Body), nats.Header(d.Header).Get(headerRedriveOf), d.DefaultID)
}

// idOf returns the id that a task names, empty where it names none that can be used.
func idOf(task []byte) string {
	var named struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(task, &named) != nil || !loop.ValidID(named.ID) {
		return ""
	}
	return named.ID
}

// harmless returns the headers of a message with those renamed that have power over where a copy of it goes.
func harmless(headers map[string][]string) nats.Header {
	safe := nats.Header{}
	for name, values := range headers {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "ratchet-") &&
			!strings.HasPrefix(name, headerOriginalPrefix) {
			name = headerOriginalPrefix + name
		}
		safe[name] = values
	}
	return safe
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	if len(s) > maxSentence {
		s = strings.ToValidUTF8(s[:maxSentence], "") + "…"
	}
	return strings.Join(strings.Fields(s), " ")
}
