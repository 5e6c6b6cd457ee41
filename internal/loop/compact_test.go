package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/tools"
	"ratchet/internal/tools/filetool"
)

// talker is a model in this process. It counts a token for every four bytes, as an endpoint would report them.
type talker struct {
	say func(turn int, r loop.ModelRequest) (string, error)

	mu       sync.Mutex
	requests []loop.ModelRequest
}

func (m *talker) Complete(_ context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r)
	text, err := m.say(len(m.requests), r)
	if err != nil {
		return loop.ModelReply{}, err
	}
	if r.Tokens != nil {
		r.Tokens("a try that is cut off")
		r.Tokens("")
		for rest := text; rest != ""; {
			piece := rest[:min(7, len(rest))]
			r.Tokens(piece)
			rest = rest[len(piece):]
		}
	}
	return loop.ModelReply{
		Text: text, Model: "talker", Usage: loop.Usage{PromptTokens: len(textOf(r)) / 4, CompletionTokens: len(text) / 4},
	}, nil
}

func (m *talker) asked() []loop.ModelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// textOf is the text of a prompt in one piece.
func textOf(r loop.ModelRequest) string {
	texts := make([]string, len(r.Messages))
	for i, m := range r.Messages {
		texts[i] = m.Content
	}
	return strings.Join(texts, "\n\n")
}

func lastOf(r loop.ModelRequest) string { return r.Messages[len(r.Messages)-1].Content }

// loadTool returns a result of so many bytes that differs from call to call.
func loadTool(size int) tools.Tool {
	type arguments struct {
		Page int `json:"page"`
	}
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{Name: "load_page", Description: "Loads a page.", Effect: loop.EffectRead}},
		func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
			head := fmt.Sprintf("page %d: ", a.Page)
			return head + strings.Repeat("x", size-len(head)), nil
		})
}

// pages calls load_page at each turn after the first, then answers.
func pages(turns int) func(int, loop.ModelRequest) (string, error) {
	return func(turn int, _ loop.ModelRequest) (string, error) {
		switch turn {
		case 1:
			return planned, nil
		case turns:
			return answered, nil
		}
		return call("load_page", fmt.Sprintf(`{"page": %d}`, turn)), nil
	}
}

// blobsHere keeps blobs in this process.
type blobsHere struct{ stored sync.Map }

func (b *blobsHere) PutBlob(_ context.Context, name string, data []byte) error {
	b.stored.Store(name, data)
	return nil
}

func (b *blobsHere) GetBlob(_ context.Context, name string) ([]byte, error) {
	data, ok := b.stored.Load(name)
	if !ok {
		return nil, loop.ErrNotFound
	}
	return data.([]byte), nil
}

func (b *blobsHere) DeleteBlobs(context.Context, ...loop.RunID) error {
	b.stored.Clear()
	return nil
}

// newTalk is a rig with one worker over a model in this process.
func newTalk(t *testing.T, m *talker, configure func(*loop.Config), extra ...tools.Tool) *rig {
	r := newRig(t, converse(), extra...)
	// What a talker says goes by the number of the call, so none may be made twice because a machine stood still for a lease.
	const lease = time.Minute
	r.bus = bustest.Open(t, r.nc, bus.Options{Lease: lease})
	r.model = m
	c := r.config()
	c.Lease = lease
	if configure != nil {
		configure(&c)
	}
	r.start(c)
	return r
}

