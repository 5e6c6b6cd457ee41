package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// reportArguments is a report before it is written. Month and region say which of the loaded rows it is about.
type reportArguments struct {
	Title     string                 `json:"title"`
	Summary   string                 `json:"summary" jsonschema:"what the figures say, in a few sentences"`
	Total     json.Number            `json:"total" jsonschema:"total revenue of the rows the report is about"`
	Month     string                 `json:"month,omitempty" jsonschema:"YYYY-MM, where the report is about one of several loaded months"`
	Region    string                 `json:"region,omitempty" jsonschema:"where the report is about one of several loaded regions"`
	ByRegion  map[string]json.Number `json:"by_region,omitempty" jsonschema:"revenue by region"`
	ByProduct map[string]json.Number `json:"by_product,omitempty" jsonschema:"revenue by product"`
}

func writeReport() tools.Tool {
	type result struct {
		Title  string      `json:"title"`
		Total  json.Number `json:"total"`
		Report string      `json:"report"`
	}
	t := sample("write_report", loop.EffectRead, "Writes a sales report as text. Its figures are checked against the sales rows loaded in this run.",
		`{"title":"Sales in March 2025","summary":"The North sold most.","total":245}`)
	t.Guard = "verify_report"
	return tools.Typed(t, func(_ context.Context, _ loop.Invocation, a reportArguments) (any, error) {
		if strings.TrimSpace(a.Title) == "" {
			return nil, errors.New("title is empty: say what the report is about")
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n%s\n\n%s\n\n", a.Title, strings.Repeat("=", min(80, utf8.RuneCountInString(a.Title))), a.Summary)
		for _, part := range []struct {
			name    string
			figures map[string]json.Number
		}{{"By region", a.ByRegion}, {"By product", a.ByProduct}} {
			if len(part.figures) == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s\n", part.name)
			for _, key := range slices.Sorted(maps.Keys(part.figures)) {
				fmt.Fprintf(&b, "  %-10s %12s USD\n", key, part.figures[key])
			}
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Total revenue: %s USD\n", a.Total)
		return result{a.Title, a.Total, b.String()}, nil
	})
}

// verifyReport is the guard of write_report and send_email: it adds the rows of the run up itself.
func verifyReport() tools.Tool {
	t := sample("verify_report", loop.EffectRead, "Checks the figures of a report or mail against the sales rows loaded before it.",
		`{"tool":"write_report","arguments":{"title":"Sales","summary":"","total":245},"results":{"1":{"rows":[]}}}`)
	t.Internal = true
	return tools.Typed(t, func(_ context.Context, _ loop.Invocation, a tools.GuardRequest) (any, error) {
		rows, err := rowsIn(a.Results)
		if err != nil {
			return nil, err
		}
		var problems []string
		if a.Tool == "send_email" {
			problems, err = verifyMail(a.Arguments, rows)
		} else {
			problems, err = verifyFigures(a.Arguments, rows)
		}
		if err != nil {
			return nil, err
		}
		return tools.GuardVerdict{OK: len(problems) == 0, Problems: problems}, nil
	})
}

// rowsIn collects the distinct sales rows in the results of a run. Other results are passed over.
func rowsIn(results map[string]json.RawMessage) ([]row, error) {
	var rows []row
	for _, id := range slices.Sorted(maps.Keys(results)) {
		var t table
		if json.Unmarshal(results[id], &t) != nil {
			continue
		}
		for _, r := range t.Rows {
			if r.Month != "" && r.Revenue != "" && r.Units != "" {
				rows = append(rows, r)
			}
		}
	}
	return distinct(rows)
}

func verifyFigures(arguments json.RawMessage, rows []row) ([]string, error) {
	var a reportArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	if len(rows) == 0 {
		return []string{"no sales rows were loaded in this run, so the report has nothing to stand on: call load_sales first"}, nil
	}
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return a.Month != "" && r.Month != monthOf(a.Month) || a.Region != "" && !strings.EqualFold(r.Region, a.Region)
	})
	if len(rows) == 0 {
		return []string{fmt.Sprintf("none of the loaded sales rows is about month %q and region %q", brief(a.Month), brief(a.Region))}, nil
	}
	sums, err := sumUp(rows)
	if err != nil {
		return nil, err
	}
	problems := differ(nil, "total", a.Total, sums.Total)
	for _, part := range []struct {
		name        string
		said, right map[string]json.Number
	}{{"by_region", a.ByRegion, sums.ByRegion}, {"by_product", a.ByProduct, sums.ByProduct}} {
		for _, key := range slices.Sorted(maps.Keys(part.said)) {
			right, ok := part.right[key]
			if !ok {
				problems = append(problems, fmt.Sprintf("%s.%s: no such rows were loaded", part.name, brief(key)))
				continue
			}
			problems = differ(problems, part.name+"."+key, part.said[key], right)
		}
	}
	return problems, nil
}

