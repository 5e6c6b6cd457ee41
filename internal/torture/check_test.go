package torture_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
	"ratchet/internal/torture"
)

// base is when the honest run began.
var base = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }

// The two runs of the honest evidence, both in the conversation talk. The second one begins when the first has ended.
const (
	first  = "payment-1"
	second = "session-2"
)

// honest is what a short torture without any fault in the engine leaves: a worker was killed while it had the model asked
// and a tool called, and another one went on.
func honest() torture.Evidence {
	e := torture.Evidence{
		Lease:    3 * time.Second,
		Journals: map[string][]torture.Record{first: journal(first, 1), second: journal(second, 101)},
		Heads:    map[string]loop.Head{first: head(10), second: head(110)},
		Sessions: map[string]loop.Session{"talk": {Messages: slices.Concat(spoken(first), spoken(second))}},
		Dead:     []torture.DeadLetter{{Subject: "agent.dead.default.reply", Reason: "unknown_run", Body: `{"text":"planted-9-reply"}`}},
		Planned:  map[string]torture.Planned{},
		Facts:    map[string][]string{"user-of-talk": nil},
		Faults:   []torture.Fault{{Kind: torture.FaultKill, Worker: "w1", From: at(55), To: at(56)}},
		Planted:  []torture.Plant{{Mark: "planted-9-reply", Reason: "unknown_run", Stored: 1, Tried: 1}},
	}
	for _, run := range []string{first, second} {
		e.Listed = append(e.Listed, bus.ListedRun{Run: run, Status: loop.StatusDone, N: 10})
		e.Facts["user-of-talk"] = append(e.Facts["user-of-talk"], "The user remembers the run "+run+".")
		e.Planned[run] = torture.Planned{Run: run, Shape: torture.ShapePayment, Session: "talk", Stored: 1}
		e.Told = append(e.Told, torture.Told{Run: run, Kind: "reply", By: "by-" + run, Status: loop.OutcomeAccepted})
		e.Executions = append(e.Executions,
			torture.Execution{Key: "default/" + run + "/c1", Tool: "pay", Worker: "w1", From: at(45), To: at(50), Result: json.RawMessage(`{"paid":true}`)},
			torture.Execution{Key: "default/" + run + "/c2", Tool: "lookup", Worker: "w1", From: at(45), Result: json.RawMessage(`1`)},
			torture.Execution{Key: "default/" + run + "/c2", Tool: "lookup", Worker: "w2", From: at(3060), To: at(3070), Result: json.RawMessage(`2`)},
		)
		e.ModelCalls = append(e.ModelCalls,
			torture.ModelCall{Run: run, Prompt: "a", Worker: "w1", From: at(30), To: at(35), Paid: true},
			torture.ModelCall{Run: run, Prompt: "b", Worker: "w1", From: at(52), Paid: true, Gone: true},
			torture.ModelCall{Run: run, Prompt: "b", Worker: "w2", From: at(3060), To: at(3070), Paid: true},
		)
	}
	return e
}

// journal is the whole of a run, its first event at a sequence.
func journal(run string, seq uint64) (out []torture.Record) {
	yes := "done: " + run
	for i, d := range []loop.Data{
		loop.Accepted{},
		loop.Facts{},
		loop.Call{Calls: []loop.ToolCall{{Call: "c1", Tool: "pay", Effect: loop.EffectOnce}, {Call: "c2", Tool: "lookup", Effect: loop.EffectRead}}},
		loop.Started{Call: "c1"},
		loop.Observation{Call: "c1", Tool: "pay", Status: loop.ObservedOK, Result: json.RawMessage(`{"paid": true}`)},
		loop.Observation{Call: "c2", Tool: "lookup", Status: loop.ObservedOK, Result: json.RawMessage(`2`)},
		loop.Question{Question: "q1", Kind: loop.KindAsk},
		loop.Reply{Question: "q1", Text: "yes", By: "by-" + run},
		loop.Thought{Answer: &yes},
		loop.Answer{Answer: yes},
	} {
		e := loop.Event{RunID: loop.RunID{Tenant: "default", Run: run}, N: uint64(i + 1), Seq: seq + uint64(i), Time: at(10 * i), Source: "/agent/worker/w1", Data: d}
		switch d.(type) {
		case loop.Accepted, loop.Reply:
			e.Cause = fmt.Sprintf("AGENT_TASKS:%d:1", e.Seq)
		default:
		}
		out = append(out, torture.Record{Event: e})
	}
	return out
}