func TestLongRunStaysWithinItsWindow(t *testing.T) {
	const turns, window = 200, 24_000
	m := &talker{say: pages(turns)}
	var r *rig
	inner, largest := m.say, 0
	m.say = func(turn int, q loop.ModelRequest) (string, error) {
		head, _, err := r.bus.Load(r.ctx(), run("a"))
		if err != nil {
			t.Error(err)
		}
		encoded, err := json.Marshal(head)
		if err != nil {
			t.Error(err)
		}
		largest = max(largest, len(encoded))
		return inner(turn, q)
	}
	blobs := &blobsHere{}
	r = newTalk(t, m, func(c *loop.Config) { c.Blobs = blobs }, loadTool(10<<10), filetool.Result(blobs.GetBlob))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500, "timeout": "10m"}}`)
	events := r.untilClosed("a")
	if got := events[len(events)-1].Type(); got != "answer" {
		t.Fatalf("the run ended as %s: %+v", got, events[len(events)-1].Data)
	}
	summaries := strings.Count(types(events), "summary")
	breaks, before := 0, ""
	for i, q := range m.asked() {
		text := textOf(q)
		if tokens := len(text) / 4; tokens > window {
			t.Errorf("prompt %d has %d tokens, the window has %d", i+1, tokens, window)
		}
		if !strings.HasPrefix(text, before) {
			breaks++
		}
		before = text
	}
	if len(m.asked()) != turns || summaries < 2 || summaries > turns/4 || breaks > summaries {
		t.Errorf("%d turns, %d summaries, %d prompts that do not go on from the one before", len(m.asked()), summaries, breaks)
	}
	if largest >= 16<<10 {
		t.Errorf("the stored state had %d bytes", largest)
	}
	if !strings.Contains(before, "read_result shows it") || !strings.Contains(before, `page 199: xxx`) {
		t.Error("the last prompt has no compacted result, or not the latest one whole")
	}
}

// TestJournalGivesTheSamePrompts folds the journal up to each model event and compares what would be asked then.
func TestJournalGivesTheSamePrompts(t *testing.T) {
	m := &talker{say: pages(40)}
	r := newTalk(t, m, func(c *loop.Config) { c.Window = 6_000 }, loadTool(3<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500}}`)
	events := r.untilClosed("a")
	var kinds []bool
	var s loop.State
	turn := 0
	for _, e := range events {
		if sum, ok := e.Data.(loop.Summary); ok {
			kinds = append(kinds, sum.Whole)
		}
		if ask := asksModel(&s); ask && turn < len(m.asked()) && e.Type() != "summary" {
			want := textOf(m.asked()[turn])
			got := textOf(loop.ModelRequest{Messages: loop.Conversation(&s, nil)})
			if !strings.HasSuffix(want, got) || (turn > 0 && got == "") {
				t.Fatalf("prompt %d differs:\n%s", turn+1, cmp.Diff(want[max(len(want)-len(got), 0):], got))
			}
			turn++
		}
		s = loop.Step(s, e)
	}
	if turn != 40 || len(kinds) < 2 {
		t.Errorf("%d prompts were compared; summaries of whole turns: %v", turn, kinds)
	}
}

// asksModel reports whether the run owes a model call and nothing else.
func asksModel(s *loop.State) bool {
	owed := s.Owed()
	if len(owed) != 1 {
		return false
	}
	_, ok := owed[0].(loop.AskModel)
	return ok
}

func TestTooLongForTheEndpointIsCompacted(t *testing.T) {
	m := &talker{}
	script := pages(20)
	turn := 0
	m.say = func(_ int, q loop.ModelRequest) (string, error) {
		if len(textOf(q)) > 30<<10 {
			return "", &loop.ModelError{Cause: "context_length", Message: "the prompt is too long"}
		}
		turn++
		return script(turn, q)
	}
	r := newTalk(t, m, nil, loadTool(4<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500}}`)
	events := r.untilClosed("a")
	if got := types(events); !strings.HasSuffix(got, "thought answer") || !strings.Contains(got, "observation summary call") {
		t.Errorf("events are %s", got)
	}
}

func TestPersonsWordsAreNeverLeftOut(t *testing.T) {
	const word = "the green ones only"
	m := &talker{say: func(turn int, q loop.ModelRequest) (string, error) {
		if turn == 2 {
			return m("ask_user", nil, `"question": "Which?"`), nil
		}
		return pages(40)(turn, q)
	}}
	r := newTalk(t, m, func(c *loop.Config) { c.Window = 5_000 }, loadTool(3<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500}}`)
	q := r.until("a", "question").Data.(loop.Question)
	r.reply("a", fmt.Sprintf(`{"question": %q, "text": %q}`, q.Question, word))
	events := r.untilClosed("a")
	whole := 0
	for _, e := range events {
		if sum, ok := e.Data.(loop.Summary); ok && sum.Whole {
			whole++
		}
	}
	asked := m.asked()
	last := textOf(asked[len(asked)-1])
	if whole < 2 || !strings.Contains(last, word) || strings.Count(last, "Earlier turns are left out") != 1 {
		t.Errorf("%d summaries of whole turns; the last prompt ends with: %s", whole, last[max(0, len(last)-3000):])
	}
}