// differ adds a problem where a figure is not the right one.
func differ(problems []string, name string, said, right json.Number) []string {
	a, err := tools.ParseNumber(said)
	if err != nil {
		return append(problems, fmt.Sprintf("%s: %v", name, err))
	}
	if b, err := tools.ParseNumber(right); err != nil || a.Cmp(b) != 0 {
		return append(problems, fmt.Sprintf("%s is %s, but the loaded rows add up to %s", name, said, right))
	}
	return problems
}

// totalRule finds what a mail says the total is (three digits or more, or a fraction), such as "Total revenue: 12,345.60 USD".
var totalRule = regexp.MustCompile(`(?i)\btotal(?: revenue| sales)?\s*(?:is|was|of|:|=)?\s*(?:USD|\$)?\s*([0-9][0-9,]*\.[0-9]+|[0-9][0-9,]{2,})`)

// verifyMail checks the totals that a mail names. A mail without one, such as a notice of delay, has nothing to check.
func verifyMail(arguments json.RawMessage, rows []row) ([]string, error) {
	var a mailArguments
	if err := json.Unmarshal(arguments, &a); err != nil {
		return nil, fmt.Errorf("read the mail: %w", err)
	}
	said := totalRule.FindAllStringSubmatch(a.Body, -1)
	if len(said) == 0 {
		return nil, nil
	}
	if len(rows) == 0 {
		return []string{"the mail names a total, but no sales rows were loaded in this run: call load_sales first"}, nil
	}
	right, err := allowedTotals(rows)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, match := range said {
		total, err := tools.ParseNumber(json.Number(strings.ReplaceAll(match[1], ",", "")))
		if err != nil {
			problems = append(problems, fmt.Sprintf("total: %v", err))
			continue
		}
		if !slices.ContainsFunc(right, func(r *big.Rat) bool { return r.Cmp(total) == 0 }) {
			problems = append(problems, fmt.Sprintf("the mail says that the total is %s, but the loaded rows add up to %s", match[1], tools.FormatNumber(right[0])))
		}
	}
	return problems, nil
}

// allowedTotals returns the revenue and the units of all rows, then those of each month and each region: whatever a mail
// may rightly call a total.
func allowedTotals(rows []row) ([]*big.Rat, error) {
	groups := [][]row{rows}
	for _, key := range []func(row) string{func(r row) string { return r.Month }, func(r row) string { return r.Region }} {
		parts := map[string][]row{}
		for _, r := range rows {
			parts[key(r)] = append(parts[key(r)], r)
		}
		groups = slices.AppendSeq(groups, maps.Values(parts))
	}
	var allowed []*big.Rat
	for _, group := range groups {
		sums, err := sumUp(group)
		if err != nil {
			return nil, err
		}
		for _, n := range []json.Number{sums.Total, sums.Units} {
			r, err := tools.ParseNumber(n)
			if err != nil {
				return nil, err
			}
			allowed = append(allowed, r)
		}
	}
	return allowed, nil
}

func drawChart() tools.Tool {
	type arguments struct {
		Title  string                 `json:"title"`
		Values map[string]json.Number `json:"values" jsonschema:"numbers by label, none negative, such as by_region of summarize"`
	}
	type result struct {
		Title string `json:"title"`
		Chart string `json:"chart"`
	}
	return tools.Typed(sample("draw_chart", loop.EffectRead, "Draws a bar chart as text.", `{"title":"Revenue by region","values":{"North":245,"South":120.5}}`),
		func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
			chart, err := bars(a.Values)
			if err != nil {
				return nil, err
			}
			return result{a.Title, a.Title + "\n" + chart}, nil
		})
}

// barWidth is the length of the longest bar, in characters.
const barWidth = 40

func bars(values map[string]json.Number) (string, error) {
	if len(values) == 0 || len(values) > 100 {
		return "", fmt.Errorf("values has %d entries: a chart takes 1 to 100", len(values))
	}
	largest, widest := new(big.Rat), 0
	parsed := map[string]*big.Rat{}
	for label, value := range values {
		r, err := tools.ParseNumber(value)
		if err != nil {
			return "", fmt.Errorf("values.%s: %w", brief(label), err)
		}
		if r.Sign() < 0 {
			return "", fmt.Errorf("values.%s is %s: a bar can't be negative", brief(label), value)
		}
		parsed[label] = r
		if r.Cmp(largest) > 0 {
			largest = r
		}
		widest = max(widest, utf8.RuneCountInString(brief(label)))
	}
	var b strings.Builder
	for _, label := range slices.Sorted(maps.Keys(parsed)) {
		length := 0.0
		if largest.Sign() > 0 {
			length, _ = new(big.Rat).Quo(parsed[label], largest).Float64()
		}
		fmt.Fprintf(&b, "%-*s │%s %s\n", widest, brief(label), strings.Repeat("█", int(length*barWidth+0.5)), values[label])
	}
	return b.String(), nil
}
