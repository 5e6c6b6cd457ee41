package loop

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// countFor is how long the door believes a count of a tenant's queue, to which it adds what it lets in itself. So a tenant
// may get a little more than its limit: what is at a door when the count is made, and what other workers let in meanwhile.
const countFor = 200 * time.Millisecond

// reasonFull is the reason of the dead letters of tasks that were more than a tenant may have waiting.
const reasonFull = "too_many_waiting"

// queues remembers how much of each tenant waits.
type queues struct {
	mu      sync.Mutex
	counted map[string]*count
}

// count is how much of one tenant waited at a time, and what this worker has let in since. Its doors take turns at it.
type count struct {
	mu sync.Mutex
	n  int
	at time.Time // zero: never
}

// of returns the count of a tenant. Where there are too many, all are forgotten: they are made anew.
func (q *queues) of(tenant string) *count {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.counted[tenant]; c != nil {
		return c
	}
	if q.counted == nil || len(q.counted) > 4096 {
		q.counted = map[string]*count{}
	}
	c := new(count)
	q.counted[tenant] = c
	return c
}

// isFull reports whether a tenant has as many tasks waiting as it may have, and counts one more where not. A run that
// exists was let in before, whatever became of its task's message.
func (w *Worker) isFull(ctx context.Context, id RunID) (bool, error) {
	if w.MaxWaiting == 0 {
		return false, nil
	}
	c := w.queues.of(id.Tenant)
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > countFor {
		n, err := w.Wakes.Waiting(ctx, id.Tenant)
		if err != nil {
			return false, err
		}
		c.n, c.at = n, time.Now()
	}
	if c.n < w.MaxWaiting {
		c.n++
		return false, nil
	}
	page, err := w.Journal.Page(ctx, id, "", 0, 1)
	if err != nil {
		return false, fmt.Errorf("look for run %s: %w", id, err)
	}
	return len(page.Events) == 0, nil
}

func (w *Worker) fullMessage(tenant string) string {
	return fmt.Sprintf("tenant %s has %d runs waiting or in hand, which is as many as it may have; send the task again when some of them "+
		"are done", tenant, w.MaxWaiting)
}