func TestShortOfTokens(t *testing.T) {
	m := &talker{say: func(turn int, r loop.ModelRequest) (string, error) {
		if strings.Contains(lastOf(r), "Finish now") {
			return answered, nil
		}
		return pages(1000)(turn, r)
	}}
	r := newTalk(t, m, nil, loadTool(2<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500, "max_tokens": 40000}}`)
	events := r.untilClosed("a")
	answer, ok := events[len(events)-1].Data.(loop.Answer)
	if !ok || answer.Usage.Total() > 40_000 || answer.Usage.Total() < 20_000 {
		t.Errorf("the run ended with %+v", events[len(events)-1].Data)
	}
}

func TestOutOfTokens(t *testing.T) {
	m := &talker{say: pages(1000)}
	r := newTalk(t, m, nil, loadTool(2<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500, "max_tokens": 40000}}`)
	events := r.untilClosed("a")
	failed, ok := events[len(events)-1].Data.(loop.Failed)
	if !ok || failed.Reason != loop.FailTokensExhausted || !strings.Contains(failed.Message, "The plan so far: 1. Work (pending)") {
		t.Fatalf("the run ended with %+v", events[len(events)-1].Data)
	}
	if used := failed.Usage.Total(); used > 40_000 || used < 30_000 {
		t.Errorf("%d tokens were used", used)
	}
	asked := m.asked()
	if !strings.Contains(lastOf(asked[len(asked)-1]), "Finish now") || strings.Contains(textOf(asked[1]), "Finish now") {
		t.Error("the model was not told to finish at the end, or was told so from the beginning")
	}
}

// priced is a model whose tokens cost a hundred-thousandth of a dollar each.
type priced struct{ loop.Model }

func (p priced) Complete(ctx context.Context, r loop.ModelRequest) (loop.ModelReply, error) {
	reply, err := p.Model.Complete(ctx, r)
	reply.Usage.CostUSD = float64(reply.Usage.Total()) / 100_000
	return reply, err
}

func TestOutOfMoney(t *testing.T) {
	m := &talker{say: pages(1000)}
	r := newTalk(t, m, func(c *loop.Config) { c.Model = priced{c.Model} }, loadTool(2<<10))
	r.submit("a", `{"goal": "Read the pages.", "limits": {"max_steps": 500, "max_cost_usd": 0.4}}`)
	events := r.untilClosed("a")
	failed, ok := events[len(events)-1].Data.(loop.Failed)
	if !ok || failed.Reason != loop.FailTokensExhausted || !strings.Contains(failed.Message, "its limit is 0.4 USD, which is about 4") {
		t.Fatalf("the run ended with %+v", events[len(events)-1].Data)
	}
	if cost := failed.Usage.CostUSD; cost > 0.4 || cost < 0.3 {
		t.Errorf("%g USD were spent", cost)
	}
	if asked := m.asked(); !strings.Contains(lastOf(asked[len(asked)-1]), "Finish now") {
		t.Error("the model was not told to finish at the end")
	}
}
