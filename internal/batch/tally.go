package batch

import (
	"time"

	"ratchet/internal/loop"
)

// Tally is how far a batch has come.
type Tally struct {
	Total    int // lines that are not empty; 0: not known
	Read     int // of them
	Before   int // ended in an earlier batch; they are among those below
	Ended    map[Status]int
	Working  int // runs that were handed in, have not ended and wait for nobody
	Waiting  int // runs that wait for a person
	Usage    map[Status]loop.Usage
	Began    time.Time
	Rate     float64 // lines that ended a second, of late; 0: not known
	Complete bool    // the file was read to its end, and all that is left waits for a person
	Trouble  string  // why nothing goes on at the moment; empty: it does
}

// Over is the number of lines that have ended, in this batch or before.
func (t Tally) Over() int {
	n := 0
	for _, count := range t.Ended {
		n += count
	}
	return n
}

// Left is how long the rest will take at the rate of late; 0: not known.
func (t Tally) Left() time.Duration {
	left := t.Total - t.Over() - t.Waiting
	if t.Total == 0 || t.Rate <= 0 || left <= 0 {
		return 0
	}
	return time.Duration(float64(left) / t.Rate * float64(time.Second))
}

// window is the time over which a rate is measured.
const window = 30 * time.Second

// pace measures how many lines end a second.
type pace struct {
	at    []time.Time
	count []int
}

// rate notes how many have ended by now, and returns the rate over the window before.
func (p *pace) rate(now time.Time, count int) float64 {
	p.at, p.count = append(p.at, now), append(p.count, count)
	for len(p.at) > 2 && now.Sub(p.at[1]) >= window {
		p.at, p.count = p.at[1:], p.count[1:]
	}
	took := now.Sub(p.at[0]).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(count-p.count[0]) / took
}
