package loop

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// toolboxes keeps toolboxes for all runs of a worker that were offered the same tools: thousands share one.
type toolboxes struct {
	mu   sync.Mutex
	kept map[string]madeBox
}

// madeBox is a toolbox, and the tools of the day on which it was made.
type madeBox struct {
	live []ToolSpec
	box  Toolbox
}

// get returns the toolbox of a run, where one was made while the same tools were there as now.
func (b *toolboxes) get(s *State, live []ToolSpec) (box Toolbox, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	made, known := b.kept[offeredKey(s)]
	if !known || !slices.EqualFunc(made.live, live, sameTool) {
		return Toolbox{}, false
	}
	return made.box, true
}

func (b *toolboxes) put(s *State, live []ToolSpec, box Toolbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keep(&b.kept, maxTexts, offeredKey(s), madeBox{live, box})
}

// offeredKey tells sets of tools apart that were offered to runs, by what a toolbox depends on.
func offeredKey(s *State) string {
	var key strings.Builder
	key.WriteString(s.Catalogue)
	for _, o := range s.Tools {
		key.WriteString(" " + o.Name + " " + o.Digest)
	}
	return key.String()
}

// sameTool compares all but the functions, which check arguments by the schema.
func sameTool(a, b ToolSpec) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Schema, b.Schema) && bytes.Equal(a.Example, b.Example) &&
		a.Digest == b.Digest && a.Effect == b.Effect && a.Times == b.Times && a.Approve == b.Approve && a.Delegate == b.Delegate &&
		a.Timeout == b.Timeout && a.Source == b.Source && slices.Equal(a.Fields, b.Fields)
}
