package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var codePattern = regexp.MustCompile("`([^`]+)`")

// read returns a page.
func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// table returns the rows of the first table of a page whose header begins with these cells.
func table(t *testing.T, page string, header ...string) (rows [][]string) {
	t.Helper()
	inside := false
	for line := range strings.Lines(read(t, page)) {
		if !strings.HasPrefix(line, "|") {
			if inside {
				return rows
			}
			continue
		}
		row := cells(line)
		switch {
		case inside && !strings.HasPrefix(line, "|---"):
			rows = append(rows, row)
		case !inside && len(row) >= len(header) && slices.Equal(row[:len(header)], header):
			inside = true
		}
	}
	if !inside {
		t.Fatalf("%s has no table that begins with %q", page, header)
	}
	return rows
}

// cells splits a row of a table. A bar in code is no border.
func cells(line string) (out []string) {
	var cell strings.Builder
	inCode := false
	for _, c := range strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|") {
		if c == '`' {
			inCode = !inCode
		}
		if c == '|' && !inCode {
			out = append(out, strings.TrimSpace(cell.String()))
			cell.Reset()
			continue
		}
		cell.WriteRune(c)
	}
	return append(out, strings.TrimSpace(cell.String()))
}

// code returns what stands between backticks.
func code(cell string) (out []string) {
	for _, match := range codePattern.FindAllStringSubmatch(cell, -1) {
		out = append(out, match[1])
	}
	return out
}

// first returns the names in the first column of a table.
func first(t *testing.T, page string, header ...string) (names []string) {
	t.Helper()
	for _, row := range table(t, page, header...) {
		names = append(names, code(row[0])[0])
	}
	return names
}

// flagRows returns the rows of a table of flags, without what they mean.
func flagRows(t *testing.T, header string) (out []string) {
	t.Helper()
	for _, row := range table(t, "protocol.md", header) {
		out = append(out, strings.ReplaceAll(strings.Join(row[:3], " | "), "`", ""))
	}
	return out
}
