package bus

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a machine may come without time zones

	"github.com/robfig/cron/v3"
)

// Rules for repeating are intervals and cron lines. The server reads and keeps them; what it would refuse, or accept and
// never follow, is refused here in words, by the parser that the server's own is made from.

const (
	shortestInterval = time.Second
	longestInterval  = 366 * 24 * time.Hour
)

// cronParser reads what the server reads: six fields, or a word such as @daily.
var cronParser = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// rule is a rule for repeating as the server takes it.
type rule struct {
	pattern  string // of the header Nats-Schedule
	zone     string // of a cron line; empty: UTC
	interval time.Duration
	schedule cron.Schedule // nil for an interval
}

// parseRule reads an interval such as 90m, or a cron line of five or six fields, perhaps with TZ=Europe/Berlin before it.
func parseRule(every string) (r rule, err error) {
	text := strings.TrimSpace(every)
	if d, err := time.ParseDuration(strings.TrimPrefix(text, "@every ")); err == nil {
		if d < shortestInterval || d > longestInterval || d%time.Second != 0 {
			return r, fmt.Errorf("every %q: an interval has whole seconds, at least %s and at most %s", text, shortestInterval, longestInterval)
		}
		return rule{pattern: "@every " + d.String(), interval: d}, nil
	}
	line := strings.TrimPrefix(text, "CRON_")
	if zone, rest, has := strings.Cut(strings.TrimPrefix(line, "TZ="), " "); has && strings.HasPrefix(line, "TZ=") {
		if _, err := time.LoadLocation(zone); err != nil || zone == "" || zone == "Local" {
			return r, fmt.Errorf("every %q: %q is no time zone such as Europe/Berlin", text, zone)
		}
		r.zone, line = zone, strings.TrimSpace(rest)
	}
	if len(strings.Fields(line)) == 5 {
		line = "0 " + line // on the minute
	}
	if strings.HasPrefix(line, "@every") {
		return r, fmt.Errorf("every %q: %w", text, errRule)
	}
	r.pattern = line
	if r.schedule, err = cronParser.Parse(zoned(r.zone, line)); err != nil {
		return r, fmt.Errorf("every %q: %w", text, errRule)
	}
	return r, nil
}

var errRule = errors.New("it is neither an interval such as 90m nor a cron line such as 0 9 * * 1-5 " +
	"(minute, hour, day of the month, month, day of the week), before which TZ=Europe/Berlin may stand")

func zoned(zone, line string) string {
	if zone == "" {
		zone = "UTC"
	}
	return "TZ=" + zone + " " + line
}

// next returns when the rule starts a run next after a time; the zero time where it never does.
func (r rule) next(after time.Time) time.Time {
	if r.schedule == nil {
		return after.Round(time.Second).Add(r.interval)
	}
	return r.schedule.Next(after)
}

// Upcoming implements [loop.Wakes].
func (b *Bus) Upcoming(every string, after time.Time) (time.Time, error) {
	r, err := parseRule(every)
	if err != nil {
		return time.Time{}, err
	}
	next := r.next(after)
	if next.IsZero() {
		return next, fmt.Errorf("every %q: there is no such day in the next five years; it would never start a run", every)
	}
	return next.UTC(), nil
}
