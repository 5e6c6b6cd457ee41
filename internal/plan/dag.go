package plan

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MaxDAGSteps is how many steps a DAG may have at most.
const MaxDAGSteps = 1000

// DAG is a whole plan that was written before any of it ran: steps that each call one tool, with what they wait for. The
// order of the list is the order in which the model wrote them; a step may run as soon as all it waits for is done.
type DAG []DAGStep

// DAGStep is one step of a DAG.
type DAGStep struct {
	ID     string          `json:"id"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`   // an object that may hold references, see [Resolve]; digits as written
	After  []string        `json:"after"`  // ids of the steps it waits for; those that args refer to are among them
	Open   []string        `json:"open"`   // names of args that a fill sets after earlier results were read
	Status Status          `json:"status"` // pending, running, done, failed or skipped
	Result json.RawMessage `json:"result"` // of the tool, or why the step failed or was skipped; null before that
}

// oneDAG is the advice for replies that must be a plan.
var oneDAG = advice{
	send:   "Send create_plan with the whole plan: " + dagShape + ".",
	unlist: "send " + dagShape + ".",
	single: "Send one create_plan with all steps in its plan.",
}

// dagShape and dagStepShape are how corrections show a plan and a step of it.
const (
	dagStepShape = `{"id": "1", "tool": "…", "args": {…}, "after": [], "open": []}`
	dagShape     = `{"type": "create_plan", "thought": "…", "plan": [` + dagStepShape + `, …]}`
)

// dagStepFields are the fields of a step. The last four mean nothing, but to ignore them would lose what they say.
var dagStepFields = []string{"id", "tool", "args", "after", "open", "arguments", "parameters", "depends_on", "dependencies"}

// ReadDAG understands a model's reply as a create_plan whose plan is a DAG, and returns it with the thought. What may stand
// around the object is as for [Read]. Ids and the entries of after may be numbers; they are compared as text. What a reply
// says about status and result is ignored: each step is pending. Steps that args refer to are added to after.
//
// The error is a *[Violation] that lists everything that has the wrong form. What is read is well-formed; whether it
// is allowed is for [CheckDAG] to say. More than [MaxDAGSteps] steps are refused unread.
func ReadDAG(text string) (d DAG, thought string, err error) {
	text, object, v := find(text, oneDAG)
	if v != nil {
		return nil, "", v
	}
	d, thought, v = (&reader{text}).dag(object)
	if v != nil {
		return nil, "", v
	}
	d.link(0)
	return d, thought, nil
}

func (r *reader) dag(object span) (DAG, string, *Violation) {
	f, v := r.fields(object, messageFields)
	if v != nil {
		return nil, "", v
	}
	kind, v := r.str(f.get("type"), "type")
	if v != nil {
		return nil, "", v
	}
	switch {
	case r.absent(f.get("type")) || r.absent(f.get("plan")):
		return nil, "", violate(RuleMissingField, "The object must have a type and a plan. %s", oneDAG.send)
	case Type(strings.ToLower(strings.TrimSpace(kind))) != CreatePlan:
		return nil, "", violate(RuleUnknownType, "The type is %s, but only create_plan has a place here. %s", quote(kind), oneDAG.send)
	}
	thought, v := r.str(f.get("thought"), "thought")
	if v != nil {
		return nil, "", v
	}
	if v = r.foreign(CreatePlan, f); v != nil {
		return nil, "", v
	}
	items, v := r.list(f.get("plan"), "plan", "a list of steps "+dagStepShape)
	if v != nil {
		return nil, "", v
	}
	if v = tooManySteps(len(items), MaxDAGSteps); v != nil {
		return nil, "", v
	}
	d := make(DAG, len(items))
	var found problems
	for i, item := range items {
		d[i] = r.dagStep(item, fmt.Sprintf("Step number %d", i+1), &found)
	}
	return d, thought, found.violation()
}

func tooManySteps(n, most int) *Violation {
	if n <= most {
		return nil
	}
	return violate(RuleTooManySteps, "The plan has %d steps; %d is the most. Send a plan with fewer steps.", n, most)
}

