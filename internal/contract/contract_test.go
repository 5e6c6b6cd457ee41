package contract

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write docs/contract anew")

const published = "../../docs/contract"

// TestPublished: docs/contract is what the types say today.
func TestPublished(t *testing.T) {
	files := generate(t)
	if *update {
		if err := os.RemoveAll(published); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(published, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(published, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(published, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if there[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(Names(files), Names(there)); diff != "" {
		t.Errorf("files (-want +got); go test ./internal/contract -update writes them:\n%s", diff)
	}
	for name, text := range files {
		if !bytes.Equal(text, there[name]) {
			t.Errorf("%s is not what the types say; go test ./internal/contract -update writes it:\n%s", name,
				cmp.Diff(string(text), string(there[name])))
		}
	}
}

func generate(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := Files(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAllEvents: each type of the sum of events has its schema.
func TestAllEvents(t *testing.T) {
	source, err := os.ReadFile("../loop/event.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`\) eventType\(\) string +\{ return "(\w+)" \}`).FindAllSubmatch(source, -1)
	var want, got []string
	for _, d := range declared {
		want = append(want, string(d[1]))
	}
	for _, m := range Events() {
		got = append(got, m.Title)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("events (-declared +published):\n%s", diff)
	}
}

func compile(t *testing.T, files map[string][]byte) map[string]*jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	schemas := map[string]*jsonschema.Schema{}
	for _, name := range Names(files) {
		if !strings.HasSuffix(name, schemaSuffix) {
			continue
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(files[name]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := compiler.AddResource(name, v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if schemas[strings.TrimSuffix(name, schemaSuffix)], err = compiler.Compile(name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return schemas
}

// TestRecordedEvents holds every recorded event against the schema of its type, and each with its n taken away.
func TestRecordedEvents(t *testing.T) {
	schemas := compile(t, generate(t))
	journals, err := filepath.Glob("../loop/testdata/journals/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, path := range journals {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			event := v.(map[string]any)
			name := "event." + strings.TrimPrefix(event["type"].(string), "agent.")
			if err := schemas[name].Validate(event); err != nil {
				t.Errorf("%s: %v\n%s", path, err, line)
			}
			delete(event, "n")
			if schemas[name].Validate(event) == nil {
				t.Errorf("%s: an event without n is valid", name)
			}
			seen[name]++
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d types of events were looked at: %v", len(seen), seen)
	}
}

// TestWrittenMessages: what others may send, and what they may not.
func TestWrittenMessages(t *testing.T) {
	schemas := compile(t, generate(t))
	for _, test := range []struct {
		schema, text string
		valid        bool
	}{
		{"task", `{"goal": "g"}`, true},
		{"task", `{"goal": "g", "limits": {"timeout": "10m"}, "ask": {"on_timeout": "continue"}, "vars": {"a": [1]}, "metadata": 5, "new": true}`, true},
		{"task", `{"id": "x"}`, false},
		{"task", `{"goal": "g", "limits": {"timeout": "soon"}}`, false},
		{"task", `{"goal": "g", "tools": "all"}`, false},
		{"reply", `{"text": "200 shares"}`, true},
		{"reply", `{"question": "q2", "approve": true, "arguments_sha256": "ab", "arguments": {"n": 1}}`, true},
		{"reply", `{"approve": "yes"}`, false},
		{"control", `{"op": "cancel", "reason": "changed my mind"}`, true},
		{"control", `{"op": "stop"}`, false},
		{"control", `{}`, false},
		{"api.control.request", `{"run": "r", "op": "pause"}`, true},
		{"api.control.request", `{"op": "pause"}`, false},
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(test.text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schemas[test.schema].Validate(v); (err == nil) != test.valid {
			t.Errorf("%s %s: valid %t, want %t: %v", test.schema, test.text, err == nil, test.valid, err)
		}
	}
}

// TestAsyncAPI has AsyncAPI's own parser read the document.
func TestAsyncAPI(t *testing.T) {
	const peers = "testdata/npm"
	if _, err := os.Stat(filepath.Join(peers, "node_modules")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the parser is missing: run make npm")
		}
		t.Skip("the parser is missing: run make npm")
	}
	out, err := exec.CommandContext(t.Context(), "node", filepath.Join(peers, "check.mjs"), filepath.Join(published, "asyncapi.yaml")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("%d operations", len(Inbox())+len(Operations())+2)) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDescriptions: the words of the source have come along.
func TestDescriptions(t *testing.T) {
	var s struct {
		Properties struct {
			First struct{ Description string }
		}
	}
	if err := json.Unmarshal(generate(t)["state.schema.json"], &s); err != nil {
		t.Fatal(err)
	}
	if got := s.Properties.First.Description; got != "sequence of the run's first event" {
		t.Errorf("first is described as %q", got)
	}
}
