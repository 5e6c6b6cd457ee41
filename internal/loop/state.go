package loop

import (
	"encoding/json"
	"path"
	"slices"
	"time"

	"ratchet/internal/plan"
)

// State is what a run's events add up to. It is made by [Step] alone and never changed in place by others; a State and
// the one it was made from share memory, so only the newest may be stepped.
type State struct {
	RunID
	N     uint64    // number of the last event
	Seq   uint64    // its sequence in the journal's stream
	First uint64    // sequence of the first event
	Began time.Time // time of the first event
	Last  time.Time // time of the last event

	Task      Task
	Tools     []OfferedTool
	Prompt    string // version of the prompt texts
	Catalogue string // digest of what the tools said when the run began; empty where that was not kept
	// Traceparent is the W3C trace context of whoever asked for the run, see [State.Trace].
	Traceparent string
	Facts       *Facts // nil until memory was asked

	Parent     string   // the run above, of a child run
	ParentCall string   // the call of the run above that this run carries out
	Chain      []string // all runs above, the first one first

	Plan       plan.Plan
	Transcript []Message  // what model and worker said after the opening of the prompt, oldest first
	Notes      []heldNote // what the person said while the model was at work and has not been shown to it
	Turns      int        // model turns, rejected ones included
	Rejections int        // consecutive ones
	Usage      Usage
	Lost       int           // tokens that calls cut off by crashes may have cost
	Worked     time.Duration // how long the run has worked, waiting not counted
	ModelTries int           // how often the run has waited for the model in a row

	Asking    *Asking      // the model wants to ask, the question is not put yet
	Answering *string      // the model has answered, the run is not ended yet
	Calls     []OpenCall   // calls without an observation, oldest first
	Escalate  []ToolCall   // calls whose unknown outcome a person must be asked about
	Results   []CallResult // of ok calls, oldest first; only ever appended to
	Question  *Question
	Wait      *Wait
	Paused    bool
	Ending    Data // Failed or Cancelled that the run is on its way to
	Ended     Data // Answer, Failed or Cancelled

	Trail     []SessionMessage // what was said between the person and the run
	Schedules []string         // schedules that may still be armed

	childCount int // child runs that were written down
	reserved   int // tokens that are set aside for those that have not ended

	retries     int      // how often the run was tried again
	turnsBefore int      // turns of the attempts before this one
	effects     []string // once calls that took effect
	unsure      bool     // the run was ended over a call whose outcome is unknown

	dag   dagState   // of plan_execute
	round roundState // of plan_act_reflect

	entries   []entry  // the conversation that Transcript joins
	summaries int      // how often it was made shorter
	lastCall  ToolCall // the call that was observed last
	lastUsage Usage    // of the last model call

	callCount, questionCount int
	questionN, waitN         uint64              // numbers of the events that made Question and Wait
	asked                    map[string]replyKey // questions that were put, and what closed them
	remembered               []string            // globs of tools that need no further yes
	repeats                  map[string]repeat   // calls by fingerprint
	mostRepeats              int                 // the largest of their counts so far
	sameAgain                int                 // how often the last observed call has given this result in a row
	working                  bool                // the last event left the run at work
	lastByDriver             bool

	owing   []Duty // what is due since event owingAt; not to be changed
	owingAt uint64
}

// CallResult is what an ok call returned, or what a person said that it did.
type CallResult struct {
	Call   string
	Result json.RawMessage
}

// OpenCall is a call that has no observation yet.
type OpenCall struct {
	ToolCall
	Approval  approval
	Refusal   string // why it was refused
	Started   bool   // a started event was stored
	StartedAt time.Time
	Waiting   *Wait     // waits until its outcome may be asked for
	waitN     uint64    // number of that wait's event
	Overdue   bool      // that wait is over
	Child     *ChildRun // that carries it out, once that is written down
}

// heldNote is a person's note that goes to the end of the next prompt.
type heldNote struct {
	n    uint64
	text string
}

type approval int

const (
	approvalNotNeeded approval = iota
	approvalNeeded
	approvalGiven
	approvalRefused
)

// replyKey identifies a reply, to tell a repeat of it from another one.
type replyKey struct {
	closed bool
	by     string // encoded reply; empty where a timeout closed the question
}

// repeat counts how often a call gave the same result in a row.
type repeat struct {
	result  string
	count   int
	refused int
}

// Status returns where the run stands.
func (s *State) Status() Status {
	switch s.Ended.(type) {
	case Answer:
		return StatusDone
	case Failed:
		return StatusFailed
	case Cancelled:
		return StatusCancelled
	default: // it has not ended
	}
	switch {
	case s.Ending != nil:
		return StatusRunning
	case s.Paused:
		return StatusPaused
	case len(s.due()) > 0:
		return StatusRunning
	default:
		return StatusWaiting
	}
}

// timeout is how long the run may work.
func (s *State) timeout() time.Duration { return time.Duration(s.Task.Limits.Timeout) }

// Metadata is what the task wants to see in every event.
func (s *State) Metadata() json.RawMessage {
	if string(s.Task.Metadata) == "null" {
		return nil
	}
	return s.Task.Metadata
}

// Deadline is a time that the run waits for.
type Deadline struct {
	At       time.Time
	N        uint64 // of the event that set it
	Schedule string // name of the schedule that wakes the run then
	Timeout  Timeout
}

// Deadlines returns the times the run waits for, the nearest first.
func (s *State) Deadlines() []Deadline {
	if s.Ended != nil || s.Ending != nil {
		return nil
	}
	var out []Deadline
	add := func(at time.Time, n uint64, schedule string, t Timeout) {
		if !at.IsZero() {
			out = append(out, Deadline{At: at, N: n, Schedule: schedule, Timeout: t})
		}
	}
	if s.Question != nil {
		add(s.Question.Deadline, s.questionN, questionSchedule(s.questionN), Timeout{What: TimeoutQuestion, Question: s.Question.Question})
	}
	if s.Wait != nil {
		add(s.Wait.Until, s.waitN, waitSchedule(s.waitN), Timeout{What: TimeoutWait})
	}
	for _, c := range s.Calls {
		if c.Waiting != nil && !c.Overdue {
			add(c.Waiting.Until, c.waitN, waitSchedule(c.waitN), Timeout{What: TimeoutWait})
		}
	}
	slices.SortStableFunc(out, func(a, b Deadline) int { return a.At.Compare(b.At) })
	return out
}

// call returns the open call with that id, or nil.
func (s *State) call(id string) *OpenCall {
	for i := range s.Calls {
		if s.Calls[i].Call == id {
			return &s.Calls[i]
		}
	}
	return nil
}

func (s *State) offered(tool string) (OfferedTool, bool) {
	for _, t := range s.Tools {
		if t.Name == tool {
			return t, true
		}
	}
	return OfferedTool{}, false
}

func matchesAny(globs []string, name string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, name); err == nil && ok {
			return true
		}
	}
	return false
}

// needsApproval reports whether a person must say yes to a call of this tool in this run.
func (s *State) needsApproval(tool string) bool {
	t, known := s.offered(tool)
	if matchesAny(s.remembered, tool) {
		return false
	}
	return (known && t.Approve) || matchesAny(s.Task.Approve, tool)
}

// AskedBefore reports whether the run put a question with this id.
func (s *State) AskedBefore(question string) bool {
	_, ok := s.asked[question]
	return ok
}
