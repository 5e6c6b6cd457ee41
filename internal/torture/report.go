package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"ratchet/internal/loop"
)

// mostShown bounds how many violations of one rule are printed, and mostJournals for how many runs of those the journal is.
const (
	mostShown    = 8
	mostJournals = 2
)

// writeReport prints the violations, the journals of the runs they are about, and the table.
func writeReport(opts Options, e Evidence, violations []Violation) {
	out := opts.Out
	byRule, journals := map[string]int{}, map[string]int{}
	shown := map[string]bool{}
	for _, v := range violations {
		if byRule[v.Rule]++; byRule[v.Rule] > mostShown {
			continue
		}
		fmt.Fprintf(out, "VIOLATION, seed %d: %s\n", opts.Seed, v)
		if journals[v.Rule] < mostJournals && !shown[v.Run] && len(e.Journals[v.Run]) > 0 {
			shown[v.Run] = true
			journals[v.Rule]++
			writeJournal(out, e, v.Run)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(byRule)) {
		fmt.Fprintf(out, "violations of rule %q: %d\n", rule, byRule[rule])
	}
	writeTable(out, opts, e, violations)
}

// writeJournal prints what is known of one run: its events, its calls of the model and of tools, its state.
func writeJournal(out io.Writer, e Evidence, run string) {
	fmt.Fprintf(out, "\njournal of %s\n", run)
	for _, r := range e.Journals[run] {
		if r.Problem != "" {
			fmt.Fprintf(out, "  %s\n", r.Problem)
			continue
		}
		data, err := json.Marshal(r.Event.Data)
		if err != nil {
			data = []byte(err.Error())
		}
		if _, first := r.Event.Data.(loop.Accepted); first || len(data) > 400 {
			data = append(data[:min(len(data), 400)], " …"...)
		}
		fmt.Fprintf(out, "  %3d  %s  seq %d  %s  %s  %s  %s\n", r.Event.N, clock(r.Event.Time), r.Event.Seq,
			r.Event.Source[strings.LastIndexByte(r.Event.Source, '/')+1:], r.Event.Type(), r.Event.Cause, data)
	}
	for _, m := range e.ModelCalls {
		if m.Run == run {
			fmt.Fprintf(out, "  model  %s-%s  %s  prompt %s  paid %t gone %t\n", clock(m.From), clock(m.To), m.Worker, m.Prompt[:min(8, len(m.Prompt))], m.Paid, m.Gone)
		}
	}
	for _, x := range e.Executions {
		if runOfKey(x.Key) == run {
			fmt.Fprintf(out, "  tool   %s-%s  %s  %s %s  gone %t\n", clock(x.From), clock(x.To), x.Worker, x.Tool, x.Key, x.Gone)
		}
	}
	for _, f := range e.Faults {
		if !near(e, run, f) {
			continue
		}
		fmt.Fprintf(out, "  fault  %s-%s  %s %s%s\n", clock(f.From), clock(f.To), f.Kind, f.Worker, held(f, run))
	}
	if h, exists := e.Heads[run]; exists {
		fmt.Fprintf(out, "  state  %s n %d seq %d owner %v claim %+v closed %t\n", h.Status, h.N, h.Seq, h.Owner, h.Claim, h.Closed)
	}
}

// near reports whether a fault could have to do with a run.
func near(e Evidence, run string, f Fault) bool {
	records := e.Journals[run]
	from, to := records[0].Event.Time, records[len(records)-1].Event.Time
	return f.To.Add(3*e.Lease).After(from) && f.From.Before(to.Add(e.Lease))
}

func held(f Fault, run string) string {
	for _, h := range f.Hands {
		if h.Run == run {
			return "  with this run in hand of " + h.Worker
		}
	}
	return ""
}

// writeTable prints the one table.
func writeTable(out io.Writer, opts Options, e Evidence, violations []Violation) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "\nseed %d\tworkers %d, lease %s, %s\n", opts.Seed, opts.Workers, opts.Lease, opts.Time)
	fmt.Fprintf(t, "\nruns by shape\tall\tanswered\tcancelled\tfailed\topen\n")
	for _, shape := range Shapes {
		writeOutcomes(t, string(shape), e, func(p Planned) bool { return p.Shape == shape })
	}
	fmt.Fprintf(t, "\nruns by strategy\tall\tanswered\tcancelled\tfailed\topen\n")
	for _, strategy := range Strategies {
		writeOutcomes(t, string(strategy), e, func(p Planned) bool { return p.Strategy == strategy })
	}
	writeOutcomes(t, "all", e, func(Planned) bool { return true })
	writeFaults(t, e)
	n := count(e)
	fmt.Fprintf(t, "\ndrained within\t%s\n", e.Draining.Round(100*time.Millisecond))
	fmt.Fprintf(t, "events stored\t%d\n", n.events)
	fmt.Fprintf(t, "model calls\t%d\trefused %d, repeated %d\n", len(e.ModelCalls), n.refused, n.repeatedModel)
	fmt.Fprintf(t, "tool calls\t%d\trepeated %d (read and idempotent), once tools twice %d\n", len(e.Executions), n.repeatedTools, n.onceTwice)
	fmt.Fprintf(t, "dead letters\t%d\tplanted %d\n", len(e.Dead), n.planted)
	fmt.Fprintf(t, "facts learned\t%d\n", n.facts)
	fmt.Fprintf(t, "failed starts\t%d\tof workers that found no server, and were started again\n", e.Restarts)
	fmt.Fprintf(t, "stray schedules\t%d\n", n.stray)
	writeRecoveries(t, e)
	fmt.Fprintf(t, "\nviolations\t%d\n", len(violations))
}

