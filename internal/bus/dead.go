package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// What an operator does with dead letters. All of it needs JetStream: a tenant has no part in it.

// DeadLetter is a message that could not be processed. The zero value of a field means that it is not known.
type DeadLetter struct {
	Seq        uint64              `json:"seq"`    // in the stream of dead letters: how it is named here
	Tenant     string              `json:"tenant"` // _ where its own was no valid id
	Kind       loop.DeliveryKind   `json:"kind"`
	Run        string              `json:"run,omitempty"` // of a task that was redriven, the first one
	Reason     string              `json:"reason"`
	Error      string              `json:"error"` // a sentence
	Subject    string              `json:"subject"`
	Sequence   uint64              `json:"sequence"` // in the queue it came from
	Deliveries uint64              `json:"deliveries"`
	Redriven   int                 `json:"redriven,omitempty"` // how often it had been published again before
	Stored     time.Time           `json:"stored"`             // when the queue had stored it
	Header     map[string][]string `json:"header,omitempty"`   // its own headers
	Dropped    bool                `json:"headers_dropped,omitempty"`
	Blob       string              `json:"blob,omitempty"`  // where the payload lies if not here
	Again      string              `json:"again,omitempty"` // of a task that was just redriven: the run that it is now

	Payload []byte `json:"-"` // as published; DeadShow alone reads one that lies in a blob
}

// DeadList returns up to limit dead letters of a tenant (empty: of all) with a sequence greater than after, oldest first,
// and the sequence to go on from (0: no more).
func (b *Bus) DeadList(ctx context.Context, tenant string, after uint64, limit int) ([]DeadLetter, uint64, error) {
	switch {
	case tenant == "":
		tenant = "*"
	case tenant != "_" && !loop.ValidID(tenant):
		return nil, 0, fmt.Errorf("list dead letters: %q is no valid tenant", tenant)
	}
	if limit <= 0 {
		return nil, 0, nil
	}
	var letters []DeadLetter
	var next uint64
	err := b.scan(ctx, b.names.dead, b.names.deadLetter(tenant, "*"), after, func(msg stored) bool {
		if len(letters) == limit {
			next = letters[limit-1].Seq
			return false
		}
		letters = append(letters, b.readDead(msg))
		return true
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, next, nil
}

// DeadShow returns one dead letter with its payload. One that does not exist is [loop.ErrNotFound].
func (b *Bus) DeadShow(ctx context.Context, seq uint64) (DeadLetter, error) {
	msg, err := b.leaderGet(ctx, b.names.dead, map[string]any{"seq": seq})
	if errors.Is(err, errNoMessage) || seq == 0 {
		return DeadLetter{}, fmt.Errorf("dead letter %d: %w", seq, loop.ErrNotFound)
	} else if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", seq, b.explain(err))
	}
	d := b.readDead(msg)
	if d.Blob == "" {
		return d, nil
	}
	if d.Payload, err = b.GetBlob(ctx, d.Blob); err != nil {
		return d, fmt.Errorf("read the payload of dead letter %d: %w", seq, err)
	}
	return d, nil
}

// DeadRedrive publishes the message of a dead letter again, as it was, on its own subject, and then removes the dead
// letter. A task runs under a new id; see docs/protocol.md. Where it fails after publishing, a repeat of a task is the
// same run. The letter returned is the one removed, with Redriven counted up and Again set.
func (b *Bus) DeadRedrive(ctx context.Context, seq uint64) (DeadLetter, error) {
	d, err := b.DeadShow(ctx, seq)
	if err != nil {
		return d, err
	}
	if err := b.mayRedrive(d); err != nil {
		return d, fmt.Errorf("redrive dead letter %d: %w", seq, err)
	}
	d.Redriven++
	if d.Kind == loop.DeliverTask && d.Run != "" {
		suffix := "-r" + strconv.Itoa(d.Redriven)
		d.Again = d.Run[:min(len(d.Run), 64-len(suffix))] + suffix
	}
	msg := &nats.Msg{Subject: d.Subject, Data: d.Payload, Header: nats.Header{}}
	// The Nats- headers were for its first way: an id would make it a duplicate, an expected sequence is long past.
	for name, values := range d.Header {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") {
			msg.Header[name] = values
		}
	}
	msg.Header.Del(headerOutcome) // nobody waits any more
	msg.Header.Set(headerRedrive, strconv.Itoa(d.Redriven))
	if d.Kind == loop.DeliverTask && idOf(d.Payload) == "" && d.Run != "" {
		msg.Header.Set(headerRedriveOf, d.Run)
	}
	if _, err := b.js.PublishMsg(ctx, msg); err != nil {
		return d, fmt.Errorf("redrive dead letter %d to %s: %w", seq, d.Subject, b.explain(err))
	}
	if err := b.removeDead(ctx, d); err != nil {
		return d, fmt.Errorf("dead letter %d was published again and could not be removed; drop it: %w", seq, err)
	}
	return d, nil
}