func head(seq uint64) loop.Head {
	return loop.Head{Status: loop.StatusDone, N: 10, Seq: seq, Closed: true}
}

func spoken(run string) (out []loop.SessionMessage) {
	for _, n := range []uint64{1, 7, 8, 10} {
		out = append(out, loop.SessionMessage{Run: run, N: n})
	}
	return out
}

func TestHonestEvidencePasses(t *testing.T) {
	if found := torture.Check(honest()); len(found) > 0 {
		t.Errorf("violations in honest evidence: %v", found)
	}
}

// forge changes the data of the first run's event n.
func forge(n int, d loop.Data) func(*torture.Evidence) {
	return func(e *torture.Evidence) { e.Journals[first][n-1].Event.Data = d }
}

// without removes the first run's event n, and counts the later ones anew.
func without(n int) func(*torture.Evidence) {
	return func(e *torture.Evidence) {
		e.Journals[first] = slices.Delete(e.Journals[first], n-1, n)
		for i := range e.Journals[first] {
			e.Journals[first][i].Event.N = uint64(i + 1)
		}
	}
}

func changeHead(change func(*loop.Head)) func(*torture.Evidence) {
	return func(e *torture.Evidence) {
		h := e.Heads[first]
		change(&h)
		e.Heads[first] = h
	}
}

