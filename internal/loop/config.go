package loop

import (
	"cmp"
	"errors"
	"log/slog"
	"time"
)

// Config is all that a Worker needs. Fields without a default must be set.
type Config struct {
	Name   string // names the worker in events and as owner; unique to the process
	Prefix string // of all subjects; "agent"

	Journal   Journal
	Heads     Heads
	Wakes     Wakes
	Sessions  Sessions
	Blobs     Blobs
	Graveyard Graveyard
	Outcomes  Outcomes
	Orders    Orders
	Inbox     Source // tasks, replies and controls
	WakeQueue Source // wake-ups

	Model  Model
	Tools  Tools
	Memory Memory // nil: no long-term facts

	Catalogues Catalogues // nil: what the tools say is not kept, and a run's prompt changes where they do
	Learn      bool       // learn durable facts from runs that were answered, where their tasks do not say otherwise

	Concurrency int           // runs driven at once; 64
	MaxRunning  int           // runs of one tenant driven at once; 0: as many as Concurrency
	MaxWaiting  int           // wake-ups that a tenant may have before its tasks are refused; 0: no limit
	Doors       int           // inbox messages handled at once; 64
	Lease       time.Duration // how long a wake-up stays with a worker that says nothing; 10s; as set in the consumer
	Grace       time.Duration // time that steps in hand get at shutdown; 20s
	Keep        time.Duration // how long a finished run is kept; 168h
	// Sweep is how often somebody looks for runs that nobody will wake, and for those whose time has come; 1m, or a quarter of
	// Keep where that is less.
	Sweep     time.Duration
	History   int  // messages of the session that a run is shown; 20
	Summaries bool // keep a summary of what was said in a session before those messages
	Facts     int  // facts that a run is shown; 3
	Window    int  // tokens that a prompt may have before the oldest of it is compacted; 24000
	// SummaryModel sums up turns that are left out of a prompt; empty: their calls are listed. It makes the summaries of
	// sessions too; empty: the model that is asked where none is named does.
	SummaryModel string

	// Stream is called with each piece of a reply as it comes, by one goroutine at a time for each run; nil: replies are not
	// streamed. An empty piece says that the reply of that turn begins anew. It must not block.
	Stream func(id RunID, turn int, piece string)

	Observer Observer // told what the worker does; none

	Log *slog.Logger
	Now func() time.Time // wall clock; time.Now
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "agent")
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.Doors = cmp.Or(c.Doors, 64)
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, 20*time.Second)
	c.Keep = cmp.Or(c.Keep, 168*time.Hour)
	c.Sweep = cmp.Or(c.Sweep, min(time.Minute, max(c.Keep/4, time.Second)))
	c.History = cmp.Or(c.History, 20)
	c.Facts = cmp.Or(c.Facts, 3)
	c.Window = cmp.Or(c.Window, 24_000)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Observer == nil {
		c.Observer = Unobserved{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Name", c.Name != ""},
		{"Journal", c.Journal != nil},
		{"Heads", c.Heads != nil},
		{"Wakes", c.Wakes != nil},
		{"Sessions", c.Sessions != nil},
		{"Blobs", c.Blobs != nil},
		{"Graveyard", c.Graveyard != nil},
		{"Outcomes", c.Outcomes != nil},
		{"Orders", c.Orders != nil},
		{"Inbox", c.Inbox != nil},
		{"WakeQueue", c.WakeQueue != nil},
		{"Model", c.Model != nil},
		{"Tools", c.Tools != nil},
	} {
		if !f.set {
			return errors.New("loop: Config." + f.name + " is not set")
		}
	}
	if c.Concurrency < 1 || c.Doors < 1 || c.Lease <= 0 || c.Grace < 0 || c.Keep <= 0 {
		return errors.New("loop: Config.Concurrency, Doors, Lease and Keep must be positive, Grace not negative")
	}
	if c.MaxRunning < 0 || c.MaxWaiting < 0 {
		return errors.New("loop: Config.MaxRunning and MaxWaiting must not be negative")
	}
	if c.Window < 0 {
		return errors.New("loop: Config.Window must not be negative")
	}
	return nil
}