// mayRedrive refuses subjects that are not those of our queues: a dead letter must not make an operator publish
// anything else.
func (b *Bus) mayRedrive(d DeadLetter) error {
	tokens := map[loop.DeliveryKind]int{
		loop.DeliverTask: 1, loop.DeliverReply: 2, loop.DeliverControl: 2, loop.DeliverWake: 3,
	}[d.Kind]
	rest, ours := strings.CutPrefix(d.Subject, b.names.prefix+"."+string(d.Kind)+".")
	token := strings.Split(rest, ".")
	if !ours || tokens == 0 || len(token) != tokens {
		return fmt.Errorf("its subject %q is not one of %s messages; look at it, and drop it", d.Subject, d.Kind)
	}
	for _, t := range token {
		if t == "" || strings.ContainsAny(t, "*> \t\r\n") {
			return fmt.Errorf("nothing can be published to its subject %q; look at it, and drop it", d.Subject)
		}
	}
	return nil
}

// DeadDrop removes a dead letter and its payload for good, and returns it without the payload.
func (b *Bus) DeadDrop(ctx context.Context, seq uint64) (DeadLetter, error) {
	d, err := b.DeadShow(ctx, seq)
	if err != nil && (d.Seq == 0 || !errors.Is(err, loop.ErrNotFound)) { // without its payload it can go all the same
		return d, err
	}
	if err := b.removeDead(ctx, d); err != nil {
		return d, fmt.Errorf("drop dead letter %d: %w", seq, err)
	}
	return d, nil
}

// removeDead removes the payload first: what fails in between can be dropped, and leaves nothing that nobody knows of.
// Only the payload of a dead letter goes with one, whatever its header says.
func (b *Bus) removeDead(ctx context.Context, d DeadLetter) error {
	if strings.HasPrefix(d.Blob, blobOfDeadLetter(d.Tenant, "")) {
		if err := b.deleteBlob(ctx, d.Blob); err != nil {
			return err
		}
	}
	s, err := b.js.Stream(ctx, b.names.dead)
	if err == nil {
		err = s.DeleteMsg(ctx, d.Seq)
	}
	var api *jetstream.APIError
	if err == nil || errors.As(err, &api) && api.ErrorCode == codeNoMessageToDelete {
		return nil
	}
	return fmt.Errorf("delete message %d of stream %s: %w", d.Seq, b.names.dead, b.explain(err))
}

// codeNoMessageToDelete says that somebody else has deleted it.
const codeNoMessageToDelete = 10043

// readDead reads a dead letter as Bury wrote it.
func (b *Bus) readDead(msg stored) DeadLetter {
	h := nats.Header(maps.Clone(msg.Header))
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(h.Get(name), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	d := DeadLetter{
		Seq: msg.Seq, Reason: h.Get(headerReason), Error: h.Get(headerError), Subject: h.Get(headerSubject),
		Sequence: number(headerSequence), Deliveries: number(headerDeliveries), Run: h.Get(headerRun),
		Dropped: h.Get(headerDropped) != "", Blob: h.Get(headerBlob), Payload: msg.Data, Header: map[string][]string{},
	}
	if token := strings.Split(msg.Subject, "."); len(token) == 4 {
		d.Tenant, d.Kind = token[2], loop.DeliveryKind(token[3])
	}
	if place := strings.Split(h.Get(headerMsgID), ":"); len(place) == 3 {
		if ns, err := strconv.ParseInt(place[2], 10, 64); err == nil {
			d.Stored = time.Unix(0, ns).UTC()
		}
	}
	for name, values := range h {
		if own, renamed := strings.CutPrefix(name, headerOriginalPrefix); renamed {
			d.Header[own] = values
		} else if lower := strings.ToLower(name); !strings.HasPrefix(lower, "nats-") && !strings.HasPrefix(lower, "ratchet-") {
			d.Header[name] = values
		}
	}
	if k, err := strconv.Atoi(nats.Header(d.Header).Get(headerRedrive)); err == nil && k > 0 {
		d.Redriven = k
	}
	return d
}

// MarshalJSON adds the payload: as JSON where it is that, else as text, and else in base64.
func (d DeadLetter) MarshalJSON() ([]byte, error) {
	type plain DeadLetter
	out := struct {
		plain
		Payload any `json:"payload,omitempty"`
	}{plain: plain(d)}
	switch {
	case len(d.Payload) == 0:
	case json.Valid(d.Payload):
		out.Payload = json.RawMessage(d.Payload)
	case utf8.Valid(d.Payload):
		out.Payload = string(d.Payload)
	default:
		out.Payload = d.Payload
	}
	return json.Marshal(out)
}
