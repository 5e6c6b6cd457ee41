package loop

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// The seams of the engine: what it needs from the world, declared where it is used. The bus adapter implements all of
// the first group over NATS; llm, tools and memory implement one each.

// ErrConflict says that somebody else moved the run, state or session on. Whoever gets it reads again.
var ErrConflict = errors.New("somebody else wrote first")

// ErrNotFound says that there is no such state or session.
var ErrNotFound = errors.New("not found")

// ErrNewer says that a stored state or event was written by a newer version of this program, which must handle it.
var ErrNewer = errors.New("written by a newer version")

// ErrRefused says that the store will never take this: it is too large, or not well formed. Any other failure of the
// store may pass.
var ErrRefused = errors.New("the store refuses this for good")

// Journal is the stream of all events. Appending to it is the only commit point of the system.
type Journal interface {
	// Append stores e if the last message on the run's subjects has the sequence expected (0: the run has none), and
	// returns its sequence. A lost race is ErrConflict. Any other error leaves the outcome unknown, except that an
	// append whose very bytes are found at the tail counts as stored.
	Append(ctx context.Context, e Event, expected uint64) (seq uint64, err error)
	// Read returns the run's events with a sequence greater than after, in order. last is the sequence of the last
	// message on the run's subjects, foreign ones included (those are skipped, and counted in Foreign); it is after
	// where there are none.
	Read(ctx context.Context, id RunID, after uint64) (JournalPage, error)
	// Page returns up to limit events of one run (or, with an empty run id, of a tenant) on the given road (empty:
	// both) with a sequence greater than after.
	Page(ctx context.Context, id RunID, road Road, after uint64, limit int) (JournalPage, error)
	// Purge deletes the run's messages up to and including the sequence upto.
	Purge(ctx context.Context, id RunID, upto uint64) error
}

// JournalPage is what reading a journal gives.
type JournalPage struct {
	Events  []Event
	Last    uint64 // sequence of the last message seen, or what was asked from
	Foreign int    // messages that are no events of ours
}

// Heads keeps a few kilobytes of state for each run, written with compare-and-set only.
type Heads interface {
	// Load returns the state and its revision, ErrNotFound where there is none, ErrNewer for one of a later version.
	// One that can't be read is returned as an empty Head with its revision and Unreadable set.
	Load(ctx context.Context, id RunID) (h Head, revision uint64, err error)
	// Save writes h if the stored revision is still the given one (0: there must be no state) and returns the new
	// revision; ErrConflict otherwise.
	Save(ctx context.Context, h Head, revision uint64) (uint64, error)
	// Delete removes the state if its revision is still the given one.
	Delete(ctx context.Context, id RunID, revision uint64) error
	// List returns up to limit states of a tenant that changed after the given revision, in the order of their last
	// change, and the revision to go on from (0: no more).
	List(ctx context.Context, tenant string, after uint64, limit int) (heads []Head, next uint64, err error)
	// Changed returns up to limit states of all tenants that changed after the given place, in that order, and the place
	// of the last one looked at. Where that does not continue the given one, it has begun at the oldest state again.
	Changed(ctx context.Context, after Cursor, limit int) (heads []Head, last Cursor, err error)
}

// Cursor is a place in the order in which states changed. The zero one is before all.
type Cursor struct {
	Revision uint64 // of a state
	Life     string // of the store: it has another one where it was made anew, or may have gone back to an earlier revision
}

// Continues reports whether what has been read up to an earlier place still holds.
func (c Cursor) Continues(earlier Cursor) bool {
	return earlier == Cursor{} || c.Life == earlier.Life && c.Revision >= earlier.Revision
}

// Wakes is the queue of wake-ups and the schedules that end in one.
type Wakes interface {
	// Wake publishes a wake-up; the same key within two minutes is stored once.
	Wake(ctx context.Context, id RunID, key string, w Wake) error
	// Schedule publishes a wake-up for the time at, which replaces an earlier one of the same name. What is
	// [a-z0-9-]+ .
	Schedule(ctx context.Context, id RunID, what string, at time.Time) error
	// Unschedule removes a schedule; one that does not exist is no error.
	Unschedule(ctx context.Context, id RunID, what string) error
	// Pending reports whether the wake-up with this stream sequence still exists.
	Pending(ctx context.Context, seq uint64) (bool, error)
	// Waiting counts the wake-ups of a tenant, those in hand included.
	Waiting(ctx context.Context, tenant string) (int, error)
	// Woken reports whether a wake-up of the run lies in the queue, in hand or not.
	Woken(ctx context.Context, id RunID) (bool, error)
	// Idle reports whether no wake-up waits for a worker. Those in hand or handed back with a delay do not count.
	Idle(ctx context.Context) (bool, error)
	// Repeat has a job of the workers, such as JobSweep, delivered as a wake-up again and again.
	Repeat(ctx context.Context, job string, every time.Duration) error
	// Claimed tells the other workers that the worker of this name has claimed a run from another one. Best effort.
	Claimed(id RunID, worker string)
	// Upcoming returns when a rule for repeating starts a run next after a time. The error says in words for the sender what
	// is wrong with the rule.
	Upcoming(every string, after time.Time) (time.Time, error)
	// Plan stores a task that is to begin later under its id; ErrConflict where there is one with it already.
	Plan(ctx context.Context, id RunID, p Planned) error
	// IsPlanned reports whether a task with this id is to begin later, or again.
	IsPlanned(ctx context.Context, id RunID) (bool, error)
	// Unplan removes a planned task, and reports whether there was one.
	Unplan(ctx context.Context, id RunID) (found bool, err error)
	// Job publishes a job for a tenant's workers once; the same key within two minutes is stored once.
	Job(ctx context.Context, tenant, job, key string, body any) error
}

