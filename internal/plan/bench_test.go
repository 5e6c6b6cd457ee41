package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ratchet/internal/plan"
)

// BenchmarkRead reads a clean reply of 2 KB, the same in a fence, and hostile ones of three sizes.
func BenchmarkRead(b *testing.B) {
	var steps []string
	for i := range 10 {
		steps = append(steps, fmt.Sprintf(`{"step":"Look up the gauge at station %d and note it","status":"done","result":"Level %d cm, `+
			`falling; measured at 06:00 by the waterways office, \"provisional\"."}`, i, 100+i))
	}
	clean := `{"type":"tool_call","thought":"The next station is the last one.","plan":[` + strings.Join(steps, ",") +
		`,{"step":"Answer","status":"in_progress","result":null}],"name":"search","arguments":{"query":"Elbe gauge","max_results":3}}`
	run := func(name, text string, accepted bool) {
		b.Run(fmt.Sprintf("%s/%dB", name, len(text)), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := plan.Read(text); (err == nil) != accepted {
					b.Fatal(err)
				}
			}
		})
	}
	run("clean", clean, true)
	run("fenced", "```json\n"+clean+"\n```", true)
	for _, size := range []int{10_000, 100_000, 1_000_000} {
		for name, text := range hostile(size) {
			run(strings.ReplaceAll(name, " ", "_"), text, false)
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
