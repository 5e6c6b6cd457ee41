package loop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ratchet/internal/loop"
)

func TestDelayedTask(t *testing.T) {
	t.Parallel()
	r := rigWith(t, newTracked(6, 0))
	for range 2 {
		r.start(r.config())
	}
	at := time.Now().Add(3 * time.Second).Truncate(time.Second)
	for range 2 { // the same id again is the same task
		r.submit("later", fmt.Sprintf(`{"goal": "g", "not_before": %q}`, at.Format(time.RFC3339)))
	}
	r.submit("dropped", fmt.Sprintf(`{"goal": "g", "not_before": %q}`, at.Add(time.Hour).Format(time.RFC3339)))
	r.submit("past", `{"goal": "g", "not_before": "2020-01-01T00:00:00Z"}`)
	r.until("past", "answer")
	r.eventually("the one that will be dropped is planned", func() bool {
		planned, err := r.bus.IsPlanned(r.ctx(), run("dropped"))
		return planned && err == nil
	})
	r.control("dropped", "cancel")
	r.until("dropped", "cancelled")
	r.until("later", "answer")
	if first := r.events("later")[0]; first.Type() != "accepted" || first.Time.Before(at) {
		t.Errorf("it began with %s at %s, not before %s", first.Type(), first.Time, at)
	}
	if events := r.events("dropped"); events[len(events)-1].Type() != "cancelled" {
		t.Errorf("the cancelled task went on: %v", events)
	}
	if planned, err := r.bus.IsPlanned(r.ctx(), run("dropped")); planned || err != nil {
		t.Errorf("the cancelled task is planned: %t, %v", planned, err)
	}
}

// Each occurrence is a run of its own, by however many workers, and the runs end with the schedule.
func TestRepeatedTask(t *testing.T) {
	t.Parallel()
	r := rigWith(t, newTracked(6, 0))
	for range 2 {
		r.start(r.config())
	}
	for range 2 {
		r.submit("tick", `{"goal": "g", "every": "1s"}`)
	}
	runs := map[string]loop.Head{}
	r.eventually("three runs have ended", func() bool {
		heads, _, err := r.bus.List(r.ctx(), "default", 0, 100)
		for _, h := range heads {
			if h.Closed {
				runs[h.Run] = h
			}
		}
		return err == nil && len(runs) >= 3
	})
	for id := range runs {
		at, err := time.Parse("20060102T150405Z", strings.TrimPrefix(id, "tick-"))
		first := r.events(id)[0]
		accepted, ok := first.Data.(loop.Accepted)
		if err != nil || !ok || accepted.Schedule != "tick" || accepted.Task.Every != "" || first.Time.Sub(at).Abs() > 20*time.Second {
			t.Errorf("run %s began at %s with %+v", id, first.Time, first.Data)
		}
	}
	if found, err := r.bus.Unplan(r.ctx(), run("tick")); !found || err != nil {
		t.Errorf("removed: %t, %v", found, err)
	}
	r.eventually("nothing is left to do", func() bool {
		backlog, err := r.bus.Backlog(r.ctx())
		return err == nil && backlog.Wakes == 0
	})
}

func TestTasksWithARuleThatIsNone(t *testing.T) {
	t.Parallel()
	r := rigWith(t, newTracked(6, 0))
	r.start(r.config())
	for id, c := range map[string]struct{ fields, want string }{
		"never":   {`"every": "0 0 31 2 *"`, "would never start a run"},
		"no-cron": {`"every": "at dawn"`, "neither an interval"},
		"no-time": {`"not_before": "at dawn"`, "is no time such as"},
	} {
		r.submit(id, `{"goal": "g", `+c.fields+`}`)
		failed := r.until(id, "failed").Data.(loop.Failed)
		if failed.Reason != loop.FailInvalidTask || !strings.Contains(failed.Message, c.want) {
			t.Errorf("%s: %+v", id, failed)
		}
	}
}
