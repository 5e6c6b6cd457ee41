package loop_test

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"ratchet/internal/llm/llmtest"
	"ratchet/internal/loop"
)

// TestARunKeepsItsPromptVersion has runs of three versions of the texts on workers that begin new runs with one of them:
// each goes on with its own, also on the worker that takes it over.
func TestARunKeepsItsPromptVersion(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	shown := map[string][]string{} // the system prompt of each turn, by run
	script := say(planned, asks, answered)
	r := newRig(t, func(q llmtest.Request) llmtest.Reply {
		mu.Lock()
		id := strings.TrimPrefix(q.Header.Get("X-Ratchet-Run"), "default/")
		shown[id] = append(shown[id], q.Messages[0].Content)
		mu.Unlock()
		return script(q)
	})
	first := r.start(r.config())
	r.submit("new", `{"goal": "g"}`)
	accepted := r.until("new", "accepted")
	for id, version := range map[string]string{"older": "plan_react/0", "newer": "plan_react/9"} {
		r.begin(id, accepted, func(a *loop.Accepted) { a.Prompt = version })
	}
	ids := []string{"new", "older", "newer"}
	for _, id := range ids {
		r.until(id, "question")
	}
	first.stop()
	r.start(r.config())
	for _, id := range ids {
		r.reply(id, `{"text": "200"}`)
		r.untilClosed(id)
	}
	mu.Lock()
	defer mu.Unlock()
	for id, begins := range map[string]string{"new": "You are an agent", "older": "An older text", "newer": "A newer text"} {
		texts := shown[id]
		if len(texts) != 3 || texts[0] != texts[2] || !strings.HasPrefix(texts[0], begins) {
			t.Errorf("run %s was shown %q", id, texts)
		}
	}
}

// TestAnUnknownPromptVersionIsLeftForANewerWorker: a worker that lacks the texts of a run does not drive it with others.
func TestAnUnknownPromptVersionIsLeftForANewerWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, say(planned, asks, answered))
	c := r.config()
	var log lines
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	r.start(c)
	r.submit("known", `{"goal": "g"}`)
	accepted := r.until("known", "accepted")
	r.begin("unknown", accepted, func(a *loop.Accepted) { a.Prompt = "plan_react/10" })
	r.eventually("left for a newer worker", func() bool {
		return log.have("left for a newer worker", "plan_react/10")
	})
	if got := types(r.events("unknown")); got != "accepted" {
		t.Errorf("events are %s", got)
	}
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(line))
	return len(line), nil
}

// have reports whether one line holds all of these.
func (l *lines) have(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.text, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

// begin makes a run that begins as another one did, but for what change does to it.
func (r *rig) begin(id string, accepted loop.Event, change func(*loop.Accepted)) {
	r.t.Helper()
	data := accepted.Data.(loop.Accepted)
	data.Task.ID = id
	change(&data)
	e := loop.Event{RunID: run(id), N: 1, Time: accepted.Time, Source: accepted.Source, Data: data}
	seq, err := r.bus.Append(r.ctx(), e, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.bus.Wake(r.ctx(), run(id), "begin/"+id, loop.Wake{Seq: seq}); err != nil {
		r.t.Fatal(err)
	}
}
