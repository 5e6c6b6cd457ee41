package loop

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// landing is what came back from a flight: it is called by the goroutine of the drive.
type landing func(*drive) error

// flights are the effects of a run that are under way. start, take, has, abort and empty belong to the goroutine of the
// drive; the flights themselves run in goroutines of their own.
type flights struct {
	landed chan<- struct{} // is told when there is something to take
	active map[string]*flight
	wait   *sync.WaitGroup
	crew   *crew

	mu   *sync.Mutex
	back *[]arrival
}

type flight struct {
	cancel  context.CancelFunc
	aborted bool // its outcome does not matter any more
}

type arrival struct {
	key  string
	from *flight
	land landing
}

func newFlights(c *crew, landed chan<- struct{}) flights {
	return flights{
		crew: c, landed: landed, active: map[string]*flight{}, wait: new(sync.WaitGroup),
		mu: new(sync.Mutex), back: new([]arrival),
	}
}

// start begins an effect. fly must end soon after its context has ended; what it returns is called once it is taken.
// A panic in fly is an error of the drive, as is a goroutine that ends in it.
func (f *flights) start(ctx context.Context, key string, fly func(context.Context) landing) {
	if _, under := f.active[key]; under {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	fl := &flight{cancel: cancel}
	f.active[key] = fl
	f.wait.Add(1)
	f.crew.run(func() {
		defer f.wait.Done()
		defer cancel()
		land := failing(fmt.Errorf("%w in %s: its goroutine ended", errPanic, key)) // unless fly returns or panics
		defer func() {
			f.mu.Lock()
			*f.back = append(*f.back, arrival{key, fl, land})
			f.mu.Unlock()
			tell(f.landed)
		}()
		land = safely(ctx, key, fly)
	})
}

func safely(ctx context.Context, key string, fly func(context.Context) landing) (land landing) {
	defer func() {
		if p := recover(); p != nil {
			land = failing(fmt.Errorf("%w in %s: %v\n%s", errPanic, key, p, debug.Stack()))
		}
	}()
	return fly(ctx)
}

// failing is the landing of a flight that ends its drive with an error.
func failing(err error) landing { return func(*drive) error { return err } }

// take returns what has landed since the last call, without the aborted ones.
func (f *flights) take() []landing {
	f.mu.Lock()
	arrivals := *f.back
	*f.back = nil
	f.mu.Unlock()
	landings := make([]landing, 0, len(arrivals))
	for _, a := range arrivals {
		if f.active[a.key] == a.from {
			delete(f.active, a.key)
		}
		if !a.from.aborted {
			landings = append(landings, a.land)
		}
	}
	return landings
}

// arrived returns what came of a flight that has landed and was not taken; nil where it is under way or was taken.
func (f *flights) arrived(key string) landing {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range *f.back {
		if a.key == key && !a.from.aborted {
			return a.land
		}
	}
	return nil
}

func (f *flights) has(key string) bool { _, ok := f.active[key]; return ok }

func (f *flights) empty() bool { return len(f.active) == 0 }

func (f *flights) only(key string) bool { return len(f.active) == 1 && f.has(key) }

// abort cancels a flight whose outcome does not matter any more.
func (f *flights) abort(key string) {
	if fl := f.active[key]; fl != nil {
		fl.aborted = true
		fl.cancel()
		delete(f.active, key)
	}
}

// hurry cancels a flight whose outcome still matters.
func (f *flights) hurry(key string) { f.active[key].cancel() }

// cut cancels all flights and waits for them.
func (f *flights) cut() {
	for _, fl := range f.active {
		fl.cancel()
	}
	f.wait.Wait()
}
