package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ratchet/internal/plan"
)

// BenchmarkRead reads a clean reply of 2 KB and the same in a fence.
func BenchmarkRead(b *testing.B) {
	var steps []string
	for i := range 10 {
		steps = append(steps, fmt.Sprintf(`{"step":"Look up the gauge at station %d and note it","status":"done","result":"Level %d cm, `+
			`falling; measured at 06:00 by the waterways office, \"provisional\"."}`, i, 100+i))
	}
	clean := `{"type":"tool_call","thought":"The next station is the last one.","plan":[` + strings.Join(steps, ",") +
		`,{"step":"Answer","status":"in_progress","result":null}],"name":"search","arguments":{"query":"Elbe gauge","max_results":3}}`
	run := func(name, text string) {
		b.Run(fmt.Sprintf("%s/%dB", name, len(text)), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := plan.Read(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("clean", clean)
	run("fenced", "```json\n"+clean+"\n```")
}

// BenchmarkHostile has every reader read hostile texts of 10 KB, of 100 KB and of the greatest size; of 1 MB nothing is read,
// it is refused at once. A reader that looks at each byte a few times only takes about as many ns/byte for each size:
// x-of-10KB, how many times as many it takes as for the smallest, stays near 1.
func BenchmarkHostile(b *testing.B) {
	readers := []struct {
		name string
		read func(text string) error
	}{
		{"Read", func(text string) error { _, err := plan.Read(text); return err }},
		{"ReadDAG", func(text string) error { _, err := readAndCheck(text); return err }},
		{"ReadFill", func(text string) error { _, err := plan.ReadFill(text, []string{"x"}); return err }},
		{"ReadVerdict", func(text string) error { _, err := plan.ReadVerdict(text); return err }},
		{"ReadReact", func(text string) error { _, err := plan.ReadReact(text, reactRules); return err }},
	}
	sizes := []int{10_000, 100_000, plan.MaxReply, 1_000_000}
	for _, name := range slices.Sorted(maps.Keys(hostileToAll(sizes[0]))) {
		for _, r := range readers {
			smallest := 0.0
			for _, size := range sizes {
				text := hostileToAll(size)[name]
				b.Run(fmt.Sprintf("%s/%s/%dB", r.name, strings.ReplaceAll(name, " ", "_"), size), func(b *testing.B) {
					for b.Loop() {
						_ = r.read(text) // refused or not: it is the time that counts
					}
					each := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(len(text))
					if size == sizes[0] {
						smallest = each
					}
					if size > plan.MaxReply {
						return
					}
					b.ReportMetric(each, "ns/byte")
					if smallest > 0 {
						b.ReportMetric(each/smallest, "x-of-10KB")
					}
				})
			}
		}
	}
}

// BenchmarkDAG reads and checks a plan of 1,000 steps, each of which refers to two others; and refuses one of 10,000.
func BenchmarkDAG(b *testing.B) {
	steps := []string{`{"id":"0","tool":"now","args":{}}`}
	for i := 1; i < plan.MaxDAGSteps; i++ {
		steps = append(steps, fmt.Sprintf(`{"id":"%d","tool":"search","args":{"query":"$%d.rows.0","max_results":5},"after":["%d"],"open":[]}`,
			i, i/2, i-1))
	}
	text := dagOf(steps...)
	r := dagRules
	r.Arguments = func(string, json.RawMessage, []string) []string { return nil }
	b.Run("read/1000", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, _, err := plan.ReadDAG(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check/1000", func(b *testing.B) {
		d, _, err := plan.ReadDAG(text)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := plan.CheckDAG(d, r); err != nil {
				b.Fatal(err)
			}
		}
	})
	many := dagOf(slices.Repeat([]string{`{"id":"1","tool":"now"}`}, 10_000)...)
	b.Run("refuse/10000", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := plan.ReadDAG(many); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