// Jobs of the workers: reserved run names of wake-ups.
const (
	JobSweep = "_sweep" // looks for runs that nobody will wake
	JobLearn = "_learn" // asks a model for the durable facts of an ended run
	JobTask  = "_task"  // accepts a task whose time has come
	JobSum   = "_sum"   // brings the summary of a session up to date
)

// Rank says which wake-ups of a tenant go first where slots are short.
type Rank string

// The ranks. Runs that have begun go before all others; among those that have not, the higher priorities get more turns.
const (
	RankBegun  Rank = ""
	RankHigh   Rank = PriorityHigh
	RankNormal Rank = PriorityNormal
	RankLow    Rank = PriorityLow
)

// Wake is a wake-up; it is its body too.
type Wake struct {
	Rank     Rank            `json:"-"`                  // its place in the queue
	Seq      uint64          `json:"seq,omitempty"`      // sequence of the event it was published for
	Revision uint64          `json:"revision,omitempty"` // of the state that was stored with the run's first event
	Event    json.RawMessage `json:"event,omitempty"`    // that event, where it is small
}

// Sessions keeps conversations, written with compare-and-set only.
type Sessions interface {
	LoadSession(ctx context.Context, tenant, session string) (s Session, revision uint64, err error)
	SaveSession(ctx context.Context, tenant, session string, s Session, revision uint64) error
	// DeleteSession removes a conversation if its revision is still the given one.
	DeleteSession(ctx context.Context, tenant, session string, revision uint64) error
}

// Session is a conversation: KV AGENT_SESSIONS.
type Session struct {
	V        int              `json:"v"`
	Messages []SessionMessage `json:"messages"`
	Runs     []string         `json:"runs"` // the active one first, then those that wait for their turn
	Summary  *SessionSummary  `json:"summary,omitempty"`
}

// SessionSummary stands for the messages of a conversation up to the one that (Run, N) names, for models only: the messages
// stay as long as others do. It goes with the last message of the session.
type SessionSummary struct {
	Text string    `json:"text"`
	Run  string    `json:"run"`
	N    uint64    `json:"n"`
	Time time.Time `json:"time"`
}

// SessionMessage is one message of a conversation. (Run, N) names the event it came from.
type SessionMessage struct {
	Role string    `json:"role"` // user or assistant
	Text string    `json:"text"`
	Run  string    `json:"run"`
	N    uint64    `json:"n"`
	Time time.Time `json:"time"`
}

// Catalogues keeps what tools say of themselves, under its digest, which is a lower-case hexadecimal SHA-256.
type Catalogues interface {
	// PutCatalogue stores a catalogue for ever. Where there is one of that digest, that one stays.
	PutCatalogue(ctx context.Context, digest string, data []byte) error
	// GetCatalogue returns a catalogue, or ErrNotFound.
	GetCatalogue(ctx context.Context, digest string) ([]byte, error)
}

// Blobs keeps results too large for an event.
type Blobs interface {
	PutBlob(ctx context.Context, name string, data []byte) error
	GetBlob(ctx context.Context, name string) ([]byte, error)
	// DeleteBlobs removes all blobs of some runs. It reads what there is of all runs, so it is better asked once for many.
	DeleteBlobs(ctx context.Context, ids ...RunID) error
}

// Graveyard takes messages that can't be processed.
type Graveyard interface {
	// Bury stores the delivery's payload and headers as a dead letter. Repeats are stored once.
	Bury(ctx context.Context, d Delivery, reason, explanation string) error
}

// Source hands out queue messages.
type Source interface {
	// Fetch asks for up to n messages, calls take for each as it arrives, and returns when it has n, when ctx ends, or
	// after a few seconds. take must not block.
	Fetch(ctx context.Context, n int, take func(Delivery)) error
}

