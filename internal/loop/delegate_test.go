package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// family is a model whose words depend on the goal it is given, and on how often it has spoken: runs and their child runs
// each say their own. The goal is found by its beginning.
type family map[string][]string

func (f family) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	opening, turn := "", 0
	for _, msg := range r.Messages {
		if msg.Role == "assistant" {
			turn++
		} else if turn == 0 && msg.Role == "user" {
			opening += msg.Content + "\n"
		}
	}
	reply := loop.ModelReply{Model: "scripted", Usage: loop.Usage{PromptTokens: 90, CompletionTokens: 10}}
	for goal, says := range f {
		if !strings.Contains(opening, goal) {
			continue
		}
		if r.Purpose == loop.PurposeReflect {
			reply.Text = verdictYes
		} else if turn < len(says) {
			reply.Text = says[turn]
		}
		if raw, native := strings.CutPrefix(reply.Text, "native "); native {
			reply.Text, reply.Calls = "", []loop.NativeCall{{ID: "1", Name: "delegate", Arguments: json.RawMessage(raw)}}
		}
		return reply, nil
	}
	return reply, &loop.ModelError{Cause: "server_error", Message: "no words for this goal: " + opening}
}

// delegates is a tool_call that hands each goal to a child run. What stands behind a goal's | are more arguments.
func delegates(goals ...string) string {
	calls := make([]string, len(goals))
	for i, g := range goals {
		goal, more, _ := strings.Cut(g, "|")
		calls[i] = fmt.Sprintf(`{"name": "delegate", "arguments": {"goal": %q%s}}`, goal, more)
	}
	return m("tool_call", nil, `"calls": [`+strings.Join(calls, ", ")+`]`)
}

func newFamily(t *testing.T, f family, extra ...tools.Tool) *rig {
	t.Helper()
	r := newRig(t, nil, extra...)
	r.model = f
	return r
}

// child waits until the call of a run has a child run that was begun, and returns its id.
func (r *rig) child(id, call string) string {
	r.t.Helper()
	found := ""
	r.eventually("child run of "+id+" "+call, func() bool {
		for _, e := range r.events(id) {
			if d, ok := e.Data.(loop.Child); ok && d.Call == call {
				found = d.Run
			}
		}
		return found != "" && len(r.events(found)) > 0
	})
	return found
}

// parked waits until a run waits and nobody drives it.
func (r *rig) parked(id string) loop.Head {
	r.t.Helper()
	var h loop.Head
	r.eventually("parking of "+id, func() (ok bool) {
		var err error
		h, _, err = r.bus.Load(r.ctx(), run(id))
		return err == nil && h.Owner == nil && (h.Status == loop.StatusWaiting || h.Status == loop.StatusPaused)
	})
	return h
}

func outcomes(events []loop.Event) map[string]loop.Observation {
	out := map[string]loop.Observation{}
	for _, e := range events {
		if d, ok := e.Data.(loop.Observation); ok {
			out[d.Call] = d
		}
	}
	return out
}

func first[D loop.Data](t *testing.T, events []loop.Event) D {
	t.Helper()
	for _, e := range events {
		if d, ok := e.Data.(D); ok {
			return d
		}
	}
	var d D
	t.Fatalf("no %T in %s", d, types(events))
	return d
}

const reactAnswer = "Thought: done\nFinal Answer: "

