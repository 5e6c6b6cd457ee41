package main

import (
	"encoding/json"
	"strings"
	"testing"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
)

func TestGC(t *testing.T) {
	url := server(t)
	fresh := submit(t, "", "gc", "--dry-run", "--nats", url)
	fresh.want(t, codeAnswered)
	contains(t, fresh.stderr, "There is nothing to clear away.")
	submit(t, "", "--nats", url, "--id", "sum-1", "--session", "s", sum).want(t, codeAnswered)
	submit(t, "", "--nats", url, "--id", "buy-1", buy).want(t, codeWaiting)
	week := submit(t, "", "gc", "--nats", url)
	week.want(t, codeAnswered)
	contains(t, week.stderr, "There is nothing to clear away.")

	// It is closed a moment after its answer.
	var dry outcome
	for ctx := bustest.Context(t); !strings.Contains(dry.stdout, "runs past their time") && ctx.Err() == nil; {
		dry = submit(t, "", "gc", "--dry-run", "--keep", "0s", "--nats", url)
		dry.want(t, codeAnswered)
	}
	contains(t, dry.stdout, "NUMBER", "SIZE", "KiB", "would be removed")
	contains(t, dry.stderr, "Nothing was removed.", "submit gc --nats "+url+" --keep 0s")
	submit(t, "", "show", "sum-1", "--nats", url).want(t, codeAnswered)

	gone := submit(t, "", "gc", "--keep", "0s", "--nats", url, "--json")
	gone.want(t, codeAnswered)
	var l bus.Litter
	if err := json.Unmarshal([]byte(strings.SplitN(gone.stdout, "\n", 2)[0]), &l); err != nil || l.Count != 1 || l.Bytes == 0 {
		t.Errorf("%s: %v", gone.stdout, err)
	}
	submit(t, "", "show", "sum-1", "--nats", url).want(t, codeFailed)
	kept := submit(t, "", "show", "buy-1", "--nats", url)
	kept.want(t, codeAnswered)
	contains(t, kept.stdout, "waiting")
	submit(t, "", "gc", "--keep=-1h", "--nats", url).want(t, codeUsage)
}

func TestGCWithoutStreams(t *testing.T) {
	o := submit(t, "", "gc", "--nats", bustest.Server(t).URL())
	o.want(t, codeUnreachable)
	contains(t, o.stderr, "under prefix agent", "Has a worker been started there?", "JetStream")
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
