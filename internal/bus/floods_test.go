package bus_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"
	"ratchet/internal/loop"
)

// wakeNew publishes wake-ups of n new runs, r0 and so on.
func wakeNew(t *testing.T, b *bus.Bus, tenant string, rank loop.Rank, n int) {
	t.Helper()
	for i := range n {
		must(t, b.Wake(bustest.Context(t), loop.RunID{Tenant: tenant, Run: fmt.Sprint("r", i)}, "", loop.Wake{Rank: rank}))
	}
}

// fetchAll takes n wake-ups one at a time, acknowledges each, and returns their runs in that order.
func fetchAll(t *testing.T, source *bus.Source, n int) (got []loop.RunID) {
	t.Helper()
	ctx := bustest.Context(t)
	for len(got) < n && ctx.Err() == nil {
		must(t, source.Fetch(ctx, 1, func(d loop.Delivery) {
			got = append(got, d.RunID)
			must(t, d.Settler.Ack(ctx))
		}))
	}
	return got
}

// Of a flood no more than a few go before the task of another tenant of the same group that came after all of it. The flood
// keeps its order.
func TestAFloodGoesBehindAnothersTaskOfItsGroup(t *testing.T) {
	b := bustest.Start(t)
	near := bustest.Neighbours("acme", 1)[0]
	wakeNew(t, b, "acme", loop.RankNormal, 100)
	wakeNew(t, b, near, loop.RankNormal, 1)
	untilKnown(t, b, "AGENT_WAKE", 101)
	got := fetchAll(t, b.Wakes(), 101)
	at := slices.Index(got, loop.RunID{Tenant: near, Run: "r0"})
	if at < 0 || at > 10 {
		t.Errorf("the single one is number %d", at)
	}
	last := map[bool]int{} // of those that came before the rest and of the rest
	for i, id := range slices.Delete(got, at, at+1) {
		var n int
		if _, err := fmt.Sscanf(id.Run, "r%d", &n); err != nil || id.Tenant != "acme" {
			t.Fatalf("number %d is %s", i, id)
		}
		if few := n < 8; n < last[few] {
			t.Errorf("run %d began after run %d", n, last[few])
		} else {
			last[few] = n
		}
	}
}

// However many tenants have a task each, those of a flood in their group have a turn now and then.
func TestAFloodHasItsTurns(t *testing.T) {
	b := bustest.Start(t)
	wakeNew(t, b, "acme", loop.RankNormal, 50)
	for _, near := range bustest.Neighbours("acme", 200) {
		wakeNew(t, b, near, loop.RankNormal, 1)
	}
	untilKnown(t, b, "AGENT_WAKE", 250)
	of := 0
	for _, id := range fetchAll(t, b.Wakes(), 98) {
		if id.Tenant == "acme" {
			of++
		}
	}
	if want := 8 + 90/9; of < want-1 || of > want+1 {
		t.Errorf("%d of the first 98 are the flood's, want about %d", of, want)
	}
}

// A flood does not change the order of a tenant's priorities: what has a lower one goes behind it, what has a higher one before.
func TestPrioritiesOfATenantThatFloods(t *testing.T) {
	b := bustest.Start(t)
	wakeNew(t, b, "acme", loop.RankNormal, 100)
	for rank, run := range map[loop.Rank]string{loop.RankLow: "low", loop.RankHigh: "high"} {
		must(t, b.Wake(bustest.Context(t), loop.RunID{Tenant: "acme", Run: run}, "", loop.Wake{Rank: rank}))
	}
	untilKnown(t, b, "AGENT_WAKE", 102)
	got := fetchAll(t, b.Wakes(), 102)
	at := func(run string) int { return slices.Index(got, loop.RunID{Tenant: "acme", Run: run}) }
	if at("high") > 3 || at("low") < 8 {
		t.Errorf("the high one is number %d, the low one %d: %v", at("high"), at("low"), got[:20])
	}
}

// A tenant whose flood has begun is like any other again.
func TestAFloodPasses(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	near := bustest.Neighbours("acme", 1)[0]
	wakes := b.Wakes()
	wakeNew(t, b, "acme", loop.RankNormal, 30)
	fetchAll(t, wakes, 30)
	wakeNew(t, b, near, loop.RankNormal, 30)
	for passed := false; !passed; { // the server is asked a few times a second
		must(t, b.Wake(ctx, loop.RunID{Tenant: "acme", Run: "again"}, "", loop.Wake{Rank: loop.RankNormal}))
		for _, id := range fetchAll(t, wakes, 10) {
			passed = passed || id.Tenant == "acme"
		}
		wakeNew(t, b, near, loop.RankNormal, 10)
	}
}

// Who looks past a lane's first messages finds the one it wants; the others stay in their order.
func TestFetchFromLooksPast(t *testing.T) {
	b := bustest.Start(t)
	ctx := bustest.Context(t)
	near := bustest.Neighbours("acme", 1)[0]
	wakeNew(t, b, "acme", loop.RankNormal, 8)
	wakeNew(t, b, near, loop.RankNormal, 2)
	untilKnown(t, b, "AGENT_WAKE", 10)
	source := b.Wakes()
	look := func(depth loop.Look) (found string) {
		must(t, source.FetchFrom(ctx, func(int) loop.Look { return depth }, func(d loop.Delivery) bool {
			if d.Tenant != near {
				return false
			}
			found = d.Run
			must(t, d.Settler.Ack(ctx))
			return true
		}))
		return found
	}
	if found := look(loop.LookFirst); found != "" {
		t.Errorf("it looked past the first and found %s", found)
	}
	if found := look(loop.LookPast); found != "r0" {
		t.Errorf("it found %q", found)
	}
	var want []loop.RunID
	for i := range 8 {
		want = append(want, loop.RunID{Tenant: "acme", Run: fmt.Sprint("r", i)})
	}
	got := fetchAll(t, source, 9)
	if diff := cmp.Diff(append(want, loop.RunID{Tenant: near, Run: "r1"}), got); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// However many tenants there are, a worker remembers a few thousand.
func TestFewTenantsAreRemembered(t *testing.T) {
	if n := bus.TenantsRemembered(100); n != 100 {
		t.Errorf("of 100 tenants %d are remembered", n)
	}
	if n := bus.TenantsRemembered(20_000); n < 1000 || n > 4096 {
		t.Errorf("of 20,000 tenants %d are remembered", n)
	}
}
