package torture

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"ratchet/internal/loop"
)

// effects checks the tools' own counters against the journals.
func (c *checker) effects() {
	byKey := map[string][]Execution{}
	for _, x := range c.Executions {
		byKey[x.Key] = append(byKey[x.Key], x)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		c.execution(key, byKey[key])
	}
	for _, run := range c.planned() {
		f := c.folded[run]
		if f == nil {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(f.calls)) {
			c.observation(run, f, f.calls[id], byKey[tenant+"/"+run+"/"+id])
		}
		for id, list := range f.observed {
			if _, asked := f.calls[id]; !asked && slices.ContainsFunc(list, wasCalled) {
				c.report(RuleObserved, run, "call %s was observed and never asked for", id)
			}
		}
	}
}

// wasCalled reports whether an observation is that of a call, as opposed to a step of a plan that could not be called.
func wasCalled(o loop.Observation) bool {
	return o.Call != "" || o.Step == "" || o.Status != loop.ObservedSkipped && o.Status != loop.ObservedError
}

// execution checks what ran under one key.
func (c *checker) execution(key string, list []Execution) {
	run, tool := runOfKey(key), list[0].Tool
	f := c.folded[run]
	var call loop.ToolCall
	if f != nil {
		call = f.calls[key[len(tenant+"/"+run+"/"):]]
	}
	if f == nil || call.Call == "" || call.Tool != tool {
		c.report(RuleUnasked, run, "%s ran under %s, and the journal asks for no such call", tool, key)
		return
	}
	if effects[tool] == loop.EffectOnce {
		if len(list) > 1 {
			c.report(RuleOnce, run, "%s ran %d times under %s: %s", tool, len(list), key, when(list))
		}
		c.startedFirst(run, f, call, list[0])
		return
	}
	spans := make([]span, len(list))
	for i, x := range list {
		spans[i] = span{x.Worker, x.From}
	}
	for _, repeat := range c.unprovoked(spans) {
		c.report(RuleRepeat, run, "%s ran again under %s at %s on %s, and nothing had been done to it: %s", tool, key,
			clock(repeat.from), repeat.worker, when(list))
	}
}

func (c *checker) startedFirst(run string, f *folded, call loop.ToolCall, x Execution) {
	before := func(e loop.Event) bool { return !e.Time.After(x.From) }
	if !slices.ContainsFunc(f.started[call.Call], before) {
		c.report(RuleStarted, run, "%s ran for call %s at %s, before any started event", x.Tool, call.Call, clock(x.From))
	}
	if needsYes(c.Planned[run].Shape, x.Tool) {
		if yes, given := f.approved[call.Call]; !given || !before(yes) {
			c.report(RuleStarted, run, "%s ran for call %s, which nobody had approved", x.Tool, call.Call)
		}
	}
	allowed := func(g Guarded) bool { return g.Key == x.Key && g.OK && !g.At.After(x.From) }
	if isGuarded(x.Tool) && !slices.ContainsFunc(c.Guards, allowed) {
		c.report(RuleStarted, run, "%s ran for call %s, and its guard had not agreed", x.Tool, call.Call)
	}
}

// needsYes reports whether a person has to agree to the tool: by the tools file, or by the task.
func needsYes(shape Shape, tool string) bool {
	return tool == toolBuy || shape == ShapeApproval && tool == toolOrder
}

// observation checks that a call was observed once, and that the observation is what the tool said.
func (c *checker) observation(run string, f *folded, call loop.ToolCall, ran []Execution) {
	list := f.observed[call.Call]
	if len(list) != 1 {
		c.report(RuleObserved, run, "call %s of %s has %d observations", call.Call, call.Tool, len(list))
		return
	}
	o := list[0]
	if o.Status != loop.ObservedOK {
		return
	}
	said := slices.ContainsFunc(ran, func(x Execution) bool { return !x.Failed && sameJSON(x.Result, o.Result) })
	if !said {
		c.report(RuleObserved, run, "call %s of %s was observed as %s, which the tool never said in %d executions", call.Call,
			call.Tool, o.Result, len(ran))
	}
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return false
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// model checks how often the same prompt was paid for.
func (c *checker) model() {
	paid := map[string][]ModelCall{}
	for _, m := range c.ModelCalls {
		if m.Paid {
			paid[m.Run] = append(paid[m.Run], m)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(paid)) {
		turns := map[string][]span{}
		var order []string
		for _, m := range paid[run] {
			if turns[m.Prompt] == nil {
				order = append(order, m.Prompt)
			}
			turns[m.Prompt] = append(turns[m.Prompt], span{m.Worker, m.From})
		}
		var all [][]span
		for _, prompt := range order {
			all = append(all, turns[prompt])
		}
		for _, repeat := range c.repeated(c.Planned[run].Strategy, all) {
			c.report(RulePaidTwice, run, "a model call was repeated at %s on %s, and nothing had been done to it", clock(repeat.from), repeat.worker)
		}
	}
}

// repeated returns the model calls of a run that no fault explains. Under plan_execute several may be in flight at once, to
// fill fields of as many steps, and one fault cuts all of them.
func (c *checker) repeated(strategy Strategy, turns [][]span) (repeats []span) {
	if strategy != PlanExecute {
		return c.unprovoked(turns...)
	}
	for _, attempts := range turns {
		repeats = append(repeats, c.unprovoked(attempts)...)
	}
	return repeats
}

// span is one attempt at something, by whom and from when.
type span struct {
	worker string
	from   time.Time
}

// unprovoked returns the repeats that no fault explains: each needs a fault of its own that hit the worker of the attempt
// before, its own worker or the server, before the repeat began and not long before the attempt before did. The groups
// share the faults.
func (c *checker) unprovoked(groups ...[]span) (repeats []span) {
	used := map[int]bool{}
	for _, attempts := range groups {
		slices.SortFunc(attempts, func(a, b span) int { return a.from.Compare(b.from) })
		for i := 1; i < len(attempts); i++ {
			if !c.explain(attempts[i-1], attempts[i], used) {
				repeats = append(repeats, attempts[i])
			}
		}
	}
	return repeats
}

// explain takes the first unused fault that can be the cause of a repeat.
func (c *checker) explain(before, repeat span, used map[int]bool) bool {
	for i, f := range c.Faults {
		hit := f.Worker == serverName || f.Worker == before.worker || f.Worker == repeat.worker
		if used[i] || !hit || f.From.After(repeat.from) || c.over(f).Before(before.from) {
			continue
		}
		used[i] = true
		return true
	}
	return false
}

// over is when a fault has no more effect: a worker may find out two leases later that it lost a run.
func (c *checker) over(f Fault) time.Time { return f.To.Add(2*c.Lease + time.Second) }

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func when(list []Execution) string {
	text := ""
	for _, x := range list {
		text += " [" + x.Worker + " " + clock(x.From) + "-" + clock(x.To) + "]"
	}
	return text
}
