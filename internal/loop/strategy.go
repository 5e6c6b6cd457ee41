package loop

import (
	"encoding/json"
	"maps"
	"slices"

	"ratchet/internal/plan"
)

// A strategy says what the model is shown and how its reply is judged. It can't commit, call or wait: only the engine
// can, so every strategy gets durability, limits, approvals and events for nothing. Its methods are pure.
type strategy interface {
	// prompt names the version of the prompt texts, for the run's first event.
	prompt() string
	// fold keeps what the strategy wants to know of the event, which the engine has folded into s.
	fold(s *State, e Event)
	// next returns what is owed beside the calls that are open: a model call, an event of the strategy's own, a question.
	// A strategy that takes one step after another owes nothing while the run is busy, see [State.busy].
	next(s *State) []Duty
	// opening returns the messages before the transcript. It must give the same text at every turn of a run, so that
	// providers can cache it.
	opening(s *State, tools Toolbox) []Message
	// request returns the messages and the form of a model call; the engine adds the rest. What the model is shown that
	// the person has said must be all of it up to now, or judge must leave Made.Seen at 0.
	request(s *State, tools Toolbox, opening []Message, ask AskModel) ModelRequest
	// observe returns what the event, already folded into s, adds to the transcript.
	observe(s *State, e Event) []Message
	// judge turns the model's reply into the event to append: a Rejection where it can't be used.
	judge(s *State, tools Toolbox, ask AskModel, r *ModelReply) Data
}

// The strategies.
const (
	StrategyPlanReact      = "plan_react"       // the default: plan first, then act one step at a time
	StrategyReact          = "react"            // thought, action, observation, as text
	StrategyPlanExecute    = "plan_execute"     // the whole plan before anything runs
	StrategyPlanActReflect = "plan_act_reflect" // plan, act, criticise, repeat
)

// strategies holds every strategy by name. It is filled at start-up and never written again.
var strategies map[string]strategy

func init() {
	strategies = map[string]strategy{
		StrategyPlanReact: planReact{}, StrategyReact: react{}, StrategyPlanExecute: planExecute{},
		StrategyPlanActReflect: planActReflect{},
	}
}

// Strategies returns the names of all strategies, sorted.
func Strategies() []string { return slices.Sorted(maps.Keys(strategies)) }

// Toolbox is the set of tools a run may use, by name.
type Toolbox struct {
	specs []ToolSpec // sorted by name
	names []string
	index map[string]int

	set   string // digest of the tools in it and of what they say of themselves; empty where that is not known
	texts *toolTexts
}

// NewToolbox returns a toolbox of these tools.
func NewToolbox(specs []ToolSpec) Toolbox {
	t := Toolbox{specs: specs, names: make([]string, len(specs)), index: make(map[string]int, len(specs)), texts: &toolTexts{}}
	for i, s := range specs {
		t.names[i], t.index[s.Name] = s.Name, i
	}
	return t
}

// Names returns the names of the tools, sorted.
func (t Toolbox) Names() []string { return t.names }

// Spec returns the tool of that name.
func (t Toolbox) Spec(name string) (ToolSpec, bool) {
	i, ok := t.index[name]
	if !ok {
		return ToolSpec{}, false
	}
	return t.specs[i], true
}

// arguments checks the arguments of a call, in the form that package plan asks for.
func (t Toolbox) arguments(tool string, args json.RawMessage) (json.RawMessage, []string, bool) {
	spec, known := t.Spec(tool)
	if !known {
		return nil, nil, false
	}
	checked, problems := spec.Check(args)
	if len(problems) > 0 {
		if without, some := plan.WithoutNulls(spec.Schema, args); some {
			if rest, wrong := spec.Check(without); len(wrong) == 0 {
				return rest, nil, true
			}
		}
	}
	return checked, problems, true
}

// Conversation returns the whole prompt of the next model turn. It copies no text but that of the last message, and
// only where something follows it: notes, and the word to finish when tokens run short.
func Conversation(s *State, opening []Message) []Message {
	messages := make([]Message, 0, len(opening)+len(s.Transcript)+len(s.Notes))
	messages = join(join(messages, opening...), s.Transcript...)
	for _, n := range s.Notes {
		messages = join(messages, n.message())
	}
	if s.tokensShort() {
		messages = join(messages, Message{Role: "user", Content: finishNow})
	}
	return messages
}

// join appends messages. Neighbours of one role become one message, since some endpoints want roles to alternate.
func join(to []Message, messages ...Message) []Message {
	for _, m := range messages {
		if n := len(to); n > 0 && to[n-1].Role == m.Role {
			to[n-1].Content += "\n\n" + m.Content
			continue
		}
		to = append(to, m)
	}
	return to
}
