package llm

import (
	"context"
	"sync"
	"time"
)

// Pace is what all workers know together of when an endpoint takes requests for a model again. A key names both. Hold is
// called for an answer with status 429 only, and NotBefore before every request, so it must answer from memory. Both are
// best effort: what is lost costs a few more refusals.
type Pace interface {
	// NotBefore returns the latest time of all holds on the key, past ones too where they are known; the zero time where
	// there was none.
	NotBefore(ctx context.Context, key string) time.Time
	// Hold asks everybody to send nothing for the key before until. An earlier hold that ends later stays in force.
	Hold(ctx context.Context, key string, until time.Time)
}

// LocalPace is a [Pace] within one process. Its zero value is ready for use.
type LocalPace struct {
	mu    sync.Mutex
	until map[string]time.Time
}

var _ Pace = (*LocalPace)(nil)

// NotBefore implements [Pace].
func (p *LocalPace) NotBefore(_ context.Context, key string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until[key]
}

// Hold implements [Pace].
func (p *LocalPace) Hold(_ context.Context, key string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil || len(p.until) >= maxQuirks {
		p.until = map[string]time.Time{} // learnt again at the cost of one refusal each
	}
	if until.After(p.until[key]) {
		p.until[key] = until
	}
}