// TestPlantedViolationsAreFound doctors honest evidence, one lie at a time.
func TestPlantedViolationsAreFound(t *testing.T) {
	later := func(x *torture.Execution, ms int) { x.From = at(ms) }
	for name, c := range map[string]struct {
		rule   string
		doctor func(*torture.Evidence)
	}{
		"no journal":           {torture.RuleEnded, func(e *torture.Evidence) { delete(e.Journals, first) }},
		"no final event":       {torture.RuleEnded, func(e *torture.Evidence) { e.Journals[first] = e.Journals[first][:9] }},
		"two final events":     {torture.RuleEnded, forge(9, loop.Answer{Answer: "done: " + first})},
		"an event after":       {torture.RuleEnded, forge(10, loop.Note{Text: "late"})},
		"a gap":                {torture.RuleGap, func(e *torture.Evidence) { e.Journals[first][4].Event.N = 9 }},
		"not an event":         {torture.RuleGap, func(e *torture.Evidence) { e.Journals[first][4].Problem = "not JSON" }},
		"a run of nobody":      {torture.RuleStranger, func(e *torture.Evidence) { e.Journals["x"] = journal("x", 900) }},
		"failed":               {torture.RuleOutcome, forge(10, loop.Failed{Reason: loop.FailPoisoned})},
		"cancelled by nobody":  {torture.RuleOutcome, forge(10, loop.Cancelled{})},
		"another answer":       {torture.RuleOutcome, forge(10, loop.Answer{Answer: "42"})},
		"one cause, two":       {torture.RuleCause, func(e *torture.Evidence) { e.Journals[first][8].Event.Cause = "AGENT_TASKS:1:1" }},
		"closed twice":         {torture.RuleReply, forge(9, loop.Reply{Question: "q1"})},
		"reply lost":           {torture.RuleReply, forge(8, loop.Note{Text: "yes", By: "somebody"})},
		"reply to nothing":     {torture.RuleReply, forge(9, loop.Reply{Question: "q7"})},
		"accepted and lost":    {torture.RuleReply, forge(8, loop.Reply{Question: "q1", By: "somebody"})},
		"once ran twice":       {torture.RuleOnce, func(e *torture.Evidence) { e.Executions = append(e.Executions, e.Executions[0]) }},
		"not started":          {torture.RuleStarted, forge(4, loop.Note{})},
		"sent before started":  {torture.RuleStarted, func(e *torture.Evidence) { later(&e.Executions[0], 29) }},
		"no observation":       {torture.RuleObserved, without(5)},
		"observed twice":       {torture.RuleObserved, forge(9, loop.Observation{Call: "c2", Status: loop.ObservedOK, Result: json.RawMessage(`2`)})},
		"made up":              {torture.RuleObserved, forge(6, loop.Observation{Call: "c2", Status: loop.ObservedOK, Result: json.RawMessage(`3`)})},
		"never ran":            {torture.RuleObserved, func(e *torture.Evidence) { e.Executions = slices.Delete(e.Executions, 1, 3) }},
		"not asked for":        {torture.RuleUnasked, func(e *torture.Evidence) { e.Executions[0].Key = "default/" + first + "/c9" }},
		"repeat without cause": {torture.RuleRepeat, func(e *torture.Evidence) { e.Faults = nil }},
		"repeat by a bystander": {torture.RuleRepeat, func(e *torture.Evidence) {
			e.Executions[1].Worker, e.Executions[2].Worker = "w3", "w4"
		}},
		"paid without cause": {torture.RulePaidTwice, func(e *torture.Evidence) { e.Faults[0].From = at(4000) }},
		"paid three times": {torture.RulePaidTwice, func(e *torture.Evidence) {
			e.ModelCalls = append(e.ModelCalls, torture.ModelCall{Run: first, Prompt: "b", Worker: "w2", From: at(3080), Paid: true})
		}},
		"state behind":     {torture.RuleState, changeHead(func(h *loop.Head) { h.N = 9 })},
		"state of another": {torture.RuleState, changeHead(func(h *loop.Head) { h.Status = loop.StatusFailed })},
		"not closed":       {torture.RuleState, changeHead(func(h *loop.Head) { h.Closed = false })},
		"still owned":      {torture.RuleState, changeHead(func(h *loop.Head) { h.Owner = &loop.Owner{Worker: "w1"} })},
		"no state":         {torture.RuleState, func(e *torture.Evidence) { delete(e.Heads, first) }},
		"message lost": {torture.RuleSession, func(e *torture.Evidence) {
			talk(e, func(m []loop.SessionMessage) []loop.SessionMessage { return m[1:] })
		}},
		"message twice": {torture.RuleSession, func(e *torture.Evidence) {
			talk(e, func(m []loop.SessionMessage) []loop.SessionMessage { return append(m, m[3]) })
		}},
		"out of order": {torture.RuleSession, func(e *torture.Evidence) {
			talk(e, func(m []loop.SessionMessage) []loop.SessionMessage { m[1], m[2] = m[2], m[1]; return m })
		}},
		"at the same time":      {torture.RuleSession, func(e *torture.Evidence) { e.Journals[second][1].Event.Seq = 5 }},
		"listed twice":          {torture.RuleAPI, func(e *torture.Evidence) { e.Listed = append(e.Listed, e.Listed[0]) }},
		"not listed":            {torture.RuleAPI, func(e *torture.Evidence) { e.Listed = e.Listed[1:] }},
		"listed as open":        {torture.RuleAPI, func(e *torture.Evidence) { e.Listed[0].Status = loop.StatusRunning }},
		"a right thing refused": {torture.RuleAPI, func(e *torture.Evidence) { e.Refused = []string{"no such tool"} }},
		"learned twice": {torture.RuleMemory, func(e *torture.Evidence) {
			e.Facts["user-of-talk"] = append(e.Facts["user-of-talk"], e.Facts["user-of-talk"][0])
		}},
		"not learned":      {torture.RuleMemory, func(e *torture.Evidence) { e.Facts["user-of-talk"] = e.Facts["user-of-talk"][1:] }},
		"another's memory": {torture.RuleMemory, func(e *torture.Evidence) { e.Facts["user-of-others"] = e.Facts["user-of-talk"][:1] }},
		"a task left":      {torture.RuleQueue, func(e *torture.Evidence) { e.Tasks = []string{"agent.task.default"} }},
		"a wake-up left":   {torture.RuleQueue, func(e *torture.Evidence) { e.Wakes = append(e.Wakes, "agent.wake.0.default."+first) }},
		"a schedule left": {torture.RuleQueue, func(e *torture.Evidence) {
			e.Wakes = append(e.Wakes, "agent.schedule.default."+first+".wait-3")
			e.Faults[0].From, e.Faults[0].To = at(90_000), at(90_001)
		}},
		"out of patience": {torture.RuleQueue, func(e *torture.Evidence) { e.Drained = []string{first} }},
		"dead letter":     {torture.RuleDeadLetter, func(e *torture.Evidence) { e.Dead = append(e.Dead, torture.DeadLetter{Reason: "failed", Body: "{}"}) }},
		"plant lost":      {torture.RuleDeadLetter, func(e *torture.Evidence) { e.Dead = nil }},
		"process gone":    {torture.RuleProcess, func(e *torture.Evidence) { e.Deaths = []string{"w1 ended by itself"} }},
	} {
		t.Run(name, func(t *testing.T) {
			e := honest()
			c.doctor(&e)
			found := torture.Check(e)
			if !slices.ContainsFunc(found, func(v torture.Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("rule %q did not object; found %v", c.rule, found)
			}
		})
	}
}

func talk(e *torture.Evidence, change func([]loop.SessionMessage) []loop.SessionMessage) {
	s := e.Sessions["talk"]
	s.Messages = change(s.Messages)
	e.Sessions["talk"] = s
}

// TestYesComesFirst checks the tools that need the word of a person, of a guard, or of both.
func TestYesComesFirst(t *testing.T) {
	yes, key := true, "default/"+first+"/c1"
	for name, c := range map[string]struct {
		shape      torture.Shape
		tool       string
		yes, guard bool
		object     bool
	}{
		"approved by the task":           {torture.ShapeApproval, "order", true, true, false},
		"not approved":                   {torture.ShapeApproval, "order", false, true, true},
		"no approval is needed":          {torture.ShapeOrder, "order", false, true, false},
		"the guard was not asked":        {torture.ShapeOrder, "order", false, false, true},
		"approved as the file wants":     {torture.ShapePlain, "buy", true, true, false},
		"not approved as the file wants": {torture.ShapePlain, "buy", false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := honest()
			p := e.Planned[first]
			p.Shape = c.shape
			e.Planned[first] = p
			e.Journals[first][2].Event.Data = loop.Call{Calls: []loop.ToolCall{{Call: "c1", Tool: c.tool}, {Call: "c2", Tool: "lookup"}}}
			if c.yes {
				e.Journals[first][0].Event.Data = loop.Question{Question: "q7", Kind: loop.KindApproval, Call: "c1"}
				e.Journals[first][1].Event.Data = loop.Reply{Question: "q7", Approve: &yes}
			}
			e.Executions[0].Tool = c.tool
			if c.guard {
				e.Guards = []torture.Guarded{{Key: key, OK: true, At: at(40)}}
			}
			found := torture.Check(e)
			objects := slices.ContainsFunc(found, func(v torture.Violation) bool { return v.Rule == torture.RuleStarted })
			if objects != c.object {
				t.Errorf("the rule objects: %t; found %v", objects, found)
			}
		})
	}
}

