package bus

import (
	"context"
	"slices"
	"strings"
	"time"

	"ratchet/internal/loop"
)

// probeEvery is how long a lane that was found empty is believed to be. While some lanes hold enough for all free slots,
// the others are looked at that often.
const probeEvery = 50 * time.Millisecond

const (
	// linger is how long a pull with few free slots waits for the lanes that were busy a moment ago alone, for a request to
	// every lane costs more than most messages do.
	linger = 20 * time.Millisecond
	// busyFor is how long a lane that gave a message counts as busy.
	busyFor = time.Second
)

// turnOrder says which rank of new runs goes first in which of its group's turns, so that none of them starves.
const turnOrder = "hnhhnhhlhn"

// rankLetters are those of the ranks of new runs, in the order of their lanes.
const rankLetters = "hnl"

// bulkTurn says which of a group's turns is the bulk lanes': each that leaves no rest. In the others they come last, so that
// what tenants with few tasks want goes before a flood and still can't keep it for ever.
const bulkTurn = 9

// belief is what a Source knows of a lane's contents, from what it was told last.
type belief struct {
	number  int // of the lane in its source
	pending uint64
	checked time.Time
	gave    time.Time // a message, last
}

func (b *belief) holds(pending uint64) { b.pending, b.checked = pending, time.Now() }

// due reports whether the lane has to be looked at.
func (b *belief) due(now time.Time) bool { return b.pending > 0 || now.Sub(b.checked) > probeEvery }

// busy returns the lanes that gave messages lately.
func (s *Source) busy() (lanes []*lane) {
	now := time.Now()
	for _, l := range s.lanes {
		if now.Sub(l.gave) < busyFor {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// inTurn returns the lanes of a group in the order in which this turn of it goes.
func (s *Source) inTurn(group int) []*lane {
	lanes := s.groups[group]
	if len(lanes) < len(ranks) {
		return lanes // of the inbox: one
	}
	turn := s.turns[group] + 1
	first := strings.IndexByte(rankLetters, turnOrder[s.turns[group]%len(turnOrder)])
	few, bulk := lanes[1:len(ranks)], lanes[len(ranks):]
	if turn%bulkTurn == 0 {
		few, bulk = bulk, few
	}
	order := make([]*lane, 0, len(lanes))
	order = append(order, lanes[0])
	for _, of := range [][]*lane{few, bulk} {
		order = append(order, of[first])
		order = append(order, of[:first]...)
		order = append(order, of[first+1:]...)
	}
	return order
}

// served notes that a group had its turn: the next one goes first then.
func (s *Source) served(group int) {
	s.turns[group]++
	s.next = (group + 1) % groups
}

// plan returns the lanes that are due, in sequences that share the free slots evenly: the shared lanes, then each group's.
func (s *Source) plan() (sequences [][]*lane) {
	now := time.Now()
	add := func(lanes []*lane) {
		lanes = slices.DeleteFunc(slices.Clone(lanes), func(l *lane) bool { return !l.due(now) })
		if len(lanes) > 0 {
			sequences = append(sequences, lanes)
		}
	}
	add(s.shared)
	for i := range groups {
		add(s.inTurn((s.next + i) % groups))
	}
	return sequences
}

// rounds takes up to n messages that lie in lanes already. Each round asks one lane of each group, for an even share of
// what is left; a group goes on to its next lane when one is empty. It returns how many are left to take.
func (p *pull) rounds(ctx context.Context, n int, take func(loop.Delivery)) (left int, err error) {
	sequences := p.source.plan()
	left = n
	for left > 0 && len(sequences) > 0 && !p.lost && ctx.Err() == nil {
		share, room := max(1, left/len(sequences)), left
		var requests []request
		for _, lanes := range sequences {
			if k := min(share, room); k > 0 {
				requests = append(requests, request{lanes[0], k})
				room -= k
			}
		}
		took := map[int]bool{}
		got, err := p.ask(ctx, requests, func(d loop.Delivery) {
			took[d.Group] = true
			take(d)
		})
		left -= got
		for _, r := range requests {
			if r.lane.group >= 0 && took[r.lane.group] {
				p.source.served(r.lane.group)
			}
		}
		if err != nil {
			return left, err
		}
		for i := range requests {
			if sequences[i][0].pending == 0 {
				sequences[i] = sequences[i][1:]
			}
		}
		sequences = slices.DeleteFunc(sequences, func(lanes []*lane) bool { return len(lanes) == 0 })
	}
	return left, nil
}