// dagStep reads one step and notes what has the wrong form. The id, the tool and what args are is left to the check.
func (r *reader) dagStep(item span, where string, found *problems) DAGStep {
	s := DAGStep{Args: json.RawMessage("{}"), After: []string{}, Open: []string{}, Status: Pending}
	if k := kindAt(r.text, item.from); k != "an object" {
		found.add(RuleWrongType, "%s is %s; each step is %s.", where, k, dagStepShape)
		return s
	}
	f, v := r.fields(item, dagStepFields)
	if v != nil {
		found.take(where, v)
		return s
	}
	for at, name := range dagStepFields[5:] {
		if r.says(f.get(name)) {
			found.add(RuleForeignField, "%s has a field %s: it is called %s.", where, name, [...]string{"args", "args", "after", "after"}[at])
		}
	}
	var ok bool
	if id := f.get("id"); !r.absent(id) {
		if s.ID, ok = r.idText(id); !ok {
			found.add(RuleWrongType, "%s has an id that is %s; it must be a string.", where, kindAt(r.text, id.from))
		}
	}
	if s.Tool, v = r.str(f.get("tool"), "tool"); v != nil {
		found.take(where, v)
	}
	args, v := r.raw(f.get("args"))
	if v != nil {
		found.take(where, v)
	} else if args != nil {
		s.Args = args
	}
	s.After = r.texts(f.get("after"), where+": after", found)
	s.Open = r.texts(f.get("open"), where+": open", found)
	return s
}

// idText returns the text of a string, or of a number as it is written.
func (r *reader) idText(value span) (string, bool) {
	switch literal := r.text[value.from:value.to]; kindAt(r.text, value.from) {
	case "a string":
		return unquote(literal), true
	case "a number":
		return literal, true
	}
	return "", false
}

// texts reads a list of strings or numbers, each once. Longer than a plan can be, it can't be right.
func (r *reader) texts(value span, where string, found *problems) []string {
	if r.absent(value) {
		return []string{}
	}
	items, v := r.list(value, where, "a list of strings")
	if v != nil {
		found.take("", v)
		return []string{}
	}
	if len(items) > MaxDAGSteps {
		found.add(RuleTooManySteps, "%s has %d entries; %d is the most.", where, len(items), MaxDAGSteps)
		return []string{}
	}
	list := make([]string, 0, len(items))
	for _, item := range items {
		text, ok := r.idText(item)
		if !ok {
			found.add(RuleWrongType, "%s holds %s; it must be a list of strings.", where, kindAt(r.text, item.from))
			continue
		}
		list = append(list, text)
	}
	return unique(list)
}

// unique returns the list without repetitions, in its own memory.
func unique(list []string) []string {
	if len(list) < 2 {
		return list
	}
	seen := make(map[string]bool, len(list))
	kept := list[:0]
	for _, text := range list {
		if !seen[text] {
			seen[text] = true
			kept = append(kept, text)
		}
	}
	return kept
}

// Encode returns the DAG as a model should have written it: a create_plan in one line. [ReadDAG] takes it back to the same
// steps, without status and result.
func (d DAG) Encode(thought string) string {
	var b strings.Builder
	b.WriteString(`{"type":"create_plan","thought":` + encodeString(thought) + `,"plan":[`)
	for i, s := range d {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"id":` + encodeString(s.ID) + `,"tool":` + encodeString(s.Tool) + `,"args":` + string(s.Args) +
			`,"after":` + encodeList(s.After) + `,"open":` + encodeList(s.Open) + `}`)
	}
	b.WriteString("]}")
	return b.String()
}

func encodeList(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = encodeString(text)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}

// Index returns where the step with this id stands, or -1.
func (d DAG) Index(id string) int {
	for i := range d {
		if d[i].ID == id {
			return i
		}
	}
	return -1
}

// positions returns where each id stands; of two steps with the same id, where the first does.
func (d DAG) positions() map[string]int {
	at := make(map[string]int, len(d))
	for i := range d {
		if _, taken := at[d[i].ID]; !taken && d[i].ID != "" {
			at[d[i].ID] = i
		}
	}
	return at
}