func TestDelegateSideBySide(t *testing.T) {
	t.Parallel()
	r := newFamily(t, family{
		"the whole": {planned, delegates(`left half|, "strategy": "react", "tools": ["calculate"]`, `right half`), answered},
		"left half": {"Action: calculate\nAction Input: {\"expression\": \"6*7\"}", reactAnswer + "left is 42"},
		"right half": {
			planned, m("final_answer", []string{"found", "said"}, `"answer": "right is 7"`),
		},
	})
	c := r.config()
	c.Concurrency = 1 // a run that held a slot while its children run would never end
	r.start(c)
	r.submit("a", `{"goal": "the whole", "user": "u", "session": "s", "tools": ["calc*", "delegate"], "vars": {"secret": "x"},
		"metadata": {"channel": "C42"}, "approve": ["get_*"]}`)
	events := r.untilClosed("a")
	if got, want := types(events), "accepted facts plan call child child child observation child observation thought answer"; got != want {
		t.Fatalf("events are %s, want %s", got, want)
	}
	seen := outcomes(events)
	if string(seen["c1"].Result) != `"left is 42"` || string(seen["c2"].Result) != `"right is 7"` {
		t.Errorf("observations are %s and %s", seen["c1"].Result, seen["c2"].Result)
	}
	usage := events[len(events)-1].Data.(loop.Answer).Usage
	if usage.Total() != 3*100+2*100+2*100 {
		t.Errorf("the answer's usage is %d tokens, that of its children is part of it", usage.Total())
	}
	left := r.untilClosed(r.child("a", "c1"))
	accepted := left[0].Data.(loop.Accepted)
	names := []string{}
	for _, o := range accepted.Tools {
		names = append(names, o.Name)
	}
	no := false
	want := loop.Task{
		Goal: "left half", ID: accepted.Task.ID, User: "u", Strategy: "react", Tools: []string{"calculate"}, Ask: accepted.Task.Ask,
		Limits: accepted.Task.Limits, Approve: []string{"get_*"}, Vars: map[string]json.RawMessage{"secret": json.RawMessage(`"x"`)},
		OnBusy: "enqueue", Priority: "normal", Learn: &no, Metadata: accepted.Task.Metadata,
	}
	if diff := cmp.Diff(want, accepted.Task); diff != "" {
		t.Errorf("the child's task (-want +got):\n%s", diff)
	}
	if !slices.Equal(names, []string{"calculate"}) || accepted.Parent != "a" || accepted.ParentCall != "c1" || !slices.Equal(accepted.Chain, []string{"a"}) {
		t.Errorf("the child was accepted as %+v", accepted)
	}
	if string(left[0].Metadata) == "" || accepted.Task.Limits.MaxDepth != 1 {
		t.Errorf("metadata %s, depth %d", left[0].Metadata, accepted.Task.Limits.MaxDepth)
	}
	if last := left[len(left)-1]; last.Road() != loop.RoadStep {
		t.Errorf("a child's answer went out on the road %s", last.Road())
	}
}

func TestPlannerWithReactSteps(t *testing.T) {
	t.Parallel()
	dag := steps(step("1", "delegate", `{"goal": "left half", "strategy": "react"}`, ""),
		step("2", "delegate", `{"goal": "right half", "strategy": "react"}`, ""),
		step("3", "delegate", `{"goal": "$1", "strategy": "react"}`, `"after": ["2"]`))
	r := newFamily(t, family{
		"the whole":  {dag, finished},
		"left half":  {reactAnswer + "put together"},
		"right half": {reactAnswer + "right"},
		"put together": {
			reactAnswer + "both",
		},
	})
	r.start(r.config())
	r.submit("a", `{"goal": "the whole", "strategy": "plan_execute"}`)
	events := r.untilClosed("a")
	if got := string(outcomes(events)["c3"].Result); got != `"both"` {
		t.Fatalf("step 3 gave %s: %s", got, types(events))
	}
	if got := first[loop.Accepted](t, r.events(r.child("a", "c3"))).Task.Goal; got != "put together" {
		t.Errorf("the goal of step 3 is %q, want the answer of step 1", got)
	}
}

// A plan may refer to the task's values, which no model is to see.
func TestDelegateHidesVars(t *testing.T) {
	t.Parallel()
	r := newFamily(t, family{
		"the whole": {steps(step("1", "delegate", `{"goal": "$session.word", "strategy": "react"}`, "")), finished},
		"$session":  {reactAnswer + "hidden"},
	})
	r.start(r.config())
	r.submit("a", `{"goal": "the whole", "strategy": "plan_execute", "vars": {"word": "swordfish"}}`)
	r.untilClosed("a")
	if got := first[loop.Accepted](t, r.events(r.child("a", "c1"))).Task.Goal; strings.Contains(got, "swordfish") {
		t.Errorf("the child's goal is %q", got)
	}
}

func TestDelegateByEveryStrategy(t *testing.T) {
	t.Parallel()
	const args = `{"goal": "the part", "strategy": "react"}`
	for name, c := range map[string]struct {
		options string
		says    []string
	}{
		"react":                    {``, []string{"Action: delegate\nAction Input: " + args, reactAnswer + "all"}},
		"react, native":            {`, "model_options": {"native_tools": true}`, []string{"native " + args, reactAnswer + "all"}},
		"plan_act_reflect":         {`, "model_options": {"native_tools": false}`, []string{`{"type": "tool_call", "calls": [{"name": "delegate", "arguments": ` + args + `}]}`, `{"type": "final_answer", "answer": "all"}`}},
		"plan_act_reflect, native": {``, []string{"native " + args, "all"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFamily(t, family{"the whole": c.says, "the part": {reactAnswer + "a part"}})
			r.start(r.config())
			strategy, _, _ := strings.Cut(name, ",")
			r.submit("a", `{"goal": "the whole", "strategy": "`+strategy+`"`+c.options+`}`)
			events := r.untilClosed("a")
			if got := string(outcomes(events)["c1"].Result); got != `"a part"` {
				t.Errorf("the call gave %s: %s", got, types(events))
			}
			first[loop.Answer](t, events)
		})
	}
}

