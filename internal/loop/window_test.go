package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/tools/filetool"
)

const summaryModel = "summer"

// longScripts drive each strategy through some two hundred model turns or steps, each with a result of 10 KB. turn counts the
// run's own model calls.
var longScripts = map[string]struct {
	task string
	say  func(turn int, q loop.ModelRequest) string
	// asked is how many model calls the run makes beside those for summaries.
	asked int
	// plain says that there is no conversation of turns to sum up.
	plain bool
}{
	"plan_react": {
		`{"goal": "Read the pages.", "limits": {"max_steps": 500}}`,
		func(turn int, q loop.ModelRequest) string {
			text, _ := pages(200)(turn, q)
			return text
		}, 200, false,
	},
	"react": {
		`{"goal": "Read the pages.", "strategy": "react", "limits": {"max_steps": 500}}`,
		func(turn int, _ loop.ModelRequest) string {
			if turn == 200 {
				return reacted
			}
			return fmt.Sprintf("Thought: next\nAction: load_page\nAction Input: {\"page\": %d}\nPAUSE", turn)
		}, 200, false,
	},
	"plan_act_reflect": {
		`{"goal": "Read the pages.", "strategy": "plan_act_reflect", "limits": {"max_steps": 500, "max_iterations": 200}, "model_options": {"native_tools": false}}`,
		func(turn int, q loop.ModelRequest) string {
			switch {
			case q.Purpose == loop.PurposeReflect && turn < 200:
				return `{"done": false, "guidance": "` + strings.Repeat("Go on. ", 500) + `"}`
			case q.Purpose == loop.PurposeReflect:
				return verdictYes
			case turn == 201:
				return finished
			}
			return fmt.Sprintf(`{"type": "tool_call", "thought": "next", "name": "load_page", "arguments": {"page": %d}}`, turn)
		}, 201, false,
	},
	"plan_execute": {
		`{"goal": "Read the pages.", "strategy": "plan_execute", "limits": {"max_steps": 500}}`,
		func(turn int, q loop.ModelRequest) string {
			switch {
			case turn == 1:
				return longPlan(200)
			case q.Purpose == loop.PurposeFill:
				return `{"type": "fill", "fields": {"page": 7}}`
			}
			return finished
		}, 22, true,
	},
}

// longPlan has so many steps, each tenth of which waits for all before it and is filled.
func longPlan(n int) string {
	var list []string
	for i := 1; i <= n; i++ {
		if i%10 > 0 {
			list = append(list, step(fmt.Sprint(i), "load_page", fmt.Sprintf(`{"page": %d}`, i), ""))
			continue
		}
		var after []string
		for j := max(1, i-30); j < i; j++ {
			after = append(after, fmt.Sprintf("%q", fmt.Sprint(j)))
		}
		list = append(list, step(fmt.Sprint(i), "load_page", `{}`, `"after": [`+strings.Join(after, ", ")+`], "open": ["page"]`))
	}
	return steps(list...)
}

// TestLongRunsOfEveryStrategyStayWithinTheirWindow holds every prompt of every purpose to the window, and the state to
// 16 KB, without a model that sums up and with one.
func TestLongRunsOfEveryStrategyStayWithinTheirWindow(t *testing.T) {
	for name, c := range longScripts {
		for _, summer := range []string{"", summaryModel} {
			t.Run(strings.TrimSpace(name+" "+summer), func(t *testing.T) {
				t.Parallel()
				const window = 24_000
				var r *rig
				turn, largest, summed := 0, 0, 0
				m := &talker{say: func(_ int, q loop.ModelRequest) (string, error) {
					head, _, err := r.bus.Load(r.ctx(), run("a"))
					if err != nil {
						t.Error(err)
					}
					encoded, err := json.Marshal(head)
					if err != nil {
						t.Error(err)
					}
					largest = max(largest, len(encoded))
					if q.Purpose == loop.PurposeSummarize {
						summed++
						return strings.Repeat(fmt.Sprintf("Summary %d. ", summed), 1000), nil
					}
					turn++
					return c.say(turn, q), nil
				}}
				blobs := &blobsHere{}
				r = newTalk(t, m, func(c *loop.Config) { c.Blobs, c.SummaryModel, c.Window = blobs, summer, window }, loadTool(10<<10), filetool.Result(blobs.GetBlob))
				r.submit("a", c.task)
				events := r.untilClosed("a")
				if got := events[len(events)-1].Type(); got != "answer" || turn != c.asked {
					t.Fatalf("the run ended as %s after %d model calls: %+v", got, turn, events[len(events)-1].Data)
				}
				for i, q := range m.asked() {
					if tokens := len(textOf(q)) / 4; tokens > window+window/100 { // what a token is, is an estimate
						t.Errorf("prompt %d, for %s, has %d tokens, the window has %d", i+1, q.Purpose, tokens, window)
					}
					if (q.Purpose == loop.PurposeSummarize) != (q.Model == summaryModel) {
						t.Errorf("prompt %d, for %s, is for model %q", i+1, q.Purpose, q.Model)
					}
				}
				if largest >= 16<<10 {
					t.Errorf("the stored state had %d bytes", largest)
				}
				if wanted := summer != "" && !c.plain; wanted != (summed > 0) {
					t.Errorf("%d summaries by a model", summed)
				}
				checkSummaries(t, events, m.asked(), summed)
			})
		}
	}
}

