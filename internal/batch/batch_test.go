package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/loop"
)

// answer is what most runs of these tests come to: an echo, or what their goal asks for.
func answer(task loop.Task) loop.Data {
	switch task.Goal {
	case "ask":
		return loop.Question{Question: "q1", Kind: loop.KindAsk, Text: "How many?"}
	case "fail":
		return loop.Failed{Reason: loop.FailTimeout, Message: "too slow"}
	case "cancel":
		return loop.Cancelled{Reason: "no more", By: "ada"}
	case "work":
		return nil
	}
	return loop.Answer{Answer: task.Goal + "!", Usage: loop.Usage{PromptTokens: 10, CompletionTokens: 2, CostUSD: 0.5}}
}

// options are those of a batch whose results, as short lines, and words come out of said.
func options(f *fake, input string, sink Sink) (o Options, said *[]string) {
	said = &[]string{}
	return Options{
		Workers: f, Input: strings.NewReader(input), Name: "tasks.jsonl", Total: 1, Sink: sink,
		Say: func(text string) { *said = append(*said, text) }, Show: func(Tally) {},
	}, said
}

// short writes results as "line status what".
func short(t *testing.T, text []byte) (lines []string) {
	t.Helper()
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var r Result
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		what := r.Answer + string(r.Reason) + r.Message
		for _, q := range r.Questions {
			what += q.Run + " " + q.Question + " " + q.Text
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d %s %s", r.Line, r.Status, what)))
	}
	return lines
}

const mixed = `{"id": "a", "goal": "one", "metadata": {"k": 1}}
no JSON

{"id": "b", "goal": "ask"}
{"id": "a", "goal": "again"}
{"id": "c", "goal": "fail"}
{"goal": "nine", "limit": 3}
{"id": "no id!", "goal": "x"}
{"goal": "daily", "every": "24h"}
{"id": "d", "goal": "cancel"}
["goal"]`

func TestBatch(t *testing.T) {
	f := newFake(answer)
	var results bytes.Buffer
	o, said := options(f, mixed, NewStream(&results, true, nil))
	out, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 done one!", "2 invalid a task must be JSON", "5 invalid its id a is that of line 1, and the same id is the same run",
		"6 failed timeouttoo slow", "7 done nine!", "8 invalid id", "9 invalid a task that is repeated", "10 cancelled no more",
		"11 invalid a task must be", "4 waiting b q1 How many?",
	}
	got := short(t, results.Bytes())
	for i := range got {
		if i < len(want) && strings.HasPrefix(got[i], want[i]) {
			got[i] = want[i]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if !strings.Contains(results.String(), `"metadata":{"k":1}`) {
		t.Errorf("the metadata of the task are missing:\n%s", &results)
	}
	ended := map[Status]int{Done: 2, Failed: 1, Cancelled: 1, Invalid: 5}
	if diff := cmp.Diff(ended, out.Ended); diff != "" || out.Waiting != 1 || len(out.Asking) != 1 || !out.Complete {
		t.Errorf("the outcome is %+v (-want +got):\n%s", out, diff)
	}
	if u := out.Usage[Done]; u.PromptTokens != 20 || u.CostUSD != 1 {
		t.Errorf("usage is %+v", u)
	}
	told := strings.Join(*said, "\n")
	for _, part := range []string{"Line 2 is no task", `Line 7: a task has no field "limit"`, "Line 6: run c failed (timeout): too slow", "Line 10: run d was cancelled"} {
		if !strings.Contains(told, part) {
			t.Errorf("%q was not said:\n%s", part, told)
		}
	}
}

// The id of a task that has none depends on its file, line and text, and on nothing else.
func TestDerivedIDs(t *testing.T) {
	const two = "{\"goal\": \"x\"}\n{\"goal\": \"x\"}\n"
	ids := func(name, input string) []string {
		f := newFake(answer)
		o, _ := options(f, input, NewStream(io.Discard, false, nil))
		o.Name = name
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(f.submitted))
	}
	first := ids("a.jsonl", two)
	if diff := cmp.Diff(first, ids("a.jsonl", two)); diff != "" || len(first) != 2 {
		t.Errorf("ids of the same file differ:\n%s", diff)
	}
	for _, other := range [][]string{ids("b.jsonl", two), ids("a.jsonl", strings.ReplaceAll(two, "x", "y"))} {
		for _, id := range other {
			if slices.Contains(first, id) {
				t.Errorf("id %s is that of another line", id)
			}
		}
	}
}

func TestNoMoreInHandThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(answer)
		var input strings.Builder
		for i := range 20 {
			fmt.Fprintf(&input, `{"id": "r%d", "goal": "work"}`+"\n", i)
		}
		o, _ := options(f, input.String(), NewStream(io.Discard, true, nil))
		o.Concurrency = 3
		done := make(chan error, 1)
		go func() {
			_, err := Run(t.Context(), o)
			done <- err
		}()
		for i := range 20 {
			synctest.Wait()
			f.mu.Lock()
			if want := min(20, i+3); len(f.submitted) != want {
				t.Errorf("after %d ends %d were handed in, want %d", i, len(f.submitted), want)
			}
			f.happen(fmt.Sprintf("r%d", i), loop.Answer{Answer: "x"}, nil)
			f.mu.Unlock()
		}
		if err := <-done; err != nil || f.most != 3 {
			t.Errorf("%d in hand at most, %v", f.most, err)
		}
	})
}

// A run that asks holds up nobody; where it is answered before the end, its answer is waited for.
func TestAnsweredInTheMeantime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(answer)
		var results bytes.Buffer
		o, _ := options(f, `{"id": "a", "goal": "ask"}`+"\n"+`{"id": "b", "goal": "work"}`, NewStream(&results, true, nil))
		o.Concurrency = 1
		done := make(chan Outcome, 1)
		go func() {
			out, err := Run(t.Context(), o)
			if err != nil {
				t.Error(err)
			}
			done <- out
		}()
		synctest.Wait() // a asks, b is in hand
		f.mu.Lock()
		f.heads["a"] = loop.Head{Run: "a", Status: loop.StatusRunning} // answered: no event for people says so
		f.happen("b", loop.Answer{Answer: "b"}, nil)
		f.mu.Unlock()
		synctest.Wait()
		f.mu.Lock()
		f.happen("a", loop.Answer{Answer: "a"}, nil)
		f.mu.Unlock()
		out := <-done
		if diff := cmp.Diff([]string{"2 done b", "1 done a"}, short(t, results.Bytes())); diff != "" || out.Waiting != 0 {
			t.Errorf("%d wait; results (-want +got):\n%s", out.Waiting, diff)
		}
	})
}

// What may pass is tried again, and what the feed does not tell is found all the same.
func TestTroubleThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(answer)
		f.refusals["a"] = &bus.APIError{Code: 503, Message: "ask again"}
		f.refusals["b"] = bus.ErrNoWorker
		f.refusals["c"] = &bus.APIError{Code: 400, Message: "no worker offers the tool x"}
		f.heads["gone"] = loop.Head{Run: "gone", Status: loop.StatusRunning}
		var results bytes.Buffer
		input := `{"id": "a", "goal": "a"}` + "\n" + `{"id": "b", "goal": "b"}` + "\n" + `{"id": "c", "goal": "c"}` + "\n" +
			`{"id": "gone", "goal": "x"}` + "\n" + `{"id": "quiet", "goal": "work"}`
		o, _ := options(f, input, NewStream(&results, true, nil))
		time.AfterFunc(10*time.Second, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.heads, "gone")
			f.heads["quiet"] = loop.Head{Run: "quiet", Status: loop.StatusDone}
			event := loop.Event{RunID: loop.RunID{Tenant: "default", Run: "quiet"}, N: 2, Data: loop.Answer{Answer: "found"}}
			f.finals["quiet"], _ = event.Encode()
		})
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"1 done a!", "2 done b!", "3 invalid no worker offers the tool x",
			"4 failed expiredIt has expired, and nobody knows any more what came of it.", "5 done found",
		}
		if diff := cmp.Diff(want, short(t, results.Bytes())); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
	})
}

func TestStoppedAndGoneOnWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	f := newFake(answer)
	input := `{"id": "a", "goal": "work"}` + "\n" + `{"id": "b", "goal": "two"}` + "\n" + `{"id": "c", "goal": "ask"}` + "\nbroken\n"
	once := func(ctx context.Context, show func(Tally, context.CancelFunc)) (Outcome, error) {
		sink, err := OpenFile(path, true)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		o, _ := options(f, input, sink)
		o.Show, o.ShowEvery = func(tally Tally) { show(tally, cancel) }, time.Millisecond
		out, err := Run(ctx, o)
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		return out, err
	}
	out, err := once(t.Context(), func(tally Tally, cancel context.CancelFunc) {
		if tally.Over() == 2 && tally.Waiting == 1 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || out.Working != 1 || out.Complete {
		t.Errorf("%+v, %v", out, err)
	}
	// The program was killed while it wrote another line.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"line":1,"run":"a","sta`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()

	f.mu.Lock()
	f.happen("a", loop.Answer{Answer: "late"}, nil)
	f.happen("c", loop.Answer{Answer: "12"}, nil)
	f.mu.Unlock()
	out, err = once(t.Context(), func(Tally, context.CancelFunc) {})
	if err != nil || out.Before != 1 || out.Ended[Done] != 3 || out.Ended[Invalid] != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1 done late", "2 done two!", "3 done 12", "4 invalid a task must be JSON: invalid character 'b' looking for beginning of value"}
	got := short(t, text)
	got[3] = got[3][:min(len(got[3]), len(want[3]))]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 1, "c": 2}, f.submitted); diff != "" {
		t.Errorf("handed in (-want +got):\n%s", diff)
	}
}

func TestFileOfSomethingElse(t *testing.T) {
	for _, text := range []string{"a letter\n", "{\"goal\": \"x\"}\n", "\x7fELF", "\n"} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenFile(path, true)
		left, readErr := os.ReadFile(path)
		if !errors.Is(err, ErrNoResults) || readErr != nil || string(left) != text {
			t.Errorf("%q: %v; left is %q, %v", text, err, left, readErr)
		}
	}
}

// A line that was mended gives way to its run, and other lines with the same number in an older file are kept.
func TestResultsInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	sink, err := OpenFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Result{
		{Line: 3, Run: "c", Status: Waiting},
		{Line: 2, Status: Invalid},
		{Line: 1, Run: "a", Status: Done},
		{Line: 2, Run: "b", Status: Done},
		{Line: 3, Run: "c", Status: Done, Answer: "late"},
		{Line: 1, Run: "old", Status: Done},
		{Line: 4, Status: Invalid},
	} {
		if err := sink.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1 done", "1 done", "2 done", "3 done late", "4 invalid"}
	if diff := cmp.Diff(want, short(t, text)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if names, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(names) != 1 {
		t.Errorf("left are %q, %v", names, err)
	}
}

func TestResultsHeldBackAreBounded(t *testing.T) {
	s := NewStream(io.Discard, true, nil)
	large := strings.Repeat("x", 1<<20)
	line := 1
	for s.Expect(line); s.Room(); {
		line++
		s.Expect(line)
		if err := s.Put(Result{Line: line, Answer: large}); err != nil {
			t.Fatal(err)
		}
	}
	if line < 16 || s.bytes > heldBytes+2<<20 {
		t.Errorf("%d lines of %d bytes are held back", line, s.bytes)
	}
	if err := s.Put(Result{Line: 1}); err != nil || s.bytes != 0 || !s.Room() {
		t.Errorf("%d bytes are held back, %v", s.bytes, err)
	}
}

// A file of 200 MB is read as it is needed: the heap stays far below it.
func TestLargeFile(t *testing.T) {
	f := newFake(answer)
	f.forgets = true
	input := &generated{left: 2_000}
	sink, err := OpenFile(filepath.Join(t.TempDir(), "results.jsonl"), true)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := options(f, "", sink)
	o.Input, o.Concurrency = input, 64
	out, err := Run(t.Context(), o)
	if err := errors.Join(err, sink.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MB were read with a heap of at most %d MB", input.bytes>>20, input.peak>>20)
	if out.Ended[Done] != 2_000 || input.bytes < 200e6 || input.peak > 32<<20 {
		t.Errorf("%d of 2000 ended; %d bytes were read with a heap of %d bytes", out.Ended[Done], input.bytes, input.peak)
	}
}
