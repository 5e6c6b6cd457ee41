package bus

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"ratchet/internal/loop"
)

// A queue is divided into lanes, each with a consumer of its own, so that whoever publishes much does not stand before
// everybody else. The number of lanes is fixed: tenants are spread over groups by a hash of their name, and each group has
// a lane of its inbox, one for each rank of its wake-ups, and for each rank of new runs another one, the bulk lane, for those
// of tenants that have many waiting (floods.go).

// groups is how many groups of tenants there are. Changing it strands what lies in the lanes that are no more.
const groups = 8

// ranks are the ranks of wake-ups in the order in which they go, with the letter that stands for each in a lane's name.
var ranks = []struct {
	letter string
	rank   loop.Rank
}{{"g", loop.RankBegun}, {"h", loop.RankHigh}, {"n", loop.RankNormal}, {"l", loop.RankLow}}

// bulkMark follows the rank's letter in the name of a bulk lane. It is no upper case letter, for consumers are directories.
const bulkMark = "b"

// laneShared is the lane of wake-ups that belong to no tenant. Before there were lanes it was the only one.
const laneShared = "0"

// GroupOf is the group of a tenant, from 0, as the server counts it too: partition() in a subject transform.
func GroupOf(tenant string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tenant)) // never fails
	return int(h.Sum32() % groups)
}

// laneOf is the token of a wake-up's lane: its rank's letter and its tenant's group.
func laneOf(id loop.RunID, rank loop.Rank) string {
	if id.Tenant == "_" {
		return laneShared
	}
	return ranks[placeOf(rank)].letter + strconv.Itoa(GroupOf(id.Tenant))
}

// bulkLaneOf is the token of the bulk lane of a tenant for new runs of a rank.
func bulkLaneOf(tenant string, rank loop.Rank) string {
	return ranks[placeOf(rank)].letter + bulkMark + strconv.Itoa(GroupOf(tenant))
}

// placeOf is the index of a rank in [ranks], that of normal priority where it is none of them.
func placeOf(rank loop.Rank) int {
	for i, r := range ranks {
		if r.rank == rank {
			return i
		}
	}
	return placeOf(loop.RankNormal)
}

// rankOf reads the token of a lane.
func rankOf(lane string) loop.Rank {
	for _, r := range ranks {
		if strings.HasPrefix(lane, r.letter) {
			return r.rank
		}
	}
	return loop.RankBegun
}

// lane is one consumer of a queue. What is known of its contents belongs to the [Source] that reads from it.
type lane struct {
	consumer string
	filters  []string
	group    int  // -1: of no tenant
	bulk     bool // of new runs of tenants that have many waiting
	belief
	scouted
}

// inboxLanes are those of tasks, replies and controls: first the one of orders to runs, then one for each group.
func (n names) inboxLanes() []*lane {
	// Its filters leave the subjects of tasks out even though none is stored under them: nats-server 2.15 kept
	// acknowledged tasks in the stream where they did not.
	orders := []string{n.prefix + ".reply.*.*", n.prefix + ".control.*.*"}
	lanes := []*lane{{consumer: durableInbox, filters: orders, group: -1}}
	for g := range groups {
		lanes = append(lanes, &lane{
			consumer: fmt.Sprintf("%s-%d", durableTasks, g), filters: []string{fmt.Sprintf("%s.task.%d.*", n.prefix, g)}, group: g,
		})
	}
	return lanes
}

// wakeLanes are those of wake-ups: first the shared one, then those of each group in the order of ranks, its bulk lanes last.
func (n names) wakeLanes() []*lane {
	filter := func(token string) []string { return []string{n.wakePrefix() + token + ".*.*"} }
	lanes := []*lane{{consumer: durableWakes, filters: filter(laneShared), group: -1}}
	for g := range groups {
		for _, r := range ranks {
			token := fmt.Sprint(r.letter, g)
			lanes = append(lanes, &lane{consumer: durableWakes + "-" + token, filters: filter(token), group: g})
		}
		for _, r := range ranks[1:] { // what has begun has one lane
			token := fmt.Sprint(r.letter, bulkMark, g)
			lanes = append(lanes, &lane{consumer: durableWakes + "-" + token, filters: filter(token), group: g, bulk: true})
		}
	}
	return lanes
}