// checkSummaries checks that what a model wrote is in the journal with its price, and in the prompts after it.
func checkSummaries(t *testing.T, events []loop.Event, asked []loop.ModelRequest, summed int) {
	t.Helper()
	byModel, tokens := 0, 0
	for _, e := range events {
		d, ok := e.Data.(loop.Summary)
		if !ok || d.Usage == nil {
			continue
		}
		byModel++
		tokens += d.Usage.Total()
		if !d.Whole || d.Model == "" || !strings.Contains(d.Text, fmt.Sprintf("Summary %d. ", byModel)) || len(d.Text) > 4<<10 {
			t.Errorf("summary %d: %+v", byModel, d)
		}
	}
	if byModel != summed {
		t.Errorf("%d summaries in the journal, %d were written", byModel, summed)
	}
	if last := textOf(asked[len(asked)-1]); summed > 0 && !strings.Contains(last, fmt.Sprintf("Summary %d. ", summed)) {
		t.Error("the last prompt does not have the last summary")
	}
	if answer := events[len(events)-1].Data.(loop.Answer); answer.Usage.Total() < tokens {
		t.Errorf("the run's usage %+v does not count the %d tokens of its summaries", answer.Usage, tokens)
	}
}

// TestWideTurnStaysWithinItsWindow: the results of one turn alone are longer than the window.
func TestWideTurnStaysWithinItsWindow(t *testing.T) {
	const window = 12_000
	var list []string
	for i := range 12 {
		list = append(list, fmt.Sprintf(`{"name": "load_page", "arguments": {"page": %d}}`, i))
	}
	m := &talker{say: func(turn int, _ loop.ModelRequest) (string, error) {
		return []string{planned, m("tool_call", nil, `"calls": [`+strings.Join(list, ", ")+`]`), answered}[turn-1], nil
	}}
	r := newTalk(t, m, func(c *loop.Config) { c.Window = window }, loadTool(10<<10))
	r.submit("a", `{"goal": "Read the pages."}`)
	events := r.untilClosed("a")
	if got := types(events); !strings.HasSuffix(got, "observation summary thought answer") {
		t.Errorf("events are %s", got)
	}
	last := textOf(m.asked()[2])
	if len(last)/4 > window {
		t.Errorf("the prompt has %d tokens", len(last)/4)
	}
	for i := range 12 {
		if !strings.Contains(last, fmt.Sprintf("page %d: xxxx", i)) {
			t.Errorf("nothing of page %d is shown", i)
		}
	}
}

// TestNoSummaryToBeHad: a model that can't sum up costs the run nothing but the calls.
func TestNoSummaryToBeHad(t *testing.T) {
	for name, say := range map[string]func() (string, error){
		"passing": func() (string, error) {
			return "", &loop.ModelError{Cause: "server_error", Message: "down", Passing: true}
		},
		"final":   func() (string, error) { return "", &loop.ModelError{Cause: "auth", Message: "no key"} },
		"other":   func() (string, error) { return "", errors.New("broken") },
		"empty":   func() (string, error) { return " \n", nil },
		"endless": func() (string, error) { return strings.Repeat("x", 300<<10), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn := 0
			m := &talker{say: func(_ int, q loop.ModelRequest) (string, error) {
				if q.Purpose == loop.PurposeSummarize {
					return say()
				}
				turn++
				return pages(40)(turn, q)
			}}
			r := newTalk(t, m, func(c *loop.Config) { c.Window, c.SummaryModel = 5_000, summaryModel }, loadTool(3<<10))
			r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500}}`)
			events := r.untilClosed("a")
			whole := 0
			for _, e := range events {
				if d, ok := e.Data.(loop.Summary); ok && d.Whole {
					whole++
					if !strings.Contains(d.Text, "[call c") || (d.Usage == nil) != (name != "empty" && name != "endless") {
						t.Errorf("summary %.200q, usage %+v", d.Text, d.Usage)
					}
				}
			}
			if whole < 2 || turn != 40 || events[len(events)-1].Type() != "answer" {
				t.Errorf("%d summaries of whole turns, %d turns, events %s", whole, turn, types(events))
			}
		})
	}
}

// TestSummaryThatCantBePaid: near the limit of tokens no model is asked for a summary.
func TestSummaryThatCantBePaid(t *testing.T) {
	m := &talker{}
	summed := 0
	m.say = func(turn int, q loop.ModelRequest) (string, error) {
		if q.Purpose == loop.PurposeSummarize {
			summed++
			return "Summary.", nil
		}
		if strings.Contains(lastOf(q), "Finish now") {
			return answered, nil
		}
		return pages(1000)(turn-summed, q)
	}
	r := newTalk(t, m, func(c *loop.Config) { c.Window, c.SummaryModel = 5_000, summaryModel }, loadTool(3<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500, "max_tokens": 60000}}`)
	events := r.untilClosed("a")
	answer, ok := events[len(events)-1].Data.(loop.Answer)
	if !ok || answer.Usage.Total() > 60_000 {
		t.Errorf("the run ended with %+v", events[len(events)-1].Data)
	}
}