func TestChildAsksAndIsAnswered(t *testing.T) {
	t.Parallel()
	r := newFamily(t, family{
		"the whole": {planned, delegates("the part"), answered},
		"the part":  {planned, delegates("the detail"), answered},
		"the detail": {
			planned, asks, m("final_answer", []string{"asked", "said"}, `"answer": "five"`),
		},
	})
	r.start(r.config())
	r.submit("a", `{"goal": "the whole", "limits": {"timeout": "10m"}}`)
	part := r.child("a", "c1")
	detail := r.child(part, "c1")
	e := r.until(detail, "question")
	q := e.Data.(loop.Question)
	if diff := cmp.Diff([]string{"a", part}, q.Chain); diff != "" || e.Road() != loop.RoadUser {
		t.Errorf("the question's chain (-want +got), on the road %s:\n%s", e.Road(), diff)
	}
	for _, id := range []string{"a", part} {
		if h := r.parked(id); h.Status != loop.StatusWaiting || len(h.Children) != 1 {
			t.Errorf("run %s is %s with the children %v", id, h.Status, h.Children)
		}
	}
	r.reply(detail, `{"text": "five"}`)
	if got := string(outcomes(r.untilClosed(part))["c1"].Result); got != `"five"` {
		t.Errorf("the child got %s", got)
	}
	if h := r.untilClosed("a"); types(h) != "accepted facts plan call child child observation thought answer" {
		t.Errorf("the run came to %s", types(h))
	}
	// The last level has nothing to delegate with.
	for _, o := range first[loop.Accepted](t, r.events(detail)).Tools {
		if o.Name == "delegate" {
			t.Error("a run at the greatest depth was offered delegate")
		}
	}
}

func TestChildFailsOrIsCancelled(t *testing.T) {
	t.Parallel()
	r := newFamily(t, family{
		"the whole": {planned, delegates("bad part", "slow part"), answered},
		"bad part":  {"no json", "no json", "no json", "no json"},
		"slow part": {planned, asks, answered},
	})
	r.start(r.config())
	r.submit("a", `{"goal": "the whole"}`)
	slow := r.child("a", "c2")
	r.until(slow, "question")
	r.control(slow, "cancel")
	seen := outcomes(r.untilClosed("a"))
	if o := seen["c1"]; o.Status != loop.ObservedError || !strings.Contains(string(o.Result), "rejections_exhausted") {
		t.Errorf("the failed child is observed as %s %s", o.Status, o.Result)
	}
	if o := seen["c2"]; o.Status != loop.ObservedCancelled || !strings.Contains(string(o.Result), "was cancelled") {
		t.Errorf("the cancelled child is observed as %s %s", o.Status, o.Result)
	}
}

func TestLargeAnswerOfAChild(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long answer ", 2000)
	r := newFamily(t, family{
		"the whole": {planned, delegates(`the part|, "strategy": "react"`), answered},
		"the part":  {reactAnswer + long},
	})
	blobs := &blobsHere{}
	c := r.config()
	c.Blobs = blobs
	r.start(c)
	r.submit("a", `{"goal": "the whole"}`)
	o := outcomes(r.untilClosed("a"))["c1"]
	if !o.Truncated || len(o.Result) > 9<<10 || o.Blob == "" {
		t.Fatalf("%d bytes, truncated %v, blob %q", len(o.Result), o.Truncated, o.Blob)
	}
	whole, err := blobs.GetBlob(r.ctx(), o.Blob)
	if err != nil || string(whole) != strings.TrimSpace(long) {
		t.Errorf("the blob has %d bytes: %v", len(whole), err)
	}
}

func TestDelegateNeedsAYes(t *testing.T) {
	t.Parallel()
	r := newFamily(t, family{
		"the whole": {planned, delegates(`the part|, "strategy": "react"`), answered},
		"the part":  {reactAnswer + "a part"},
	})
	r.start(r.config())
	r.submit("a", `{"goal": "the whole", "approve": ["delegate"]}`)
	q := r.until("a", "question").Data.(loop.Question)
	if slices.Contains(strings.Fields(types(r.events("a"))), "child") {
		t.Error("a child run was begun without a yes")
	}
	r.reply("a", fmt.Sprintf(`{"question": %q, "approve": true, "arguments_sha256": %q}`, q.Question, q.ArgumentsSHA256))
	if got := string(outcomes(r.untilClosed("a"))["c1"].Result); got != `"a part"` {
		t.Errorf("the call gave %s", got)
	}
}

// lateChild holds the first event of child runs back until it is released.
type lateChild struct {
	loop.Journal
	reached chan struct{}
	once    sync.Once
	release chan struct{}
}

func (j *lateChild) Append(ctx context.Context, e loop.Event, expected uint64) (uint64, error) {
	if a, ok := e.Data.(loop.Accepted); ok && a.Parent != "" {
		j.once.Do(func() { close(j.reached) })
		<-j.release
		ctx = context.WithoutCancel(ctx) // it was sent already, and arrives late
	}
	return j.Journal.Append(ctx, e, expected)
}