// Lanes is a Source in which groups of tenants take turns.
type Lanes interface {
	Source
	// FetchFrom looks for one message in the lanes of groups by turns, as far into each group as look says. It offers take
	// what it finds until take accepts one, and returns at once. What take refuses goes back to its place in the queue. take
	// must not block.
	FetchFrom(ctx context.Context, look func(group int) Look, take func(Delivery) (accepted bool)) error
}

// Look says how far [Lanes] are to look into a group.
type Look int

// The depths of a look.
const (
	LookNowhere Look = iota
	LookFirst        // at what would be next in each lane
	LookPast         // also a little way past that, in the lanes of tenants with few runs waiting
)

// DeliveryKind says what a queue message is.
type DeliveryKind string

// The kinds of delivery.
const (
	DeliverTask    DeliveryKind = "task"
	DeliverReply   DeliveryKind = "reply"
	DeliverControl DeliveryKind = "control"
	DeliverWake    DeliveryKind = "wake"
)

// Delivery is one delivery of one queue message.
type Delivery struct {
	Kind    DeliveryKind
	RunID   // from the subject; Run is empty for a task. Tokens are as published: check with ValidID
	Subject string
	// Header and Body are let go of once a run is claimed with its wake-up: a [Graveyard] finds them in the queue.
	Header map[string][]string
	Body   []byte

	// DefaultID is the run id of a task that names none: its Nats-Msg-Id, or a UUIDv5 of that where it is no valid id, or
	// a UUIDv5 of the message's sequence and time.
	DefaultID string

	Group int  // of tenants that share a place in the queue; -1: none
	Rank  Rank // of a wake-up

	Stream  string
	Seq     uint64    // in that stream
	Time    time.Time // when the stream stored it
	Attempt uint64    // 1 for the first delivery of the message
	// Since is a time, by this process's monotonic clock, at which the message was not delivered yet. Its lease can't be
	// counted from a later one: a message may lie in a socket while the process is stopped.
	Since time.Time

	Settler Settler
}

// Settler ends or extends a delivery.
type Settler interface {
	// Ack removes the message from the queue. It does not wait for the server: where the word is lost, the message is
	// delivered again, and whoever gets it finds nothing to do.
	Ack(ctx context.Context) error
	// Nak gives the message back, to be delivered again after the delay.
	Nak(delay time.Duration) error
	// Extend starts the lease anew and waits for the server's confirmation.
	Extend(ctx context.Context) error
}

// Orders publishes orders as others do.
type Orders interface {
	// Order puts a control, as JSON, into the queue.
	Order(ctx context.Context, id RunID, control json.RawMessage) error
}

// Outcomes tells somebody who waits at the API what came of a queue message of theirs. Best effort.
type Outcomes interface {
	Tell(d Delivery, status, message string)
}

// Model asks a language model.
type Model interface {
	// Complete returns the model's reply. Errors are *ModelError, or the context's cause.
	Complete(ctx context.Context, r ModelRequest) (ModelReply, error)
}

// Purpose says what a model call is for.
type Purpose string

// The purposes of model calls.
const (
	PurposeStep      Purpose = "step"
	PurposeFill      Purpose = "fill"
	PurposeReflect   Purpose = "reflect"
	PurposeSummarize Purpose = "summarize"
	PurposeLearn     Purpose = "learn"
)

// ModelRequest is one model call.
type ModelRequest struct {
	Run      RunID
	Purpose  Purpose
	Model    string   // empty: the worker's default
	Fallback []string // tried in order when the model fails for good
	Options  map[string]json.RawMessage
	Messages []Message
	JSON     bool         // the reply must be one JSON object
	Schema   *ReplySchema // of that object, for endpoints that can hold a model to one; nil: none
	Tools    []ToolSpec   // offered as native tool calls; nil: none
	Stop     []string
	// Tokens is called with each piece of the reply as it comes, in order, by one goroutine at a time; nil: the reply is
	// not streamed. An attempt that fails and is repeated begins anew with an empty piece.
	Tokens func(piece string)
}

// ReplySchema is the JSON Schema of a reply. Name is made of letters, digits, _ and -.
type ReplySchema struct {
	Name   string
	Schema json.RawMessage
	Strict bool // all properties are required and no others allowed, as endpoints want it that hold to a schema strictly
	Told   bool // the prompt says the same in its own words
}

// NativeCall is a tool call in the endpoint's own form. Arguments are as the model wrote them, valid JSON or not.
type NativeCall struct {
	ID        string
	Name      string
	Arguments json.RawMessage
}

