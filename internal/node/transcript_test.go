package node_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
	"ratchet/internal/node"
	"ratchet/internal/plan"
)

var update = flag.Bool("update", false, "record the transcripts anew")

func TestMain(m *testing.M) {
	bustest.Main(m)
}

// start runs a whole node with the demo model until the end of the test.
func start(t *testing.T, change func(*node.Options)) *node.Node {
	t.Helper()
	dir := t.TempDir()
	opts := node.Options{
		Name: "test", Embedded: &bus.EmbeddedOptions{Dir: filepath.Join(dir, "nats"), Port: -1, Sync: "2m"}, Demo: true, Files: dir,
		Grace: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n, err := node.Start(ctx, opts)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		n.Close()
	})
	return n
}

// TestExamples runs each example of the README with the demo model and compares what the model, the tools and the person
// said with the recorded transcript.
func TestExamples(t *testing.T) {
	for name, c := range map[string]struct {
		goal    string
		replies []string
	}{
		"warmest":  {"Is it warmer in Singapore, Jakarta or Paris?", nil},
		"shares":   {"Buy a few Microsoft shares.", []string{"200 shares.", "56.30 USD."}},
		"report":   {"Write the sales report for March and mail it to ada@example.com.", nil},
		"no-month": {"Write the sales report for August and mail it to ada@example.com.", nil},
		"sum":      {"What is 17 plus 25?", nil},
		"unknown":  {"Write a poem about the sea.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, nil)
			client, err := bus.NewClient(n.Conn(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			task, err := json.Marshal(map[string]any{"goal": c.goal, "id": "run"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Submit(ctx, task); err != nil {
				t.Fatal(err)
			}
			var events []loop.Event
			replies := c.replies
			err = client.Follow(ctx, "run", 1, func(e loop.Event) error {
				events = append(events, e)
				q, asked := e.Data.(loop.Question)
				if !asked {
					return nil
				}
				if len(replies) == 0 {
					return fmt.Errorf("an unexpected question: %s", q.Text)
				}
				answer := replies[0]
				replies = replies[1:]
				_, err := client.Reply(ctx, bus.ReplyRequest{Run: "run", Reply: loop.Reply{Question: q.Question, Text: answer}})
				return err
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, transcript(events))
			}
			keepJournal(t, name, events)
			compare(t, filepath.Join("testdata", name+".txt"), transcript(events))
		})
	}
}

// keepJournal records a run's journal for the tests of package loop, which load it for ever. One that is there already is
// never overwritten: old runs must load.
func keepJournal(t *testing.T, name string, events []loop.Event) {
	t.Helper()
	path := filepath.Join("..", "loop", "testdata", "journals", name+".jsonl")
	if _, err := os.Stat(path); err == nil || !*update {
		return
	}
	var lines []byte
	for _, e := range events {
		encoded, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, encoded...), '\n')
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, lines, 0o600); err != nil {
		t.Fatal(err)
	}
}

// transcript is the conversation. Observations of parallel calls come in any order and are put into that of the calls.
func transcript(events []loop.Event) string {
	call := func(e loop.Event) string {
		o, _ := e.Data.(loop.Observation)
		return o.Call
	}
	for i := range events {
		for j := i + 1; j < len(events) && call(events[i]) != "" && call(events[j]) != ""; j++ {
			if call(events[j]) < call(events[i]) {
				events[i].Data, events[j].Data = events[j].Data, events[i].Data
			}
		}
	}
	var w strings.Builder
	for _, e := range events {
		record(&w, e)
	}
	return w.String()
}

// record writes an event as a reader would want it, without what differs from run to run.
func record(w *strings.Builder, e loop.Event) {
	fmt.Fprintf(w, "%d %s: ", e.N, e.Type())
	switch d := e.Data.(type) {
	case loop.Accepted:
		fmt.Fprintf(w, "%s\n  %d tools, prompt %s\n", d.Task.Goal, len(d.Tools), d.Prompt)
	case loop.Plan:
		recordPlan(w, d.Thought, d.Plan)
	case loop.Thought:
		recordPlan(w, d.Thought, d.Plan)
	case loop.Call:
		recordPlan(w, d.Thought, d.Plan)
		for _, c := range d.Calls {
			fmt.Fprintf(w, "  %s %s %s\n", c.Call, c.Tool, short(c.Arguments))
		}
	case loop.Observation:
		name := d.Call
		if name == "" {
			name = "step " + d.Step
		}
		fmt.Fprintf(w, "%s %s %s %s\n", name, d.Tool, d.Status, short(d.Result))
	case loop.Reflection:
		fmt.Fprintf(w, "done %t: %s\n", d.Done, d.Text)
	case loop.Question:
		fmt.Fprintf(w, "%s %s\n", d.Question, d.Text)
	case loop.Reply:
		fmt.Fprintf(w, "%s %s\n", d.Question, d.Text)
	case loop.Child:
		fmt.Fprintf(w, "%s run %s %s\n", d.Call, d.Run, d.Status)
	case loop.Answer:
		fmt.Fprintf(w, "%s\n", d.Answer)
	default:
		b, err := json.Marshal(d)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "%s\n", b)
	}
}

func recordPlan(w *strings.Builder, thought string, p plan.Plan) {
	fmt.Fprintln(w, thought)
	for i, s := range p {
		fmt.Fprintf(w, "  %d. %s [%s] %s\n", i+1, s.Step, s.Status, s.Result)
	}
}

func short(v json.RawMessage) string {
	const most = 300
	if len(v) <= most {
		return string(v)
	}
	return fmt.Sprintf("%s … and %d bytes more", strings.ToValidUTF8(string(v[:most]), ""), len(v)-most)
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); -update records it anew:\n%s", path, diff)
	}
}
