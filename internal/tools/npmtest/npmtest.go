// Package npmtest finds the programs from npm that tests talk to: real MCP servers and clients that others wrote.
// `make npm` installs them, at the versions their lock files name.
package npmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Everything returns the command of @modelcontextprotocol/server-everything.
func Everything(t testing.TB, args ...string) []string {
	t.Helper()
	return append([]string{Node(t), script(t, "internal/tools/testdata/npm", "@modelcontextprotocol/server-everything/dist/index.js")}, args...)
}

// Filesystem returns the command of @modelcontextprotocol/server-filesystem for a folder.
func Filesystem(t testing.TB, dir string) []string {
	t.Helper()
	return []string{Node(t), script(t, "internal/tools/testdata/npm", "@modelcontextprotocol/server-filesystem/dist/index.js"), dir}
}

// Service returns the command of the tool service in examples/node-tool.
func Service(t testing.TB) []string {
	t.Helper()
	script(t, "examples/node-tool", "@nats-io/transport-node/package.json")
	return []string{Node(t), filepath.Join(top(), "examples", "node-tool", "tool.mjs")}
}

// Node returns the path of node.
func Node(t testing.TB) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is not installed")
	}
	return node
}

// script returns the path of a file of an installed package.
func script(t testing.TB, folder, name string) string {
	t.Helper()
	path := filepath.Join(top(), filepath.FromSlash(folder), "node_modules", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		missing(t, name+" is not installed")
	}
	return path
}

// missing ends the test: as failed where everything must be there, else as skipped.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: run `make npm`", what)
	}
	t.Skipf("%s: run `make npm`", what)
}

// top returns the folder of the module.
func top() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("npmtest: no source position")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