// Message is one message of a prompt.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// ModelReply is what came back.
type ModelReply struct {
	Text      string
	Calls     []NativeCall // where the request offered tools
	Model     string       // which one answered
	Usage     Usage
	Truncated bool // the endpoint cut it off at its token limit
	Oversize  bool // it is longer than is read: Text is its beginning, and there are no Calls
	MS        int64
	Seen      uint64 // n of the last event that the prompt contained; set by the engine
	Room      int    // bytes that the prompt was cut to; 0: it was not; set by the engine
}

// ModelError is a failed model call, after the adapter's own short retries.
type ModelError struct {
	Cause   string        // auth, quota, rate_limit, model_not_found, context_length, content_filter, server_error, transport …
	Message string        // for a person: what happened, where, what to do next
	Passing bool          // it may get better by itself
	After   time.Duration // the endpoint asked to wait that long; 0: it did not say
	Unsent  bool          // it is no fault: nothing was sent, for it was not the request's turn. After says when it may be
}

// Error returns the message with its cause.
func (e *ModelError) Error() string { return e.Cause + ": " + e.Message }

// Tools is the registry of what a worker offers.
type Tools interface {
	// Offer returns the tools that match one of the globs, by name; nil globs mean all. Exact names that match
	// nothing are returned as unknown.
	Offer(globs []string) (specs []ToolSpec, unknown []string)
	// Guard asks the tool's guard, if it has one, whether the call may go out; problems is empty where it may.
	Guard(ctx context.Context, c Invocation) (problems []string)
	// Call runs a tool. Failures of every kind are outcomes, never errors.
	Call(ctx context.Context, c Invocation) Outcome
	// Reconcile asks the tool's reconcile tool, if it has one, what became of a call that was started.
	Reconcile(ctx context.Context, c Invocation, started time.Time) Reconciled
	// Validate checks value against a JSON Schema and lists every violation.
	Validate(schema, value json.RawMessage) (problems []string, err error)
	// Digest returns the SHA-256 of the canonical form (RFC 8785) of a JSON value, in hexadecimal.
	Digest(value json.RawMessage) (string, error)
}

// ToolSpec describes a tool to the engine and to the model.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage // of the arguments: an object
	Example     json.RawMessage // arguments of an example call; may be nil
	Digest      string          // of the schema
	Effect      Effect
	Times       int  // how many steps of one plan may call a once tool; 0: one
	Approve     bool // needs a person's yes
	Delegate    bool // calls of it are carried out by child runs and never reach Tools.Call
	Timeout     time.Duration
	Source      string // where it comes from: builtin, demo, nats …
	// Check validates arguments and returns them as they are to be used; problems lists every violation.
	Check func(args json.RawMessage) (checked json.RawMessage, problems []string)
	// CheckPart validates arguments from which the properties named in later are still missing: these count as there and
	// as right.
	CheckPart func(args json.RawMessage, later []string) (problems []string)
	// Fields are the names of the arguments' properties, sorted.
	Fields []string
}

// Invocation is one tool call on its way out.
type Invocation struct {
	Run       RunID
	User      string // of the task
	Call      string
	Tool      string
	Digest    string // of the schema as it was when the run began
	Checked   bool   // the arguments have been checked against that schema
	Arguments json.RawMessage
	Vars      map[string]json.RawMessage // the task's vars, which the model never sees
	// Results returns the results of the run's earlier ok calls by call id, for guards; nil: there are none.
	Results func() map[string]json.RawMessage
}

// Key is the idempotency key of the call, the same at every repeat.
func (c Invocation) Key() string { return c.Run.Tenant + "/" + c.Run.Run + "/" + c.Call }

// Outcome is what came of a call.
type Outcome struct {
	Status    ObservedStatus // ok, error, or cancelled where ctx ended it
	Result    json.RawMessage
	Truncated bool
	Full      []byte // the whole result where Truncated is set
}

// Reconciled is what became of a started call.
type Reconciled struct {
	Outcome string // done, not_done or unknown
	Result  json.RawMessage
}

// Memory keeps long-term facts.
type Memory interface {
	// Recall returns the k facts of the tenant and user nearest to what a run is about: the goal, and what was said before
	// it in the session, oldest first. A goal that asks for nothing, such as thanks, recalls nothing.
	Recall(ctx context.Context, tenant, user string, before []SessionMessage, goal string, k int) ([]Fact, error)
	// Learn stores what is durable in what was said in a run. ask puts messages to the model, whose reply has to be one
	// JSON object. It may be called again for the same run: what is stored already is not stored twice.
	Learn(ctx context.Context, tenant, user, run string, said []SessionMessage, ask Asker) error
}

// Asker puts messages to a model and returns what it says.
type Asker func(ctx context.Context, messages []Message) (string, error)

// ErrUseless says that doing it again can't help.
var ErrUseless = errors.New("another try can't help")

// ErrAway says that memory can't be asked now, and that nothing was spent on trying.
var ErrAway = errors.New("memory can't be asked now")
