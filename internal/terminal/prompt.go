package terminal

import (
	"fmt"
	"strconv"
	"strings"

	"ratchet/internal/loop"
)

// Prompt shows what a model was sent at a turn of a run: a line about the turn, then each message under its role, as it was
// but for what a terminal would obey.
func Prompt(v loop.PromptView, s Style) []string {
	facts := []string{fmt.Sprintf("turn %d of %d", v.Turn, v.Turns), string(v.Purpose)}
	if v.About != "" {
		facts = append(facts, "about "+v.About)
	}
	if v.Model != "" {
		facts = append(facts, "model "+v.Model)
	}
	facts = append(facts, "prompt "+v.Prompt)
	if v.N > 0 {
		facts = append(facts, "its reply is event "+strconv.FormatUint(v.N, 10))
	} else {
		facts = append(facts, "not answered yet")
	}
	if v.JSON {
		facts = append(facts, "a JSON object is asked for")
	}
	if len(v.Tools) > 0 {
		facts = append(facts, "offered natively: "+strings.Join(v.Tools, " "))
	}
	if len(v.Stop) > 0 {
		facts = append(facts, "stops at "+strings.Join(v.Stop, " "))
	}
	lines := []string{"run " + s.Bold(Clean(v.Run)) + "  " + s.Dim(Clean(strings.Join(facts, ", ")))}
	if v.Note != "" {
		lines = append(lines, s.Wait(Clean(v.Note)))
	}
	for _, m := range v.Messages {
		lines = append(lines, "", s.Bold("── "+Clean(m.Role)+" ──"), CleanBlock(m.Content))
	}
	return lines
}
