package embedded

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// userKey names a user in memory: the scope of its keys.
type userKey string

// indexes are those of the users that were asked for last.
type indexes struct {
	life     context.Context // ends with the store
	maxUsers int
	maxFacts int
	readAll  func(context.Context, userKey) ([]change, error)

	work   sync.WaitGroup // what makes and closes indexes
	mu     sync.Mutex
	byUser map[userKey]*slot
	recent *list.List // of *slot, the one used last in front
	facts  int        // in all slots
	closed bool
}

// slot is the place of one user's index. Until ready is closed it is being made, and changes wait in late.
type slot struct {
	user    userKey
	element *list.Element
	ready   chan struct{}
	index   *userIndex // set when ready, unless err is
	err     error
	late    []change
	facts   int
}

func newIndexes(life context.Context, maxUsers, maxFacts int, readAll func(context.Context, userKey) ([]change, error)) *indexes {
	return &indexes{
		life: life, maxUsers: maxUsers, maxFacts: maxFacts, readAll: readAll,
		byUser: map[userKey]*slot{}, recent: list.New(),
	}
}

// search asks the user's index, which is made first where there is none. Making it goes on when ctx ends: the next one
// to ask finds it.
func (x *indexes) search(ctx context.Context, user userKey, query string, k int) ([]hit, error) {
	for {
		s, err := x.slot(user)
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.ready:
		}
		var hits []hit
		if err = s.err; err == nil {
			hits, err = s.index.search(ctx, query, k)
		}
		if !errors.Is(err, errClosed) {
			return hits, err
		}
	}
}

// slot returns the user's slot, and begins to fill it where it is new.
func (x *indexes) slot(user userKey) (*slot, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.New("the store is closed")
	}
	if s := x.byUser[user]; s != nil {
		x.recent.MoveToFront(s.element)
		return s, nil
	}
	s := &slot{user: user, ready: make(chan struct{})}
	s.element = x.recent.PushFront(s)
	x.byUser[user] = s
	x.work.Go(func() { x.fill(s) })
	return s, nil
}

// fill makes a slot's index. What changes while the bucket is read is taken in afterwards.
func (x *indexes) fill(s *slot) {
	defer close(s.ready)
	var index *userIndex
	changes, err := x.readAll(x.life, s.user)
	if err == nil {
		index, err = newUserIndex()
	}
	if err == nil {
		_, _, err = index.apply(changes)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		s.facts, _, err = index.apply(s.late)
	}
	if err == nil && x.byUser[s.user] != s {
		err = errClosed // it was dropped meanwhile, and is made again
	}
	s.late = nil
	if err != nil {
		if index != nil {
			index.close()
		}
		s.err = err
		x.drop(s) // the next one to ask tries again
		return
	}
	s.index = index
	x.facts += s.facts
	x.shrink(s)
}

// apply takes changes into the user's index, if there is one.
func (x *indexes) apply(user userKey, changes []change) {
	x.mu.Lock()
	s := x.byUser[user]
	if s == nil || s.index == nil {
		if s != nil {
			s.late = append(s.late, changes...)
		}
		x.mu.Unlock()
		return
	}
	x.mu.Unlock()

	facts, worn, err := s.index.apply(changes)

	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byUser[user] != s {
		return
	}
	if worn || err != nil {
		x.drop(s)
		return
	}
	x.facts += facts - s.facts
	s.facts = facts
	x.shrink(s)
}

// shrink drops what was not used for longest until there is room; never keep. The lock is held.
func (x *indexes) shrink(keep *slot) {
	for e := x.recent.Back(); e != nil && (len(x.byUser) > x.maxUsers || x.facts > x.maxFacts); {
		s := e.Value.(*slot)
		e = e.Prev()
		if s != keep && s.index != nil {
			x.drop(s)
		}
	}
}

// drop removes a slot. The lock is held.
func (x *indexes) drop(s *slot) {
	if x.byUser[s.user] != s {
		return
	}
	delete(x.byUser, s.user)
	x.recent.Remove(s.element)
	x.facts -= s.facts
	switch {
	case s.index == nil:
	case x.closed:
		s.index.close()
	default:
		x.work.Go(s.index.close) // it waits for searches that go on
	}
}

// dropAll has all indexes made again. The lock is not held.
func (x *indexes) dropAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.byUser {
		x.drop(s)
	}
}

func (x *indexes) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.work.Wait()
	x.dropAll()
}
