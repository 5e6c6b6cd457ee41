package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
)

// confidence of the intervals that are shown, as benchstat has it.
const confidence = 0.95

// compare prints what changed between two reports, by the statistics of benchstat: medians, their spread, and whether the
// samples differ at all. It says "~" where they may well not.
func compare(w io.Writer, before, after *report) {
	fmt.Fprintf(w, "\nCompared with %s on %d × %s:\n\n", before.Machine.Time.Format("2006-01-02 15:04"), before.Machine.CPUs, cmp.Or(before.Machine.CPU, "CPU"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "scenario\t\tfigure\tbefore\tafter\tchange\t")
	few := false
	for _, now := range after.Rows {
		then := before.row(now.Scenario, now.Name)
		if then == nil {
			fmt.Fprintf(t, "%s\t%s\tnot measured before\t\t\t\t\n", now.Scenario, now.Name)
			continue
		}
		for _, f := range allFigures() {
			if len(then.Figures[f]) == 0 || len(now.Figures[f]) == 0 {
				continue
			}
			a, b := sample(then.Figures[f]), sample(now.Figures[f])
			result := benchmath.AssumeNothing.Compare(a, b)
			few = few || len(result.Warnings) > 0
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", now.Scenario, now.Name, f, spread(a), spread(b), change(f, result, a, b))
		}
	}
	if few {
		fmt.Fprintln(t, "\nA few samples prove nothing: measure both with --count 6 or more.")
	}
}

// allFigures are those of the table.
func allFigures() (all []figure) {
	for _, c := range columns {
		all = append(all, c.figures...)
	}
	return all
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// spread writes a median with its interval.
func spread(s *benchmath.Sample) string {
	summary := benchmath.AssumeNothing.Summary(s, confidence)
	return format([]float64{summary.Center}) + " ± " + summary.PctRangeString()
}

// change writes by how much a figure changed, and whether that is good.
func change(f figure, result benchmath.Comparison, a, b *benchmath.Sample) string {
	then, now := benchmath.AssumeNothing.Summary(a, confidence).Center, benchmath.AssumeNothing.Summary(b, confidence).Center
	delta := result.FormatDelta(then, now)
	switch {
	case delta == "~" || then == now:
		return fmt.Sprintf("%s (%s)", delta, result)
	case (now > then) == moreIsBetter[f]:
		return fmt.Sprintf("%s better (%s)", delta, result)
	default:
		return fmt.Sprintf("%s worse (%s)", delta, result)
	}
}

func median(values []float64) float64 {
	return benchmath.AssumeNothing.Summary(sample(values), confidence).Center
}
