package loop

import "sync"

// fresh keeps the first events of runs that this worker's door has let in, for its own driver: with one worker that is every
// run, and each saves reading the event from its wake-up. A run that another worker takes is forgotten in time.
type fresh struct {
	mu   sync.Mutex
	runs map[RunID]firstEvent
	ring [maxFresh]RunID // the latest, oldest overwritten
	next int
}

// firstEvent is a run's first event as stored, with the revision of the state that was stored after it.
type firstEvent struct {
	event    Event
	revision uint64
}

// maxFresh bounds the memory: first events hold whole tasks, and only small ones are kept, see inlineEvent.
const maxFresh = 1024

func (f *fresh) put(e Event, revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil {
		f.runs = map[RunID]firstEvent{}
	}
	delete(f.runs, f.ring[f.next])
	f.ring[f.next] = e.RunID
	f.next = (f.next + 1) % maxFresh
	f.runs[e.RunID] = firstEvent{e, revision}
}

// take returns the run's first event and forgets it.
func (f *fresh) take(id RunID) (firstEvent, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, known := f.runs[id]
	delete(f.runs, id)
	return first, known
}
