package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	scanBatch    = 256     // messages asked for at first
	scanMost     = 4096    // and later, where there are many
	scanMaxBytes = 8 << 20 // of one batch: far below what a subscription may hold before it drops messages

	codeNoMessage = 10037
)

// stored is one message as a stream keeps it.
type stored struct {
	Subject string
	Seq     uint64
	Header  map[string][]string
	Data    []byte
	Time    time.Time // when it was stored, where the leader was asked; see storedAt
}

// storedAt is when a message was stored; zero where the server does not say.
func (m stored) storedAt() time.Time {
	if !m.Time.IsZero() {
		return m.Time
	}
	at, _ := time.Parse(time.RFC3339Nano, lastOf(m.Header, jetstream.TimeStampHeaer)) // zero if it can't be read
	return at
}

// scan calls visit for each message of a stream that matches filter and has a sequence greater than after, in order,
// until visit returns false or there are no more. Those stored while it runs may be included.
//
// It reads in batches that any replica may answer. Where a batch does not say by itself that it reached the end, and
// always on replicated streams, the leader is asked whether something follows: a follower that lags must not make a run
// look as if nothing had happened to it.
func (b *Bus) scan(ctx context.Context, stream, filter string, after uint64, visit func(stored) bool) error {
	return b.scanMany(ctx, stream, filter, after, scanBatch, visit)
}

// scanMany is scan with a size for the first batch. Those that follow are larger: with each the server counts what matches the
// filter, subject by subject, which takes a tenth of a second where there are a million.
func (b *Bus) scanMany(ctx context.Context, stream, filter string, after uint64, size int, visit func(stored) bool) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if !b.nc.IsConnected() {
		return fmt.Errorf("read %s of stream %s: %w", filter, stream, errNotConnected)
	}
	for size = min(size, scanMost); ; size = min(4*size, scanMost) {
		last, pending, stopped, err := b.scanBatch(ctx, stream, filter, after, size, visit)
		if err != nil {
			return fmt.Errorf("read %s of stream %s after %d: %w", filter, stream, after, b.explain(err))
		}
		progressed := last > after
		after = max(after, last)
		switch {
		case stopped:
			return nil
		case progressed && pending:
			continue
		case progressed && !b.replicated:
			return nil
		}
		msg, err := b.leaderNext(ctx, stream, filter, after)
		if errors.Is(err, errNoMessage) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s of stream %s after %d: %w", filter, stream, after, b.explain(err))
		}
		if after = msg.Seq; !visit(msg) {
			return nil
		}
	}
}

// scanBatch visits one batch. last is the sequence of the last message visited, pending whether the server has more. The
// library's own call queues no more of the answers than the connection does for everything.
func (b *Bus) scanBatch(
	ctx context.Context, stream, filter string, after uint64, size int, visit func(stored) bool,
) (last uint64, pending, stopped bool, err error) {
	request, err := json.Marshal(map[string]any{"seq": after + 1, "next_by_subj": filter, "batch": size, "max_bytes": scanMaxBytes})
	if err != nil {
		return 0, false, false, err
	}
	inbox, answers := b.nc.NewInbox(), make(chan *nats.Msg, size+1)
	sub, err := b.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return 0, false, false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is gone, and the subscription with it
	closed := sub.StatusChanged(nats.SubscriptionClosed)
	if err := b.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
		return 0, false, false, err
	}
	for last = after; ; {
		var msg *nats.Msg
		select {
		case msg = <-answers:
		case <-closed:
			return last, false, false, nats.ErrConnectionClosed
		case <-ctx.Done():
			return last, false, false, ctx.Err()
		}
		// The server adds its headers behind those of the message, which may bear the same names. What has no sequence ends the
		// batch, or is a message in the stream that pretends to: the leader will tell.
		seq, err := strconv.ParseUint(lastOf(msg.Header, jetstream.SequenceHeader), 10, 64)
		if err != nil || seq <= last {
			return last, pending, false, nil
		}
		last, pending = seq, lastOf(msg.Header, "Nats-Num-Pending") != "0"
		if !visit(stored{Subject: lastOf(msg.Header, jetstream.SubjectHeader), Seq: seq, Header: msg.Header, Data: msg.Data}) {
			return last, pending, true, nil
		}
	}
}

func lastOf(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// errNoMessage says that the leader has no such message.
var errNoMessage = errors.New("no such message")

// leaderNext returns the first message after a sequence that matches filter, as the stream's leader knows it.
func (b *Bus) leaderNext(ctx context.Context, stream, filter string, after uint64) (stored, error) {
	return b.leaderGet(ctx, stream, map[string]any{"seq": after + 1, "next_by_subj": filter})
}

// leaderGet asks the stream's leader for one message. The client library's own call goes to any replica where the
// stream allows direct reads.
func (b *Bus) leaderGet(ctx context.Context, stream string, request map[string]any) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout) // an answer may be lost with a server
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return stored{}, err
	}
	answer, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return stored{}, err
	}
	var r struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Headers []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &r); err != nil {
		return stored{}, fmt.Errorf("the server's answer is not JSON: %w", err)
	}
	switch {
	case r.Error != nil && r.Error.ErrorCode == codeNoMessage:
		return stored{}, errNoMessage
	case r.Error != nil:
		return stored{}, r.Error
	case r.Message == nil:
		return stored{}, errors.New("the server's answer holds no message")
	}
	msg := stored{Subject: r.Message.Subject, Seq: r.Message.Seq, Data: r.Message.Data, Time: r.Message.Time}
	if len(r.Message.Headers) > 0 {
		if msg.Header, err = nats.DecodeHeadersMsg(r.Message.Headers); err != nil {
			return stored{}, fmt.Errorf("the server's answer holds headers that can't be read: %w", err)
		}
	}
	return msg, nil
}

func formatSeq(seq uint64) string { return strconv.FormatUint(seq, 10) }
