package demo

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// salesCSV is a year of sales: month, region, product, units, revenue in USD. August is missing on purpose, so that a
// plan can meet a month that is not there.
//
//go:embed sales.csv
var salesCSV string

// row is one line of sales. No two lines share month, region and product.
type row struct {
	Month   string      `json:"month"`
	Region  string      `json:"region"`
	Product string      `json:"product"`
	Units   json.Number `json:"units"`
	Revenue json.Number `json:"revenue"`
}

// table is what the sales tools hand each other.
type table struct {
	Rows []row `json:"rows"`
}

var sales = sync.OnceValue(func() []row {
	records, err := csv.NewReader(strings.NewReader(salesCSV)).ReadAll()
	if err != nil {
		panic(fmt.Sprintf("demo: sales.csv: %v", err))
	}
	var rows []row
	for _, r := range records[1:] {
		rows = append(rows, row{r[0], r[1], r[2], json.Number(r[3]), json.Number(r[4])})
	}
	return rows
})

func loadSales() tools.Tool {
	type arguments struct {
		Month  string `json:"month" jsonschema:"the month as YYYY-MM, such as 2025-03"`
		Region string `json:"region,omitempty" jsonschema:"North, South, East or West; all of them where it is left out"`
	}
	return tools.Typed(sample("load_sales", loop.EffectRead, "Loads the sales rows of a month, of one region or of all. Returns {rows: [{month, region, product, units, revenue}]}.",
		`{"month":"2025-03","region":"North"}`),
		func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
			month := monthOf(a.Month)
			var found table
			var months, regions []string
			for _, r := range sales() {
				months, regions = append(months, r.Month), append(regions, r.Region)
				if r.Month == month && (a.Region == "" || strings.EqualFold(strings.TrimSpace(a.Region), r.Region)) {
					found.Rows = append(found.Rows, r)
				}
			}
			switch {
			case len(found.Rows) > 0:
				return found, nil
			case !slices.Contains(months, month):
				return nil, fmt.Errorf("there are no sales for month %q; months with sales: %s", brief(a.Month), list(months))
			}
			return nil, fmt.Errorf("there are no sales for region %q; regions: %s", brief(a.Region), list(regions))
		})
}

// monthOf reads the ways in which a month is written, and returns other text as it is. A month without a year is in the
// year of the sample.
func monthOf(text string) string {
	text = strings.TrimSpace(text)
	for _, layout := range []string{"2006-01", "January 2006", "Jan 2006", "01/2006"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.Format("2006-01")
		}
	}
	for _, layout := range []string{"January", "Jan"} {
		if t, err := time.Parse(layout, text); err == nil {
			return sales()[0].Month[:5] + t.Format("01")
		}
	}
	return text
}

// list writes each text once, sorted.
func list(texts []string) string {
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}

func mergeSales() tools.Tool {
	type arguments struct {
		Tables []table `json:"tables" jsonschema:"results of load_sales"`
	}
	return tools.Typed(sample("merge_sales", loop.EffectRead, "Merges tables of sales rows into one; a row that is in several is kept once. Returns {rows: […]}.",
		`{"tables":[{"rows":[{"month":"2025-03","region":"North","product":"Lamp","units":10,"revenue":245}]},{"rows":[]}]}`),
		func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
			merged := table{Rows: []row{}}
			for _, t := range a.Tables {
				merged.Rows = append(merged.Rows, t.Rows...)
			}
			var err error
			merged.Rows, err = distinct(merged.Rows)
			return merged, err
		})
}

// distinct sorts rows and drops repeated ones. Two rows for the same month, region and product with different figures are
// an error: one of them must be wrong.
func distinct(rows []row) ([]row, error) {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, byPlace)
	for i := 1; i < len(rows); i++ {
		if byPlace(rows[i-1], rows[i]) != 0 {
			continue
		}
		for _, pair := range [][2]json.Number{{rows[i-1].Units, rows[i].Units}, {rows[i-1].Revenue, rows[i].Revenue}} {
			a, err := tools.ParseNumber(pair[0])
			if err != nil {
				return nil, err
			}
			b, err := tools.ParseNumber(pair[1])
			if err != nil {
				return nil, err
			}
			if a.Cmp(b) != 0 {
				return nil, fmt.Errorf("two rows for %s, %s, %s have different figures, %s and %s", rows[i].Month, rows[i].Region, rows[i].Product, pair[0], pair[1])
			}
		}
	}
	return slices.CompactFunc(rows, func(a, b row) bool { return byPlace(a, b) == 0 }), nil
}

func byPlace(a, b row) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Product, b.Product))
}

// totals are the sums over rows.
type totals struct {
	Total     json.Number            `json:"total"` // revenue
	Units     json.Number            `json:"units"`
	ByRegion  map[string]json.Number `json:"by_region"`
	ByProduct map[string]json.Number `json:"by_product"`
	Months    []string               `json:"months"`
	RowCount  int                    `json:"row_count"`
}

func summarize() tools.Tool {
	type arguments struct {
		Rows []row `json:"rows" jsonschema:"sales rows, from load_sales or merge_sales"`
	}
	return tools.Typed(sample("summarize", loop.EffectRead, "Sums sales rows up: total revenue, units, revenue by region and by product.",
		`{"rows":[{"month":"2025-03","region":"North","product":"Lamp","units":10,"revenue":245}]}`),
		func(_ context.Context, _ loop.Invocation, a arguments) (any, error) { return sumUp(a.Rows) })
}

func sumUp(rows []row) (totals, error) {
	total, units := new(big.Rat), new(big.Rat)
	regions, products := map[string]*big.Rat{}, map[string]*big.Rat{}
	t := totals{RowCount: len(rows), Months: []string{}}
	for _, r := range rows {
		revenue, err := tools.ParseNumber(r.Revenue)
		if err != nil {
			return totals{}, fmt.Errorf("revenue of %s, %s, %s: %w", r.Month, r.Region, r.Product, err)
		}
		n, err := tools.ParseNumber(r.Units)
		if err != nil {
			return totals{}, fmt.Errorf("units of %s, %s, %s: %w", r.Month, r.Region, r.Product, err)
		}
		total.Add(total, revenue)
		units.Add(units, n)
		add(regions, r.Region, revenue)
		add(products, r.Product, revenue)
		t.Months = append(t.Months, r.Month)
	}
	slices.Sort(t.Months)
	t.Months = slices.Compact(t.Months)
	t.Total, t.Units = figure(total), figure(units)
	t.ByRegion, t.ByProduct = figures(regions), figures(products)
	return t, nil
}

func add(sums map[string]*big.Rat, key string, value *big.Rat) {
	if sums[key] == nil {
		sums[key] = new(big.Rat)
	}
	sums[key].Add(sums[key], value)
}

func figure(r *big.Rat) json.Number { return json.Number(tools.FormatNumber(r)) }

func figures(sums map[string]*big.Rat) map[string]json.Number {
	written := make(map[string]json.Number, len(sums))
	for key, sum := range sums {
		written[key] = figure(sum)
	}
	return written
}
