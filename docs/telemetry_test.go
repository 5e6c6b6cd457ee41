package docs_test

import (
	"strings"
	"testing"

	"ratchet/internal/telemetry"
)

// TestMetrics compares the page's table with what a worker shows.
func TestMetrics(t *testing.T) {
	var listed, want []string
	for _, row := range table(t, "telemetry.md", "metric") {
		listed = append(listed, strings.Join(append([]string{code(row[0])[0], row[1]}, code(row[2])...), " "))
		if row[3] == "" {
			t.Errorf("%s is not explained", row[0])
		}
	}
	for _, m := range telemetry.Catalog() {
		want = append(want, strings.Join(append([]string{m.Name, m.Kind}, m.Labels...), " "))
	}
	same(t, "metrics, their kinds and labels", listed, want)
}
