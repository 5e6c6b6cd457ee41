package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// How the server says that an append lost a race, and how long the floor looks what became of it.
const (
	wrongLast         jetstream.ErrorCode = 10071 // on one replica
	wrongLastInFlight jetstream.ErrorCode = 10164 // on several, where the leader knows of a write still being replicated
	floorTries                            = 1000
	floorPause                            = 5 * time.Millisecond
)

// floor is what nothing can beat: bare appends to the journal, of the size of the runs' events, with the expected last
// sequence of their run and as many at once.
type floor struct {
	appends float64       // a second
	cpu     time.Duration // of the servers, for each append
}

// journalSize returns how much the journal holds, bytes as the stream counts them.
func (w *world) journalSize(ctx context.Context) (messages, size uint64, err error) {
	s, err := w.js.Stream(ctx, streamEvents)
	if err != nil {
		return 0, 0, err
	}
	state := s.CachedInfo().State
	return state.Msgs, state.Bytes, nil
}

// bareAppend stores one event of the floor and returns its sequence. Three servers may say that it lost a race though nobody else
// appends to its run: with itself, where the client library sent it again, or with one that was on its way as a leader went.
// Then what is stored decides.
func (w *world) bareAppend(ctx context.Context, run string, payload []byte, last uint64) (uint64, error) {
	subject := "agent.event.floor." + run
	for tries := 1; ; tries++ {
		ack, err := w.js.PublishMsg(ctx, &nats.Msg{
			Subject: subject + ".step", Data: payload,
			Header: nats.Header{"Content-Type": {"application/cloudevents+json"}, "Ratchet-Type": {"observation"}},
		}, jetstream.WithExpectLastSequenceForSubject(last, subject+".>"))
		if err == nil {
			return ack.Sequence, nil
		}
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != wrongLast && refused.ErrorCode != wrongLastInFlight || tries == floorTries {
			return 0, err
		}
		journal, err := w.js.Stream(ctx, streamEvents)
		if err != nil {
			return 0, err
		}
		stored, err := journal.GetLastMsgForSubject(ctx, subject+".step")
		switch {
		case err == nil && stored.Sequence > last:
			return stored.Sequence, nil
		case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, err
		}
		time.Sleep(floorPause)
	}
}

// payload returns what has to be stored for an append to be as large as the mean event.
func (w *world) payload(ctx context.Context, name string, mean uint64) ([]byte, error) {
	_, before, err := w.journalSize(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = w.bareAppend(ctx, name+"-empty", nil, 0); err != nil {
		return nil, err
	}
	_, after, err := w.journalSize(ctx)
	if err != nil {
		return nil, err
	}
	return bytes.Repeat([]byte("x"), int(max(mean, after-before)-(after-before))), nil
}

// bareAppends appends for a time from so many writers, each to runs of so many events.
func (w *world) bareAppends(ctx context.Context, name string, payload []byte, writers, events int, during time.Duration) (floor, error) {
	before, _ := w.used()
	var count atomic.Int64
	began := time.Now()
	var all errgroup.Group
	for g := range writers {
		all.Go(func() (err error) {
			var last uint64
			for i := 0; time.Since(began) < during; i++ {
				if i%events == 0 {
					last = 0
				}
				if last, err = w.bareAppend(ctx, fmt.Sprintf("%s-%d-%d", name, g, i/events), payload, last); err != nil {
					return fmt.Errorf("measure the floor: %w", err)
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := all.Wait()
	took := time.Since(began)
	after, _ := w.used()
	n := max(count.Load(), 1)
	return floor{appends: float64(n) / took.Seconds(), cpu: (after.cpu - before.cpu) / time.Duration(n)}, err
}

// bareRequests sends the model requests of a size from so many clients at once, and returns how many a second it answers.
func (w *world) bareRequests(ctx context.Context, size int64, clients int, during time.Duration) (float64, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), int(size))
	var count atomic.Int64
	began := time.Now()
	var all errgroup.Group
	for range clients {
		all.Go(func() error {
			for time.Since(began) < during {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.model.url+"/chat/completions", bytes.NewReader(body))
				if err != nil {
					return err
				}
				answer, err := transport.RoundTrip(r)
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, answer.Body)
				if err = errors.Join(err, answer.Body.Close()); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := all.Wait()
	return float64(count.Load()) / time.Since(began).Seconds(), err
}
