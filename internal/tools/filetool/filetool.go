// Package filetool offers tools over data that lies near: read_file and write_file in one directory, and read_result for
// results that were too large for the run. No name leads out of the directory, also not over a symbolic link, and no run
// reads another run's results.
package filetool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"ratchet/internal/loop"
	"ratchet/internal/tools"
)

// maxRead bounds how much of a file is read, in bytes.
const maxRead = 16 << 20

// maxEntries bounds how many names of a folder are listed.
const maxEntries = 1000

// Dir is a directory that tools may use.
type Dir struct{ root *os.Root }

// Open opens a directory, which must exist.
func Open(dir string) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory for files: %w", err)
	}
	return &Dir{root}, nil
}

// Close releases the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Read returns the tool read_file. Of a folder it returns the names in it.
func (d *Dir) Read() tools.Tool {
	type arguments struct {
		Path string `json:"path" jsonschema:"of the file, relative to the folder of files; . lists that folder"`
	}
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{
		Name:        "read_file",
		Description: "Reads a file from the folder of files and returns its text. Of a folder it returns the names of what is in it.",
		Example:     json.RawMessage(`{"path":"notes/today.txt"}`),
		Effect:      loop.EffectRead,
	}}, func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
		return d.read(a.Path)
	})
}

func (d *Dir) read(name string) (any, error) {
	local, err := inside(name)
	if err != nil {
		return nil, err
	}
	// Without blocking: opening a named pipe would wait for a writer for ever.
	f, err := d.root.OpenFile(local, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, explain("read", name, err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, explain("read", name, err)
	}
	switch {
	case info.IsDir():
		return list(f, name)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is neither a file nor a folder", name)
	case info.Size() > maxRead:
		return nil, fmt.Errorf("%q has %d bytes; at most %d can be read", name, info.Size(), maxRead)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, explain("read", name, err)
	}
	return data, nil
}

// list returns the names in a folder, those of folders with a slash at their end.
func list(f *os.File, name string) (any, error) {
	entries, err := f.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, explain("read", name, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
		if e.IsDir() {
			names[i] += "/"
		}
	}
	return map[string][]string{"entries": names}, nil
}

// Write returns the tool write_file. A file is there as a whole or not at all; folders are made as needed.
func (d *Dir) Write() tools.Tool {
	type arguments struct {
		Path string `json:"path" jsonschema:"of the file, relative to the folder of files"`
		Text string `json:"text" jsonschema:"what the file is to hold; what it held before is replaced"`
	}
	return tools.Typed(tools.Tool{Spec: loop.ToolSpec{
		Name:        "write_file",
		Description: "Writes text to a file in the folder of files. A file that is there already is replaced.",
		Example:     json.RawMessage(`{"path":"notes/today.txt","text":"Buy milk"}`),
		Effect:      loop.EffectIdempotent,
	}}, func(_ context.Context, _ loop.Invocation, a arguments) (any, error) {
		return d.write(a.Path, a.Text)
	})
}

func (d *Dir) write(name, text string) (any, error) {
	local, err := inside(name)
	if err != nil {
		return nil, err
	}
	if local == "." || strings.HasSuffix(name, "/") {
		return nil, fmt.Errorf("%q names a folder, not a file", name)
	}
	if info, err := d.root.Stat(local); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is there and is no file", name)
	}
	if err := d.root.MkdirAll(path.Dir(local), 0o755); err != nil {
		return nil, explain("write", name, err)
	}
	unfinished := path.Join(path.Dir(local), ".unfinished-"+rand.Text())
	if err := d.root.WriteFile(unfinished, []byte(text), 0o644); err != nil {
		_ = d.root.Remove(unfinished) // the first error counts
		return nil, explain("write", name, err)
	}
	if err := d.root.Rename(unfinished, local); err != nil {
		_ = d.root.Remove(unfinished) // the first error counts
		return nil, explain("write", name, err)
	}
	return map[string]any{"path": local, "bytes": len(text)}, nil
}

// inside returns a name as [os.Root] takes it. What could lead out of the directory is refused with a text for the model;
// os.Root refuses it too, and symbolic links that do.
func inside(name string) (string, error) {
	local := path.Clean(filepath.ToSlash(name))
	if name == "" || strings.ContainsRune(name, 0) || !filepath.IsLocal(local) {
		return "", fmt.Errorf("%q does not lie in the folder of files: give a path relative to it that does not lead upwards", name)
	}
	return local, nil
}

// explain says what went wrong without showing where the directory lies.
func explain(what, name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %q; read_file with path . lists what is there", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s %q: not permitted", what, name)
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		err = link.Err
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}
