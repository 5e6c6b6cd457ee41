package telemetry

import (
	"strings"
	"sync"
	"sync/atomic"
)

// other stands for all values of a label that found no room, none for an empty one.
const (
	other = "other"
	none  = "none"
)

// maxLabel is the longest value of a label, in bytes.
const maxLabel = 128

// labels bounds the values of one label. The first ones that come keep their names for as long as the process lives.
type labels struct {
	most int

	mu    sync.RWMutex
	known map[string]bool
	full  atomic.Uint64 // how often there was no room
}

func newLabels(most int) *labels { return &labels{most: most, known: map[string]bool{}} }

// value returns what s is counted as.
func (l *labels) value(s string) string {
	l.mu.RLock()
	known, room := l.known[s], len(l.known) < l.most
	l.mu.RUnlock()
	if known {
		return s
	}
	if s = clean(s); room {
		l.mu.Lock()
		if room = l.known[s] || len(l.known) < l.most; room {
			l.known[s] = true
		}
		l.mu.Unlock()
	}
	if !room {
		l.full.Add(1)
		return other
	}
	return s
}

// clean makes a text that may come from anywhere fit for a label.
func clean(s string) string {
	if s == "" {
		return none
	}
	return strings.ToValidUTF8(s[:min(len(s), maxLabel)], "?")
}
