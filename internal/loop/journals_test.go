package loop

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRecordedJournalsLoad folds journals that were recorded by earlier versions. A file here is never recorded anew: a
// run that was stored once must load for ever.
func TestRecordedJournalsLoad(t *testing.T) {
	files, err := filepath.Glob("testdata/journals/*.jsonl")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d recorded journals, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			events := recorded(t, file)
			s, err := Fold(State{}, events)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Status().Final() || len(s.Owed()) != 0 || s.Task.Goal == "" || len(s.Transcript) == 0 {
				t.Errorf("status %s, owed %v, %d messages", s.Status(), s.Owed(), len(s.Transcript))
			}
			// Folding a part of it, as a worker does that takes over, owes something exactly where it had not ended and
			// nobody was asked, and where not all that is open is in the hands of child runs.
			for n := 1; n < len(events); n++ {
				part, err := Fold(State{}, events[:n])
				if err != nil {
					t.Fatal(err)
				}
				below := len(part.Calls) > 0 && len(part.openChildren()) == len(part.Calls)
				if waits := part.Status() == StatusWaiting; waits != (part.Question != nil || below) {
					t.Errorf("after event %d the status is %s", n, part.Status())
				}
			}
		})
	}
}

// recorded reads a journal.
func recorded(t *testing.T, file string) (events []Event) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		e, err := DecodeEvent(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

var update = flag.Bool("update", false, "record what models were shown of the recorded journals anew")

// TestRecordedJournalsAreShownAsTheyWere makes the prompts of recorded journals and compares the last of each purpose with
// what was shown when they were recorded. Of what the worker says to a model nothing is stored: it is made from the events.
// So a text that has been used must stay; a better one is for runs that begin with a new version of the texts.
func TestRecordedJournalsAreShownAsTheyWere(t *testing.T) {
	for _, name := range []string{"shares", "report", "react-courier", "execute-no-month", "execute-courier", "reflect-report", "reflect-spent"} {
		t.Run(name, func(t *testing.T) {
			events := recorded(t, filepath.Join("testdata", "journals", name+".jsonl"))
			shown := map[Purpose]string{}
			var purposes []Purpose
			end, err := Fold(State{}, events)
			if err != nil {
				t.Fatal(err)
			}
			_, turns, _ := turnAt(&end, events, 0)
			for turn := 1; turn <= turns; turn++ {
				at, _, _ := turnAt(&end, events, turn)
				s, err := Fold(State{}, events[:at])
				if err != nil {
					t.Fatal(err)
				}
				var v PromptView
				v.fill(&s, sketches(s.Tools), s.askOf(events[nthReply(events, turn)]), 0)
				if shown[v.Purpose] == "" {
					purposes = append(purposes, v.Purpose)
				}
				shown[v.Purpose] = fmt.Sprintf("# turn %d, %s\n", turn, v.Purpose)
				for _, m := range v.Messages {
					shown[v.Purpose] += "\n## " + m.Role + "\n" + m.Content + "\n"
				}
			}
			var got strings.Builder
			for _, p := range purposes {
				got.WriteString(shown[p] + "\n")
			}
			file := filepath.Join("testdata", "prompts", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("a run of an earlier version is shown something else (-then +now):\n%s", diff)
			}
		})
	}
}

// sketches stand for the tools that were offered: what those said is not in a journal of their time.
func sketches(offered []OfferedTool) Toolbox {
	specs := make([]ToolSpec, len(offered))
	for i, o := range offered {
		specs[i] = ToolSpec{Name: o.Name, Description: "It is " + o.Name + ".", Schema: json.RawMessage(`{"type":"object"}`), Effect: o.Effect}
	}
	return NewToolbox(specs)
}
