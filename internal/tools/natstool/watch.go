package natstool

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"ratchet/internal/tools"
)

// maxMissed is how many rounds in a row a service may leave unanswered and still keep its tools: one answer may be lost
// or late.
const maxMissed = 1

// Watch looks for tools again and again until ctx ends, and calls changed with all of them, first when the first round is
// over and then whenever they differ. A call that finds nobody at its subject starts the next round at once.
func (s Source) Watch(ctx context.Context, changed func([]tools.Tool)) {
	w := watcher{source: s, kick: make(chan struct{}, 1), known: map[string]endpoint{}, missed: map[string]int{}}
	w.log = cmp.Or(s.Log, slog.Default())
	every := time.NewTicker(cmp.Or(s.Refresh, 5*time.Second))
	defer every.Stop()
	for first := true; ctx.Err() == nil; first = false {
		if w.look(ctx) || first && ctx.Err() == nil {
			changed(s.tools(w.list(), w.lost))
		}
		select {
		case <-every.C:
		case <-w.kick:
		case <-ctx.Done():
		}
	}
}

type watcher struct {
	source Source
	log    *slog.Logger
	kick   chan struct{}
	known  map[string]endpoint
	missed map[string]int
	failed bool
}

// lost asks for the next round. It never waits.
func (w *watcher) lost() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// look makes one round and reports whether anything changed.
func (w *watcher) look(ctx context.Context) (changed bool) {
	if !w.source.Conn.IsConnected() {
		return false // nobody can answer, which says nothing about the services
	}
	found, err := w.source.round(ctx)
	if err != nil {
		if ctx.Err() == nil && !w.failed {
			w.log.Warn("can't look for tools on NATS; those found before stay", "subject", w.source.Subject, "error", err)
		}
		w.failed = true
		return false
	}
	w.failed = false
	seen := make(map[string]bool, len(found))
	for _, e := range found {
		seen[e.key()] = true
		w.missed[e.key()] = 0
		if !reflect.DeepEqual(w.known[e.key()], e) {
			w.log.Info("tool found on NATS", "tool", e.tool, "subject", e.subject, "service", e.service, "version", e.version)
			w.known[e.key()] = e
			changed = true
		}
	}
	for key, e := range w.known {
		if seen[key] {
			continue
		}
		if w.missed[key]++; w.missed[key] > maxMissed {
			w.log.Info("tool has left NATS", "tool", e.tool, "subject", e.subject, "service", e.service)
			delete(w.known, key)
			delete(w.missed, key)
			changed = true
		}
	}
	return changed
}

func (w *watcher) list() []endpoint {
	list := make([]endpoint, 0, len(w.known))
	for _, e := range w.known {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b endpoint) int { return cmp.Compare(a.key(), b.key()) })
	return list
}
