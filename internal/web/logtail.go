package web

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// keptRecords is how many warnings and errors are remembered.
const keptRecords = 50

// LogTail is a log handler that passes everything on and remembers the last warnings and errors, for the console.
type LogTail struct {
	next  slog.Handler
	attrs []slog.Attr
	group string
	kept  *records
}

type records struct {
	mu   sync.Mutex
	last []Record
}

// Record is a warning or an error as the console shows it.
type Record struct {
	Time    time.Time
	Level   string
	Message string
	Details string // the attributes, as key=value
}

// NewLogTail returns a handler in front of another.
func NewLogTail(next slog.Handler) *LogTail { return &LogTail{next: next, kept: &records{}} }

// Records returns what is remembered, newest first.
func (t *LogTail) Records() []Record {
	t.kept.mu.Lock()
	defer t.kept.mu.Unlock()
	out := slices.Clone(t.kept.last)
	slices.Reverse(out)
	return out
}

// Enabled implements [slog.Handler].
func (t *LogTail) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || t.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (t *LogTail) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		t.keep(r)
	}
	if !t.next.Enabled(ctx, r.Level) {
		return nil
	}
	return t.next.Handle(ctx, r)
}

func (t *LogTail) keep(r slog.Record) {
	var details []string
	add := func(a slog.Attr) bool {
		details = append(details, a.Key+"="+clip(a.Value.String(), maxText))
		return true
	}
	for _, a := range t.attrs {
		add(a)
	}
	r.Attrs(func(a slog.Attr) bool { return add(slog.Attr{Key: t.group + a.Key, Value: a.Value}) })
	record := Record{r.Time, strings.ToLower(r.Level.String()), clip(r.Message, maxText), strings.Join(details, "  ")}
	t.kept.mu.Lock()
	defer t.kept.mu.Unlock()
	t.kept.last = append(t.kept.last, record)
	if extra := len(t.kept.last) - keptRecords; extra > 0 {
		t.kept.last = slices.Delete(t.kept.last, 0, extra)
	}
}

// WithAttrs implements [slog.Handler].
func (t *LogTail) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *t
	with.next = t.next.WithAttrs(attrs)
	with.attrs = slices.Clone(t.attrs)
	for _, a := range attrs {
		with.attrs = append(with.attrs, slog.Attr{Key: t.group + a.Key, Value: a.Value})
	}
	return &with
}

// WithGroup implements [slog.Handler].
func (t *LogTail) WithGroup(name string) slog.Handler {
	if name == "" {
		return t
	}
	with := *t
	with.next, with.group = t.next.WithGroup(name), t.group+name+"."
	return &with
}
