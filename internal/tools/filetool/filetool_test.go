package filetool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
	"ratchet/internal/tools/filetool"
)

// open returns a registry with both tools over a folder, beside which lies a secret.
func open(t *testing.T) (r *tools.Registry, dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "files")
	for _, d := range []string{dir, filepath.Join(dir, "sub"), filepath.Join(top, "outside")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"files/note.txt": "buy milk", "files/sub/deep.txt": "deep", "outside/secret.txt": "canary"} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"out": filepath.Join(top, "outside"), "out.txt": "../outside/secret.txt", "in.txt": "note.txt", "loop": "loop", "dangling": "../outside/new.txt",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := filetool.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if r, err = tools.New(tools.Config{Tools: []tools.Tool{d.Read(), d.Write()}}); err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func call(t *testing.T, r *tools.Registry, tool string, arguments any) string {
	t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	out := r.Call(t.Context(), loop.Invocation{Run: loop.RunID{Tenant: "acme", Run: "r1"}, Call: "c9", Tool: tool, Arguments: raw})
	return string(out.Status) + " " + string(out.Result)
}

func TestReadFile(t *testing.T) {
	r, dir := open(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"note.txt":                `ok "buy milk"`,
		"./sub/../note.txt":       `ok "buy milk"`,
		"sub/deep.txt":            `ok "deep"`,
		"in.txt":                  `ok "buy milk"`,
		"sub":                     `ok {"entries":["deep.txt"]}`,
		"nothing":                 `error "there is no \"nothing\"`,
		"../outside/secret.txt":   `does not lie in the folder`,
		"sub/../../outside":       `does not lie in the folder`,
		"/etc/hostname":           `does not lie in the folder`,
		"":                        `does not lie in the folder`,
		"a\x00b":                  `error `,
		"out.txt":                 `error `,
		"out/secret.txt":          `error `,
		"loop":                    `error `,
		"pipe":                    `neither a file nor a folder`,
		strings.Repeat("x", 5000): `error `,
	} {
		got := call(t, r, "read_file", map[string]string{"path": path})
		if !strings.Contains(got, want) || strings.Contains(got, "canary") || strings.Contains(got, filepath.Dir(dir)) {
			t.Errorf("%.40q: got %s, want %s", path, got, want)
		}
	}
}

func TestWriteFile(t *testing.T) {
	r, dir := open(t)
	for path, want := range map[string]string{
		"new.txt":              `ok {"bytes":2,"path":"new.txt"}`,
		"a/b/c.txt":            `ok {"bytes":2,"path":"a/b/c.txt"}`,
		"note.txt":             `ok {"bytes":2,"path":"note.txt"}`,
		"sub":                  `is no file`,
		"sub/":                 `names a folder`,
		".":                    `names a folder`,
		"../outside/x.txt":     `does not lie in the folder`,
		"out/x.txt":            `error `,
		"note.txt/x":           `error `,
		"/tmp/ratchet-x":       `does not lie in the folder`,
		"dangling":             `ok {"bytes":2,"path":"dangling"}`, // the link is replaced, not followed
		"sub/../../outside/xx": `does not lie in the folder`,
	} {
		if got := call(t, r, "write_file", map[string]string{"path": path, "text": "hi"}); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", path, got, want)
		}
	}
	outside, err := os.ReadDir(filepath.Join(dir, "..", "outside"))
	if err != nil || len(outside) != 1 {
		t.Errorf("outside lie %v, %v", outside, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "..", "outside", "secret.txt")); err != nil || string(text) != "canary" {
		t.Errorf("%q %v", text, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", ".unfinished-*"))
	if top, _ := filepath.Glob(filepath.Join(dir, ".unfinished-*")); err != nil || len(left)+len(top) > 0 {
		t.Errorf("left over: %v %v", left, top)
	}
}

func TestReadResult(t *testing.T) {
	whole := strings.Repeat("0123456789é", 2000)
	stored := map[string]string{"acme/r1/c3": whole, "acme/r2/c3": "canary of another run", "other/r1/c3": "canary of another tenant"}
	r, err := tools.New(tools.Config{Tools: []tools.Tool{filetool.Result(func(_ context.Context, name string) ([]byte, error) {
		if name == "acme/r1/broken" {
			return nil, errors.New("canary: no connection")
		}
		text, ok := stored[name]
		if !ok {
			return nil, fmt.Errorf("blob %s: %w", name, loop.ErrNotFound)
		}
		return []byte(text), nil
	})}})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for offset := 0; ; {
		out := call(t, r, "read_result", map[string]any{"call": "c3", "offset": offset, "length": 5999})
		var slice struct {
			Text               string
			Offset, Next, Size int
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(out, "ok ")), &slice); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if slice.Size != len(whole) || slice.Offset != offset || !utf8.ValidString(slice.Text) {
			t.Fatalf("%+v", slice)
		}
		got.WriteString(slice.Text)
		if offset = slice.Next; offset == 0 {
			break
		}
	}
	if got.String() != whole {
		t.Errorf("the slices make %d bytes, want %d", got.Len(), len(whole))
	}
	for name, arguments := range map[string]any{
		"another run":       map[string]any{"call": "../r2/c3"},
		"another run, 2":    map[string]any{"call": "../../acme/r2/c3"},
		"another tenant":    map[string]any{"call": "../../other/r1/c3"},
		"empty":             map[string]any{"call": ""},
		"wildcard":          map[string]any{"call": ">"},
		"unknown":           map[string]any{"call": "c4"},
		"broken":            map[string]any{"call": "broken"},
		"offset":            map[string]any{"call": "c3", "offset": len(whole) + 1},
		"negative":          map[string]any{"call": "c3", "offset": -1},
		"the run's own key": map[string]any{"call": "acme/r1/c3"},
	} {
		if out := call(t, r, "read_result", arguments); !strings.HasPrefix(out, "error ") || strings.Contains(out, "canary") {
			t.Errorf("%s: %s", name, out)
		}
	}
}
