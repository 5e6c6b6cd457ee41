package batch

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"ratchet/internal/loop"
)

// File is a file of results that a later batch goes on with. Results are appended as they come, so that a crash loses none;
// Close brings them into the order of their lines. In memory it keeps where each result is, some 100 bytes, and not the results.
type File struct {
	path    string
	f       *os.File
	inOrder bool
	size    int64
	known   map[key]entry
	mixed   bool // the results are not in the order of their lines, or there are several of one run
	last    int  // line of the last one
}

// entry is where a result is in the file, and what of it is counted.
type entry struct {
	line   int
	offset int64
	length int
	status Status
	usage  loop.Usage
}

// ErrNoResults says that a file holds something else than results: it is left alone.
var ErrNoResults = errors.New("it is no file of results")

// OpenFile opens a file of results, which need not exist, and reads what it holds. A last line that was not finished is cut off.
func OpenFile(path string, inOrder bool) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the results: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil { // Close puts another file in its place
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("open the results: %w", err)
	}
	r := &File{path: path, f: f, inOrder: inOrder, known: map[key]entry{}}
	if err := r.load(); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("read the results in %s: %w", path, err)
	}
	return r, nil
}

func (f *File) load() error {
	r := bufio.NewReaderSize(f.f, 64<<10)
	if first, err := r.Peek(1); err == nil && first[0] != '{' {
		return ErrNoResults
	}
	for {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return f.cut(text)
		} else if err != nil {
			return err
		}
		if err := f.note(text); err != nil {
			return err
		}
	}
}

// cut removes a last line that has no end: the program was stopped while it wrote it.
func (f *File) cut(rest []byte) error {
	if len(rest) == 0 {
		return nil
	}
	return f.f.Truncate(f.size)
}

// note remembers a line of the file, which begins where the file ended before.
func (f *File) note(text []byte) error {
	var r Result
	if err := json.Unmarshal(text, &r); err != nil || r.Line < 1 || r.Status == "" {
		return fmt.Errorf("at byte %d: %w", f.size, ErrNoResults)
	}
	f.add(r, len(text))
	return nil
}

func (f *File) add(r Result, length int) {
	e := entry{line: r.Line, offset: f.size, length: length, status: r.Status}
	if r.Usage != nil {
		e.usage = *r.Usage
	}
	k := keyOf(nameOf(r.Run, r.Line))
	_, again := f.known[k]
	f.mixed = f.mixed || again || r.Line < f.last
	f.known[k] = e
	f.last = r.Line
	f.size += int64(length)
}

// nameOf is the id of a run, or what stands for it where a line has none. No id has a blank.
func nameOf(run string, line int) string { return cmp.Or(run, "line "+strconv.Itoa(line)) }

// Known implements [Sink].
func (f *File) Known(run string, line int) (Result, bool) {
	e, ok := f.known[keyOf(nameOf(run, line))]
	return Result{Line: line, Run: run, Status: e.status, Usage: &e.usage}, ok && (e.status.final() || e.status == Invalid)
}

// Expect implements [Sink].
func (*File) Expect(int) {}

// Pass implements [Sink].
func (*File) Pass(int) error { return nil }

// Room implements [Sink].
func (*File) Room() bool { return true }

// Put implements [Sink].
func (f *File) Put(r Result) error {
	text, err := json.Marshal(r)
	if err == nil {
		text = append(text, '\n')
		_, err = f.f.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write the result of line %d to %s: %w", r.Line, f.path, err)
	}
	f.add(r, len(text))
	return nil
}

// Close brings the results into order, where that is wanted, with one for each run, and closes the file.
func (f *File) Close() error {
	defer func() { _ = f.f.Close() }() // what was written has been synced
	if err := f.f.Sync(); err != nil {
		return fmt.Errorf("store the results in %s: %w", f.path, err)
	}
	if !f.inOrder || !f.mixed {
		return nil
	}
	if err := f.sort(); err != nil {
		return fmt.Errorf("bring the results in %s into order (they are complete): %w", f.path, err)
	}
	return nil
}

// sort writes the last result of each run into a new file, in the order of lines, and puts it in the place of this one.
func (f *File) sort() (err error) {
	to, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = to.Close()
			_ = os.Remove(to.Name()) // the error that led here is told
		}
	}()
	w := bufio.NewWriterSize(to, 64<<10)
	for _, e := range f.inLines() {
		if _, err := io.Copy(w, io.NewSectionReader(f.f, e.offset, int64(e.length))); err != nil {
			return err
		}
	}
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), to.Chmod(info.Mode().Perm()), to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), f.path)
}

// inLines returns the results in the order of their lines. That of a line that is no task gives way to that of a run: the line
// was mended.
func (f *File) inLines() []entry {
	all := make([]entry, 0, len(f.known))
	for _, e := range f.known {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.offset, b.offset)) })
	return slices.Collect(func(yield func(entry) bool) {
		for i, e := range all {
			first := i == 0 || all[i-1].line != e.line
			alone := first && (i == len(all)-1 || all[i+1].line != e.line)
			if (e.status != Invalid || alone) && !yield(e) {
				return
			}
		}
	})
}
