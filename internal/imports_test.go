// Package internal_test checks the rules by which packages may import each other.
package internal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

type goPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// adapters are named for what they adapt and never import one another.
var adapters = []string{"bus", "llm", "memory", "telemetry", "tools", "web"}

func TestImportRules(t *testing.T) {
	packages := list(t, "./...")
	standard := map[string]bool{}
	for _, p := range list(t, "std") {
		standard[p.ImportPath] = true
	}
	seen := map[string]bool{}
	for _, p := range packages {
		seen[p.ImportPath] = true
		for _, imported := range p.Imports {
			if problem := forbidden(p.ImportPath, imported, standard); problem != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, problem)
			}
		}
	}
	for _, want := range []string{"ratchet/internal/loop", "ratchet/internal/plan", "ratchet/internal/bus", "ratchet/cmd/worker"} {
		if !seen[want] {
			t.Errorf("package %s was not looked at", want)
		}
	}
}

// forbidden says why one package may not import another, or nothing.
func forbidden(from, to string, standard map[string]bool) string {
	ours := strings.HasPrefix(to, "ratchet/")
	switch {
	case from == "ratchet/internal/plan" && !standard[to]:
		return "plan is pure: standard library only"
	case from == "ratchet/internal/loop" && !standard[to] && to != "ratchet/internal/plan":
		return "loop imports the standard library and plan only"
	case strings.HasPrefix(to, "github.com/sashabaranov/go-openai") && adapter(from) != "llm":
		return "the types of go-openai stay in llm"
	case strings.HasPrefix(to, "github.com/weaviate/") && adapter(from) != "memory":
		return "the types of Weaviate stay in memory"
	case ours && adapter(from) != "" && adapter(to) != "" && adapter(from) != adapter(to):
		return "adapters do not import one another"
	case ours && strings.HasPrefix(to, "ratchet/cmd/"):
		return "commands are imported by nobody"
	}
	return ""
}

// adapter is the adapter that a package belongs to; empty for others. Test helpers of an adapter may use others.
func adapter(path string) string {
	if strings.HasSuffix(path, "test") {
		return ""
	}
	rest, ours := strings.CutPrefix(path, "ratchet/internal/")
	name, _, _ := strings.Cut(rest, "/")
	if ours && slices.Contains(adapters, name) {
		return name
	}
	return ""
}

func list(t *testing.T, pattern string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", pattern)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pattern, err)
	}
	var packages []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	standard := map[string]bool{"fmt": true}
	for _, c := range []struct {
		from, to string
		bad      bool
	}{
		{"ratchet/internal/plan", "fmt", false},
		{"ratchet/internal/plan", "ratchet/internal/loop", true},
		{"ratchet/internal/loop", "ratchet/internal/plan", false},
		{"ratchet/internal/loop", "github.com/nats-io/nats.go", true},
		{"ratchet/internal/bus", "ratchet/internal/llm", true},
		{"ratchet/internal/bus", "ratchet/internal/loop", false},
		{"ratchet/internal/tools/demo", "ratchet/internal/tools", false},
		{"ratchet/internal/node", "github.com/sashabaranov/go-openai", true},
		{"ratchet/internal/node", "ratchet/internal/bus", false},
		{"ratchet/internal/node", "ratchet/cmd/worker", true},
	} {
		if got := forbidden(c.from, c.to, standard) != ""; got != c.bad {
			t.Errorf("%s importing %s is forbidden: %v, want %v", c.from, c.to, got, c.bad)
		}
	}
}
