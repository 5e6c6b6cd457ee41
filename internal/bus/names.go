package bus

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/loop"
)

// Every NATS name this program uses is on this page. Subjects begin with the prefix, streams and buckets with the
// prefix in upper case. Durables, headers and event types are the same under every prefix.

const (
	defaultPrefix = "agent"

	durableInbox = "inbox" // replies and controls; tasks-0 and so on have the tasks
	durableWakes = "wakes" // jobs of all workers, and wake-ups stored before there were lanes; wakes-g0 and so on have the rest
	durableTasks = "tasks"
)

// Headers of ours. The Nats- headers are the server's.
const (
	headerContentType    = "Content-Type"
	headerTrace          = "traceparent"     // of a task, and of an API request that makes one: W3C Trace Context
	headerType           = "Ratchet-Type"    // of an event: its type, so that a reader can skip without decoding
	headerOutcome        = "Ratchet-Outcome" // of a queue message: the token under which its outcome is awaited
	headerReason         = "Ratchet-Reason"  // the rest: of a dead letter
	headerError          = "Ratchet-Error"
	headerSubject        = "Ratchet-Subject"
	headerSequence       = "Ratchet-Sequence"
	headerDeliveries     = "Ratchet-Deliveries"
	headerBlob           = "Ratchet-Blob"
	headerOriginalPrefix = "Ratchet-Original-" // before the name of an original header that would have power
	headerDropped        = "Ratchet-Headers-Dropped"
	headerRun            = "Ratchet-Run"
	headerRedrive        = "Ratchet-Redrive"    // of a queue message that was a dead letter: how often
	headerRedriveOf      = "Ratchet-Redrive-Of" // the same: the id of its first run, for a task that names none

	headerMsgID          = "Nats-Msg-Id"
	headerExpectedSeq    = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedFilter = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerSchedule       = "Nats-Schedule"
	headerScheduleTarget = "Nats-Schedule-Target"
	headerScheduleZone   = "Nats-Schedule-Time-Zone"
	headerKVOperation    = "KV-Operation"

	contentTypeEvent = "application/cloudevents+json"
)

// idSpace is the namespace of run ids derived from message ids and places in the queue, for ever.
var idSpace = uuid.MustParse("0b9b6a5e-7f5b-5d0e-9d55-3a1f5a1c7e42")

var (
	prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	whatPattern   = regexp.MustCompile(`^[a-z0-9-]+$`)
	tokenPattern  = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)
)

// names derives all names from a prefix.
type names struct {
	prefix string

	tasks, wake, events, dead string // streams
	heads, sessions, blobs    string // buckets
	pace, catalogues          string // the same
}

func newNames(prefix string) (names, error) {
	if !prefixPattern.MatchString(prefix) {
		return names{}, fmt.Errorf("prefix %q is not valid: use 1 to 32 of a-z, 0-9 and -, beginning with a letter", prefix)
	}
	upper := strings.ToUpper(strings.ReplaceAll(prefix, "-", "_"))
	return names{
		prefix: prefix,
		tasks:  upper + "_TASKS", wake: upper + "_WAKE", events: upper + "_EVENTS", dead: upper + "_DEAD",
		heads: upper + "_RUNS", sessions: upper + "_SESSIONS", blobs: upper + "_BLOBS", pace: upper + "_PACE",
		catalogues: upper + "_TOOLS",
	}, nil
}

func (n names) tasksSubjects() []string {
	return []string{n.prefix + ".task.*", n.prefix + ".reply.*.*", n.prefix + ".control.*.*"}
}

func (n names) wakeSubjects() []string {
	return []string{n.prefix + ".wake.*.*.*", n.prefix + ".schedule.*.*.*"}
}

func (n names) eventsSubjects() []string {
	return []string{n.prefix + ".event.*.*." + string(loop.RoadStep), n.prefix + ".event.*.*." + string(loop.RoadUser)}
}

// spread has the server put the group of its tenant into the subject of each task that it stores.
func (n names) spread() *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{
		Source:      n.prefix + ".task.*",
		Destination: fmt.Sprintf("%s.task.{{partition(%d,1)}}.{{wildcard(1)}}", n.prefix, groups),
	}
}

func (n names) deadSubjects() []string { return []string{n.prefix + ".dead.*.*"} }

