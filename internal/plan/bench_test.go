package plan_test

import (
	"fmt"
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
