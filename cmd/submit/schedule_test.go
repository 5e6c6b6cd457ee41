package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
)

func TestSchedules(t *testing.T) {
	url := server(t)
	once := submit(t, "", "--nats", url, "--id", "later", "--not-before", "2h", sum)
	once.want(t, codeAnswered)
	contains(t, once.stderr, "It begins at ", "submit cancel later")
	often := submit(t, "", "--nats", url, "--id", "daily", "--every", "TZ=Europe/Berlin 0 9 * * *", sum)
	often.want(t, codeAnswered)
	contains(t, often.stderr, "The first run begins at ", "submit schedule remove daily")
	if once.stdout != "later\n" || often.stdout != "daily\n" {
		t.Errorf("standard output is %q and %q", once.stdout, often.stdout)
	}
	found := map[string]bus.Schedule{}
	for deadline := time.Now().Add(time.Minute); len(found) < 2 && time.Now().Before(deadline); { // the door is on its way
		listed := submit(t, "", "schedule", "--nats", url, "--json")
		listed.want(t, codeAnswered)
		for line := range strings.Lines(listed.stdout) {
			var s bus.Schedule
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatal(err)
			}
			found[s.ID] = s
		}
	}
	if s := found["later"]; s.Goal != sum || time.Until(s.Next) > 2*time.Hour || time.Until(s.Next) < time.Hour {
		t.Errorf("listed is %+v", s)
	}
	if s := found["daily"]; s.Every != "TZ=Europe/Berlin 0 9 * * *" || s.Next.Before(time.Now()) {
		t.Errorf("listed is %+v", s)
	}
	table := submit(t, "", "schedule", "list", "--nats", url)
	contains(t, table.stdout, "ID", "NEXT", "RULE", "GOAL", "later", "once", "daily", "TZ=Europe/Berlin 0 9 * * *")
	again := submit(t, "", "--nats", url, "--id", "daily", "--every", "1h", sum)
	contains(t, again.stderr, "schedule daily already; nothing was changed")

	submit(t, "", "schedule", "remove", "--nats", url, "daily").want(t, codeAnswered)
	gone := submit(t, "", "schedule", "remove", "--nats", url, "daily")
	gone.want(t, codeFailed)
	contains(t, gone.stderr, "There is no schedule daily")
	submit(t, "", "cancel", "--nats", url, "later").want(t, codeAnswered)
	none := submit(t, "", "schedule", "--nats", url)
	contains(t, none.stderr, "Nothing is planned.")

	for _, args := range [][]string{
		{"--every", "0 0 31 2 *", sum},
		{"--not-before", "dawn", sum},
		{"--local", "--every", "1h", sum},
		{"schedule", "remove"},
		{"schedule", "list", "x"},
	} {
		submit(t, "", append(args, "--nats", url)...).want(t, codeUsage)
	}
}
