package loop

import "sync"

// warned remembers what was logged once already. Keys hold what strangers wrote, so there may be any number of them: when there
// are many all are forgotten, and logged again where they come again.
type warned struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

// maxWarned bounds the memory.
const maxWarned = 4096

// first reports whether a key is new, and remembers it.
func (w *warned) first(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.keys[key]; known {
		return false
	}
	keep(&w.keys, maxWarned, key, struct{}{})
	return true
}

// warnOnce logs a warning the first time it is asked to with this key.
func (w *Worker) warnOnce(key, message string, args ...any) {
	if w.warnings.first(key) {
		w.Log.Warn(message, args...)
	}
}