// purposeModel makes calls crash points that are named for what they are for.
type purposeModel struct {
	loop.Model
	c *crash
}

func (m purposeModel) Complete(ctx context.Context, r loop.ModelRequest) (out loop.ModelReply, err error) {
	if err := m.c.point("model "+string(r.Purpose), func() error { out, err = m.Model.Complete(ctx, r); return nil }); err != nil {
		<-ctx.Done() // a killed process goes on with nothing
		return out, ctx.Err()
	}
	return out, err
}

// summedRun runs one run that is summed up once. Its first worker is killed at the given operation, another goes on.
func summedRun(t *testing.T, at int, after bool) (events []loop.Event, asked []loop.ModelRequest, points []string) {
	t.Helper()
	r := newRig(t, say(), loadTool(3<<10))
	model := &talker{say: func(_ int, q loop.ModelRequest) (string, error) {
		// What is said follows from the prompt, so that a call that is repeated gets the same reply.
		switch text := textOf(q); {
		case q.Purpose == loop.PurposeSummarize:
			return "What was read so far.", nil
		case strings.Contains(text, "What was read so far."):
			return answered, nil
		case !strings.Contains(text, "The plan is recorded"):
			return planned, nil
		}
		return call("load_page", fmt.Sprintf(`{"page": %d}`, len(q.Messages))), nil
	}}
	c := newCrash(at, after)
	config := func(c *crash) loop.Config {
		conf, b := r.config(), crashBus{r.bus, c}
		conf.Journal, conf.Heads, conf.Wakes, conf.Sessions = b, b, b, b
		conf.Inbox, conf.WakeQueue = crashSource{r.bus.Inbox(), c}, crashSource{r.bus.Wakes(), c}
		conf.Model, conf.Window, conf.SummaryModel, conf.Grace = purposeModel{model, c}, 5_000, summaryModel, time.Millisecond
		return conf
	}
	first := r.start(config(c))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500}}`)
	if at > 0 {
		select {
		case <-c.dead:
		case <-r.ctx().Done():
			t.Fatal("the operation was never reached")
		}
		first.stop()
		r.start(config(newCrash(0, false)))
	}
	events = r.untilClosed("a")
	first.stop()
	return events, model.asked(), c.names
}

// TestKilledAroundASummary kills the worker before and after a summary is asked for, before and after it is in the journal,
// and at the next call. Another worker comes to the same end, and what may have been paid twice is counted.
func TestKilledAroundASummary(t *testing.T) {
	calm, asked, points := summedRun(t, 0, false)
	want := settled(calm)
	at := slices.Index(points, "model summarize") + 1
	if at == 0 {
		t.Fatalf("no summary was asked for: %s", want)
	}
	for _, point := range points[at-1:] {
		if !strings.HasPrefix(point, "model") && point != "append summary" {
			continue
		}
		k := at + slices.Index(points[at-1:], point)
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%v", point, after), func(t *testing.T) {
				t.Parallel()
				events, again, _ := summedRun(t, k, after)
				if got := settled(events); got != want {
					t.Errorf("the run came to\n%s, want\n%s", got, want)
				}
				if len(again) > len(asked)+1 {
					t.Errorf("%d model calls, undisturbed %d", len(again), len(asked))
				}
				lost := 0
				for _, e := range events {
					switch d := e.Data.(type) { // a busy machine may lose a lease anywhere
					case loop.Plan:
						lost += d.Lost
					case loop.Call:
						lost += d.Lost
					case loop.Summary:
						lost += d.Lost
					case loop.Thought:
						lost += d.Lost
					}
				}
				if paid := len(again) - len(asked); paid > 0 && lost == 0 {
					t.Errorf("%d calls were paid twice, and nothing is counted as lost", paid)
				}
			})
		}
	}
}