// writeOutcomes prints how some of the runs ended.
func writeOutcomes(t io.Writer, name string, e Evidence, which func(Planned) bool) {
	n := outcomes(e, which)
	fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", name, n[0], n[1], n[2], n[3], n[4])
}

// outcomes counts runs: all, answered, cancelled, failed, open.
func outcomes(e Evidence, which func(Planned) bool) (n [5]int) {
	for run, p := range e.Planned {
		if !which(p) {
			continue
		}
		n[0]++
		records := e.Journals[run]
		if len(records) == 0 {
			n[4]++
			continue
		}
		switch records[len(records)-1].Event.Data.(type) {
		case loop.Answer:
			n[1]++
		case loop.Cancelled:
			n[2]++
		case loop.Failed:
			n[3]++
		default:
			n[4]++
		}
	}
	return n
}

func writeFaults(t io.Writer, e Evidence) {
	kinds, hands, taken := map[FaultKind]int{}, map[FaultKind]int{}, map[FaultKind]int{}
	for _, f := range e.Faults {
		kinds[f.Kind]++
		hands[f.Kind] += len(f.Hands)
		for _, h := range f.Hands {
			if next, ok := nextEvent(e, h.Run, f.From); ok && !strings.HasSuffix(next.Source, "/"+h.Worker) {
				taken[f.Kind]++
			}
		}
	}
	fmt.Fprintf(t, "\nfaults\ttimes\truns in hand\ttaken over\n")
	for _, kind := range []FaultKind{FaultKill, FaultTerm, FaultStop, FaultCut, FaultStall, FaultServer, FaultSlow} {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", kind, kinds[kind], hands[kind], taken[kind])
	}
}

// nextEvent is the first event that a driver appended to a run after a moment.
func nextEvent(e Evidence, run string, after time.Time) (loop.Event, bool) {
	for _, r := range e.Journals[run] {
		if r.Problem == "" && r.Event.Cause == "" && r.Event.Time.After(after) {
			return r.Event, true
		}
	}
	return loop.Event{}, false
}

type counts struct {
	events, refused, repeatedModel, repeatedTools, onceTwice, stray, planted, facts int
}

func count(e Evidence) (n counts) {
	for _, records := range e.Journals {
		n.events += len(records)
	}
	for _, subject := range e.Wakes {
		if strings.HasPrefix(subject, "agent.schedule.") && !strings.Contains(subject, reservedSweep) {
			n.stray++
		}
	}
	for _, p := range e.Planted {
		n.planted += p.Stored
	}
	for _, list := range e.Facts {
		n.facts += len(list)
	}
	prompts := map[string]bool{}
	for _, m := range e.ModelCalls {
		switch at := m.Run + m.Prompt; {
		case !m.Paid:
			n.refused++
		case prompts[at]:
			n.repeatedModel++
		default:
			prompts[at] = true
		}
	}
	keys := map[string]bool{}
	for _, x := range e.Executions {
		switch {
		case !keys[x.Key]:
			keys[x.Key] = true
		case effects[x.Tool] == loop.EffectOnce:
			n.onceTwice++
		default:
			n.repeatedTools++
		}
	}
	return n
}

// writeRecoveries prints how long runs that were in hand stood still. Only the first row of each kind is judged.
func writeRecoveries(t io.Writer, e Evidence) {
	fmt.Fprintf(t, "\nuntil a run in hand went on\truns\tp50\tp99\tmost\t\n")
	for _, kind := range []FaultKind{FaultKill, FaultTerm} {
		all := recoveries(e, kind)
		row := func(name, remark string, which func(recovery) bool) {
			list := slices.DeleteFunc(slices.Clone(all), func(r recovery) bool { return !which(r) })
			if len(list) == 0 {
				fmt.Fprintf(t, "%s, %s\t0\t\t\t\t%s\n", kind, name, remark)
				return
			}
			at := func(percent int) time.Duration { return rank(list, percent).took.Round(time.Millisecond) }
			fmt.Fprintf(t, "%s, %s\t%d\t%s\t%s\t%s\t%s\n", kind, name, len(list), at(50), at(99), at(100), remark)
		}
		remark := fmt.Sprintf("p99 must be within %s", bound(kind, e.Lease))
		if len(judged(all)) == 0 {
			remark = "nothing to judge"
		}
		row("alone", remark, func(r recovery) bool { return !r.overlapped && !r.busy })
		row("alone, machine busy", "not judged", func(r recovery) bool { return !r.overlapped && r.busy })
		row("with other faults", "not judged", func(r recovery) bool { return r.overlapped })
	}
}