// TestRecoveryIsJudged has a run go on 2.9 s after its worker was killed, or later; only what nothing else disturbed counts.
func TestRecoveryIsJudged(t *testing.T) {
	late := func(e *torture.Evidence) {
		for i := range e.ModelCalls {
			if e.ModelCalls[i].Worker == "w2" {
				e.ModelCalls[i].From = at(4200)
			}
		}
		for i := range e.Executions {
			if e.Executions[i].Worker == "w2" {
				e.Executions[i].From = at(4200)
			}
		}
	}
	for name, c := range map[string]struct {
		doctor func(*torture.Evidence)
		object bool
	}{
		"in time":                {func(*torture.Evidence) {}, false},
		"late":                   {late, true},
		"late after a hand-over": {func(e *torture.Evidence) { e.Faults[0].Kind = torture.FaultTerm }, true},
		"busy machine": {func(e *torture.Evidence) {
			late(e)
			e.Busy = []torture.Span{{From: at(2000), To: at(2300)}}
		}, false},
		"another fault": {func(e *torture.Evidence) {
			late(e)
			e.Faults = append(e.Faults, torture.Fault{Kind: torture.FaultCut, Worker: "w3", From: at(2000), To: at(2300)})
		}, false},
		"a fault just before": {func(e *torture.Evidence) {
			late(e)
			e.Faults = append(e.Faults, torture.Fault{Kind: torture.FaultServer, Worker: "server", From: at(-2000), To: at(-1000)})
		}, false},
		"waits on purpose": {func(e *torture.Evidence) {
			late(e)
			p := e.Planned[first]
			p.Shape = torture.ShapePause
			e.Planned[first] = p
		}, false},
		"moved on before it died": {func(e *torture.Evidence) {
			late(e)
			e.Journals[first][9].Event.Time = at(97)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := honest()
			e.Faults[0].From, e.Faults[0].To = at(95), at(96)
			e.Faults[0].Hands = []torture.Hand{{Run: first, Worker: "w1"}}
			c.doctor(&e)
			found := torture.Check(e)
			objects := slices.ContainsFunc(found, func(v torture.Violation) bool { return v.Rule == torture.RuleRecovery })
			if objects != c.object {
				t.Errorf("the rule objects: %t; found %v", objects, found)
			}
		})
	}
}
