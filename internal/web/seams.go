package web

import (
	"context"
	"errors"
	"time"

	"ratchet/internal/loop"
)

// What the console needs from the world; the node gives it from the bus.

// Store reads runs.
type Store interface {
	// LastEvent returns the sequence of the last event of all runs.
	LastEvent(ctx context.Context) (uint64, error)
	// Tail calls each with the events of all runs after a sequence, in order, until ctx ends.
	Tail(ctx context.Context, after uint64, each func(loop.Event)) error
	// Changed, Load, Read and Page are those of [loop.Heads] and [loop.Journal].
	Changed(ctx context.Context, after loop.Cursor, limit int) (heads []loop.Head, last loop.Cursor, err error)
	Load(ctx context.Context, id loop.RunID) (loop.Head, uint64, error)
	Read(ctx context.Context, id loop.RunID, after uint64) (loop.JournalPage, error)
	Page(ctx context.Context, id loop.RunID, road loop.Road, after uint64, limit int) (loop.JournalPage, error)
}

// Said is what came of an action: accepted, duplicate, stale, finished, unknown or invalid, and a sentence.
type Said struct {
	Run     string // of a submitted task
	Status  string
	Message string
}

// Actions are what a person does to runs. A [*Refusal] is the person's to mend; other errors are the system's.
type Actions interface {
	Submit(ctx context.Context, tenant string, task []byte) (Said, error)
	Reply(ctx context.Context, id loop.RunID, r loop.Reply) (Said, error)
	Control(ctx context.Context, id loop.RunID, c loop.Control) (Said, error)
}

// Refusal says what is wrong with a request, in words for the person who made it.
type Refusal struct{ Message string }

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// ErrGone says that there is no such dead letter.
var ErrGone = errors.New("there is no such dead letter")

// DeadLetter is a message that could not be processed. Empty fields are not known.
type DeadLetter struct {
	Seq        uint64
	Tenant     string
	Kind       string
	Run        string
	Reason     string
	Error      string
	Subject    string
	Sequence   uint64
	Deliveries uint64
	Redriven   int
	Stored     time.Time
	Header     map[string][]string
	Again      string // of a task that was just redriven: the run that it is now
	Payload    []byte
}

// DeadLetters are what could not be processed.
type DeadLetters interface {
	// List returns up to limit of them after a sequence, oldest first, and the sequence to go on from (0: no more).
	List(ctx context.Context, after uint64, limit int) ([]DeadLetter, uint64, error)
	// Show, Redrive and Drop fail with [ErrGone] for one that does not exist.
	Show(ctx context.Context, seq uint64) (DeadLetter, error)
	Redrive(ctx context.Context, seq uint64) (DeadLetter, error)
	Drop(ctx context.Context, seq uint64) error
}

// Operations tells of the machinery.
type Operations interface {
	// Overview returns what is known even where it fails.
	Overview(ctx context.Context) (Overview, error)
	// Ready says why work can't go on, or nil.
	Ready(ctx context.Context) error
}

// Overview is what an operator wants to know of the server side.
type Overview struct {
	Server, Version string
	Streams         []Stream
	Queues          []Queue
}

// Stream says how much a stream holds.
type Stream struct {
	Name, Description string
	Messages, Bytes   uint64
	Last              time.Time
	Replicas          int
	Leader            string
}

// Queue says how far a queue has been worked off.
type Queue struct {
	Name, Stream string
	Pending      uint64 // waits for a worker
	InHand       int    // is being worked on
	Redelivered  int    // of those, delivered more than once
	Pulls        int    // requests of workers that wait for something to do
	LastActive   time.Time
}