// TestCancelReachesChildren: those at work, and those whose first event is stored after the order.
func TestCancelReachesChildren(t *testing.T) {
	t.Parallel()
	words := family{
		"the whole": {planned, delegates("the part"), answered},
		"the part":  {planned, delegates("the detail"), answered},
		"the detail": {
			planned, asks, answered,
		},
	}
	t.Run("at work", func(t *testing.T) {
		t.Parallel()
		r := newFamily(t, words)
		r.start(r.config())
		r.submit("a", `{"goal": "the whole"}`)
		part := r.child("a", "c1")
		detail := r.child(part, "c1")
		r.until(detail, "question")
		r.control("a", "cancel")
		for _, id := range []string{"a", part, detail} {
			events := r.untilClosed(id)
			if last := events[len(events)-1]; last.Type() != "cancelled" {
				t.Errorf("run %s ended in %s", id, last.Type())
			}
		}
	})
	for name, orderFirst := range map[string]bool{"before the child": true, "after the child": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFamily(t, words)
			c := r.config()
			late := &lateChild{Journal: r.bus, reached: make(chan struct{}), release: make(chan struct{})}
			release := sync.OnceFunc(func() { close(late.release) })
			t.Cleanup(release)
			c.Journal = late
			r.start(c)
			r.submit("a", `{"goal": "the whole"}`)
			<-late.reached
			part := first[loop.Child](t, r.events("a")).Run
			r.control("a", "cancel")
			if orderFirst {
				r.eventually("the order ends the child", func() bool { return strings.HasSuffix(types(r.events(part)), "cancelled") })
			} else {
				r.until("a", "control")
			}
			release()
			for _, id := range []string{"a", part} {
				events := r.untilClosed(id)
				if last := events[len(events)-1]; last.Type() != "cancelled" {
					t.Errorf("run %s came to %s", id, types(events))
				}
			}
			if got := types(r.events(part)); orderFirst && got != "control cancelled" {
				t.Errorf("the child came to %s", got)
			}
		})
	}
}

func TestPauseReachesChildren(t *testing.T) {
	t.Parallel()
	started, release := make(chan string, 4), make(chan struct{})
	r := newFamily(t, family{
		"the whole": {planned, delegates("the part"), answered},
		"the part":  {planned, call("slow", `{}`), asks, m("final_answer", []string{"found", "said"}, `"answer": "five"`)},
	}, slowTool("slow", loop.EffectRead, started, release))
	r.start(r.config())
	r.submit("a", `{"goal": "the whole"}`)
	part := r.child("a", "c1")
	<-started
	r.control("a", "pause")
	if e := r.until(part, "control"); e.Data.(loop.Control).Op != loop.OpPause {
		t.Errorf("the child got %+v", e.Data)
	}
	close(release)
	r.until(part, "observation")
	if h := r.parked(part); h.Status != loop.StatusPaused {
		t.Errorf("the child is %s", h.Status)
	}
	r.control("a", "resume")
	r.until(part, "question")
	// What comes of a child is recorded also while the run above is paused; it goes on when it is resumed.
	r.control("a", "pause")
	r.eventually("the child is paused", func() bool {
		h, _, err := r.bus.Load(r.ctx(), run(part))
		return err == nil && strings.HasSuffix(types(r.events(part)), "control") && h.Status != ""
	})
	r.control(part, "resume")
	r.reply(part, `{"text": "five"}`)
	r.untilClosed(part)
	r.until("a", "observation")
	if h := r.parked("a"); h.Status != loop.StatusPaused {
		t.Errorf("the run is %s", h.Status)
	}
	r.control("a", "resume")
	if got := string(outcomes(r.untilClosed("a"))["c1"].Result); got != `"five"` {
		t.Errorf("the child gave %s", got)
	}
}

// deafParent loses what would wake the runs above.
type deafParent struct{ loop.Wakes }

func (w deafParent) Wake(ctx context.Context, id loop.RunID, key string, body loop.Wake) error {
	if strings.Contains(key, "/child/") {
		return nil
	}
	return w.Wakes.Wake(ctx, id, key, body)
}

func TestSweepFindsAParentThatWasNotWoken(t *testing.T) {
	t.Parallel()
	r := newFamily(t, family{
		"the whole": {planned, delegates("the part"), answered},
		"the part":  {planned, asks, answered},
	})
	c := r.sweeping()
	c.Wakes = deafParent{c.Wakes}
	r.start(c)
	r.submit("a", `{"goal": "the whole"}`)
	part := r.child("a", "c1")
	r.until(part, "question")
	r.parked("a")
	r.reply(part, `{"text": "five"}`)
	if got, want := types(r.untilClosed("a")), "accepted facts plan call child child observation thought answer"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
}
