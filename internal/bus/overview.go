package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Overview is what an operator wants to know of the server side.
type Overview struct {
	Server    string // where this process is connected, without credentials
	Version   string // of that server
	Streams   []StreamState
	Consumers []ConsumerState
}

// StreamState says how much a stream holds.
type StreamState struct {
	Name        string
	Description string
	Messages    uint64
	Bytes       uint64
	Subjects    uint64
	Last        uint64 // sequence of the last message
	LastTime    time.Time
	Replicas    int
	Leader      string // of a replicated stream
}

// ConsumerState says how far a queue has been worked off, all of its lanes together.
type ConsumerState struct {
	Stream, Name string
	Pending      uint64 // waiting for a worker
	InHand       int    // delivered and not acknowledged
	Redelivered  int    // of those in hand, delivered more than once
	Pulls        int    // requests for messages that wait at the server
	LastActive   time.Time
}

// Overview asks the server for the state of all streams and queues.
func (b *Bus) Overview(ctx context.Context) (Overview, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	out := Overview{Server: b.nc.ConnectedUrlRedacted(), Version: b.nc.ConnectedServerVersion()}
	if !b.nc.IsConnected() {
		return out, errNotConnected
	}
	for _, want := range b.streams() {
		stream, err := b.js.Stream(ctx, want.Name)
		if err != nil {
			return out, fmt.Errorf("look at stream %s: %w", want.Name, b.explain(err))
		}
		info := stream.CachedInfo()
		state := StreamState{
			Name: want.Name, Description: info.Config.Description, Messages: info.State.Msgs, Bytes: info.State.Bytes,
			Subjects: info.State.NumSubjects, Last: info.State.LastSeq, LastTime: info.State.LastTime, Replicas: info.Config.Replicas,
		}
		if info.Cluster != nil {
			state.Leader = info.Cluster.Leader
		}
		out.Streams = append(out.Streams, state)
	}
	for _, q := range []struct{ stream, name string }{{b.names.tasks, durableInbox}, {b.names.wake, durableWakes}} {
		lanes, err := b.consumers(ctx, q.stream)
		if err != nil {
			return out, fmt.Errorf("look at the lanes of queue %s: %w", q.name, err)
		}
		out.Consumers = append(out.Consumers, queueState(q.stream, q.name, lanes))
	}
	return out, nil
}

// queueState adds up the lanes of a queue.
func queueState(stream, name string, lanes map[string]*jetstream.ConsumerInfo) ConsumerState {
	state := ConsumerState{Stream: stream, Name: name}
	for _, info := range lanes {
		state.Pending += info.NumPending
		state.InHand += info.NumAckPending
		state.Redelivered += info.NumRedelivered
		state.Pulls += info.NumWaiting
		if last := info.Delivered.Last; last != nil && last.After(state.LastActive) {
			state.LastActive = *last
		}
	}
	return state
}
