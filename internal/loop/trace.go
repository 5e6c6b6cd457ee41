package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
)

// A run is one trace, however many workers drive it and however long it waits in between. Whoever asked for it may have
// begun that trace: the header traceparent of the task, as W3C Trace Context has it, is kept in the run's first event.
// Where there is none, the trace's id is derived from that event, so that every worker comes to the same one.

// headerTrace is the header of a task that says which trace its run continues.
const headerTrace = "traceparent"

// Trace is a place in a trace.
type Trace struct {
	ID     [16]byte
	Span   [8]byte
	Parent [8]byte // the span of whoever asked for the run; zero where nobody did, or where it is not known
	Flags  byte    // 1: it is recorded
}

const sampled = 1

// Trace returns the trace of the run and the span that stands for the run as a whole, the same in every worker.
func (s *State) Trace() Trace {
	seed := make([]byte, 0, 160)
	seed = append(seed, s.Tenant...)
	seed = append(seed, '/')
	seed = append(seed, s.Run...)
	seed = append(seed, '/')
	seed = strconv.AppendInt(seed, s.Began.UnixNano(), 10) // the id of an expired run may be used again
	sum := sha256.Sum256(seed)
	t := Trace{ID: [16]byte(sum[:16]), Span: [8]byte(sum[16:24]), Flags: sampled}
	if from, ok := ParseTraceparent(s.Traceparent); ok {
		t.ID, t.Parent, t.Flags = from.ID, from.Span, from.Flags
	}
	return t
}

// TraceID is the trace's id in hexadecimal.
func (t Trace) TraceID() string { return hex.EncodeToString(t.ID[:]) }

// Traceparent returns the place in the form of the header traceparent.
func (t Trace) Traceparent() string {
	out := make([]byte, 0, 55)
	out = append(out, "00-"...)
	out = hex.AppendEncode(out, t.ID[:])
	out = append(out, '-')
	out = hex.AppendEncode(out, t.Span[:])
	out = append(out, '-')
	return string(hex.AppendEncode(out, []byte{t.Flags}))
}

// ParseTraceparent reads a header traceparent; ok is false for what is none. Of a later version of the form the part that
// this one knows is read.
func ParseTraceparent(s string) (t Trace, ok bool) {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return Trace{}, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		into []byte
		text string
	}{{version[:], s[:2]}, {t.ID[:], s[3:35]}, {t.Span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if !decodeHex(part.into, part.text) {
			return Trace{}, false
		}
	}
	if version[0] == 0xff || t.ID == [16]byte{} || t.Span == [8]byte{} {
		return Trace{}, false
	}
	t.Flags = flags[0] & sampled
	return t, true
}

// decodeHex reads lower-case digits only, as the form demands.
func decodeHex(into []byte, text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

// traceparent is the header of that name, empty where it is none. Some libraries write the names of headers with a capital.
func (d Delivery) traceparent() string {
	for _, name := range [...]string{headerTrace, "Traceparent"} {
		if values := d.Header[name]; len(values) > 0 {
			if _, ok := ParseTraceparent(values[0]); ok {
				return values[0]
			}
		}
	}
	return ""
}

type runKey struct{}

// ofRun is what a context knows of the run for which something is done.
type ofRun struct {
	id          RunID
	traceparent string
}

// WithRun returns a context for what is done for a run. traceparent is the place in the run's trace to which that belongs;
// empty: it is not known.
func WithRun(ctx context.Context, id RunID, traceparent string) context.Context {
	return context.WithValue(ctx, runKey{}, ofRun{id, traceparent})
}

// Traceparent returns the header by which a service that is asked for something can continue the trace of the run for
// which it is asked; empty where there is no run.
func Traceparent(ctx context.Context) string {
	of, _ := ctx.Value(runKey{}).(ofRun)
	return of.traceparent
}

// WithTraceparent returns ctx with another place in the trace of its run.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	of, _ := ctx.Value(runKey{}).(ofRun)
	return WithRun(ctx, of.id, traceparent)
}

// The keys by which a line of the log says what it is about.
const (
	logTenant = "tenant"
	logRun    = "run"
	logTrace  = "trace_id"
)

// LogFor returns a logger whose lines say for which run something is done, as far as ctx knows.
func LogFor(ctx context.Context, log *slog.Logger) *slog.Logger {
	of, known := ctx.Value(runKey{}).(ofRun)
	if !known {
		return log
	}
	log = log.With(logTenant, of.id.Tenant, logRun, of.id.Run)
	if t, ok := ParseTraceparent(of.traceparent); ok {
		log = log.With(logTrace, t.TraceID())
	}
	return log
}
