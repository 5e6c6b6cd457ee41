package loop

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var events []Event
			for line := range bytes.Lines(text) {
				e, err := DecodeEvent(bytes.TrimSpace(line))
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, e)
			}
			s, err := Fold(State{}, events)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Status().Final() || len(s.Owed()) != 0 || s.Task.Goal == "" || len(s.Transcript) == 0 {
				t.Errorf("status %s, owed %v, %d messages", s.Status(), s.Owed(), len(s.Transcript))
			}
			// Folding a part of it, as a worker does that takes over, owes something exactly where it had not ended and
			// nobody was asked.
			for n := 1; n < len(events); n++ {
				part, err := Fold(State{}, events[:n])
				if err != nil {
					t.Fatal(err)
				}
				if waits := part.Status() == StatusWaiting; waits != (part.Question != nil) {
					t.Errorf("after event %d the status is %s", n, part.Status())
				}
			}
		})
	}
}