func (n names) task(tenant string) string  { return n.prefix + ".task." + tenant }
func (n names) reply(id loop.RunID) string { return n.prefix + ".reply." + id.Tenant + "." + id.Run }

func (n names) control(id loop.RunID) string {
	return n.prefix + ".control." + id.Tenant + "." + id.Run
}
func (n names) allControls() string { return n.prefix + ".control.*.*" }

// wakeUp is the subject of a wake-up in the lane of its tenant and rank.
func (n names) wakeUp(id loop.RunID, rank loop.Rank) string { return n.wakeIn(laneOf(id, rank), id) }

// wakeInBulk is the subject of a wake-up in the bulk lane of its tenant and rank.
func (n names) wakeInBulk(id loop.RunID, rank loop.Rank) string {
	return n.wakeIn(bulkLaneOf(id.Tenant, rank), id)
}

func (n names) wakeIn(lane string, id loop.RunID) string {
	return n.wakePrefix() + lane + "." + id.Tenant + "." + id.Run
}
func (n names) wakePrefix() string { return n.prefix + ".wake." }
func (n names) claimed(id loop.RunID) string {
	return n.prefix + ".claimed." + id.Tenant + "." + id.Run
}
func (n names) allClaims() string                { return n.prefix + ".claimed.*.*" }
func (n names) outcome(token string) string      { return n.prefix + ".outcome." + token }
func (n names) api(op, tenant string) string     { return n.prefix + ".api." + op + "." + tenant }
func (n names) deadLetter(t, kind string) string { return n.prefix + ".dead." + t + "." + kind }

func (n names) schedule(id loop.RunID, what string) string {
	return n.prefix + ".schedule." + id.Tenant + "." + id.Run + "." + what
}

func (n names) event(id loop.RunID, road loop.Road) string {
	return n.prefix + ".event." + id.Tenant + "." + id.Run + "." + string(road)
}

// allEvents covers the events of all runs.
func (n names) allEvents() string { return n.prefix + ".event.*.*.*" }

// stream is where the pieces of a run's replies go; nothing stores them.
func (n names) stream(id loop.RunID) string { return n.prefix + ".stream." + id.Tenant + "." + id.Run }

// journal is the filter that covers every event of a run.
func (n names) journal(id loop.RunID) string {
	return n.prefix + ".event." + id.Tenant + "." + id.Run + ".>"
}

// keeper is the stream that stores what is published to a subject of ours; empty where that is not known.
func (n names) keeper(subject string) string {
	if key, found := strings.CutPrefix(subject, "$KV."); found {
		bucket, _, _ := strings.Cut(key, ".")
		return kvStream(bucket)
	}
	rest, found := strings.CutPrefix(subject, n.prefix+".")
	kind, _, _ := strings.Cut(rest, ".")
	switch {
	case !found:
		return ""
	case kind == "event":
		return n.events
	case kind == "wake" || kind == "schedule":
		return n.wake
	case kind == "task" || kind == "reply" || kind == "control":
		return n.tasks
	case kind == "dead":
		return n.dead
	}
	return ""
}

func kvStream(bucket string) string           { return "KV_" + bucket }
func kvSubject(bucket, key string) string     { return "$KV." + bucket + "." + key }
func objectStream(bucket string) string       { return "OBJ_" + bucket }
func objectMeta(bucket, name string) string   { return "$O." + bucket + ".M." + name }
func objectChunks(bucket, nuid string) string { return "$O." + bucket + ".C." + nuid }

// blobOfDeadLetter names the payload of a dead letter; _dead is no run's id.
func blobOfDeadLetter(tenant, id string) string {
	return tenant + "/_dead/" + strings.ReplaceAll(id, ":", "-")
}

// checkRun refuses ids that are not single subject tokens: as part of a filter they would reach other runs.
func checkRun(id loop.RunID) error {
	if !loop.ValidID(id.Tenant) || !loop.ValidID(id.Run) {
		return fmt.Errorf("%q is no valid tenant and run id", id.String())
	}
	return nil
}

// checkWakeable also admits the reserved names, which begin with _ .
func checkWakeable(id loop.RunID) error {
	reserved := func(s string) bool { return s == "_" || loop.ValidID(strings.TrimPrefix(s, "_")) }
	if !reserved(id.Tenant) || !reserved(id.Run) {
		return fmt.Errorf("%q is no valid tenant and run id", id.String())
	}
	return nil
}
