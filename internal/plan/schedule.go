package plan

import "bytes"

// Ready returns the steps that can start now: pending, with all that they wait for done. They stand in the order of the
// plan, and none of them depends on another.
func (d DAG) Ready() []DAGStep {
	at := d.positions()
	var ready []DAGStep
	for _, s := range d {
		if s.Status == Pending && d.allDone(s.After, at) {
			ready = append(ready, s)
		}
	}
	return ready
}

func (d DAG) allDone(ids []string, at map[string]int) bool {
	for _, id := range ids {
		if i, ok := at[id]; !ok || d[i].Status != Done {
			return false
		}
	}
	return true
}

// Skip is a step that can never run.
type Skip struct {
	ID      string
	Because string // id of the failed step that it depends on, over others or directly
}

// Skipped returns the pending steps that depend on a failed one, in the order of the plan. Where several failed steps are the
// cause, the first of the plan is named.
func (d DAG) Skipped() []Skip {
	at := d.positions()
	waiting := make([][]int, len(d)) // which steps wait for each
	for i, s := range d {
		for _, id := range s.After {
			if j, ok := at[id]; ok {
				waiting[j] = append(waiting[j], i)
			}
		}
	}
	because := make([]string, len(d))
	for i, s := range d {
		if s.Status != Failed {
			continue
		}
		for next := []int{i}; len(next) > 0; {
			last := next[len(next)-1]
			next = next[:len(next)-1]
			for _, j := range waiting[last] {
				if because[j] == "" {
					because[j] = s.ID
					next = append(next, j)
				}
			}
		}
	}
	var skips []Skip
	for i, s := range d {
		if s.Status == Pending && because[i] != "" {
			skips = append(skips, Skip{ID: s.ID, Because: because[i]})
		}
	}
	return skips
}

// Ended reports whether every step is done, failed or skipped.
func (d DAG) Ended() bool {
	for _, s := range d {
		if !s.Status.Closed() {
			return false
		}
	}
	return true
}

// Replan returns the plan that goes on where prev came to a halt: the steps that are done or still running stay as they are, in
// their order, and the rest is next, checked as by [CheckDAG]. Steps of next may wait for those that stay and refer to them.
// They may reuse the id of a step that failed, was skipped or has not begun, but not of one that stays, except to
// repeat that step unchanged. The error is a *[Violation] that lists everything that is wrong.
func Replan(prev, next DAG, r DAGRules) (DAG, error) {
	if v := tooManySteps(len(next), MaxDAGSteps); v != nil {
		return nil, v
	}
	var merged DAG
	for _, s := range prev {
		if s.Status == Done || s.Status == Running {
			merged = append(merged, s)
		}
	}
	stay := merged.positions()
	var found problems
	for _, s := range next {
		i, stays := stay[s.ID]
		switch {
		case !stays:
			s.Status, s.Result = Pending, nil
			merged = append(merged, s)
		case !merged[i].same(s):
			found.add(RuleStepDone, "Step %s is %s and stays as it is. Leave it out, and give the new step another id.", quote(s.ID),
				merged[i].Status)
		}
	}
	merged.link(len(stay))
	c := dagCheck{d: merged, rules: r, found: found}
	if v := c.run(); v != nil {
		return nil, v
	}
	return merged, nil
}

// same reports whether both steps make the same call.
func (s DAGStep) same(other DAGStep) bool {
	return s.Tool == other.Tool && bytes.Equal(s.Args, other.Args)
}
