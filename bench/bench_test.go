package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ratchet/internal/bus"
	"ratchet/internal/bus/bustest"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMain makes the test binary be a child too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		main()
	}
	os.Exit(m.Run())
}

// program runs the program and returns what it printed.
func program(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	if status := run(t.Context(), args, strings.NewReader(""), &out, &log); status != want {
		t.Fatalf("bench %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), status, want, &out, &log)
	}
	return out.String(), log.String()
}

// The tiny form runs, and its figures can be written down and compared with. What they are is nobody's business here.
func TestTinyForm(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "figures.json")
	args := []string{"--form", "tiny", "--scenario", "throughput", "--scenario", "parked", "--data", dir, "--json", path}
	table, _ := program(t, 0, args...)
	for _, want := range []string{"6 steps, 32 in flight", "30 steps, 32 in flight", "200 wait, 20 replies", "of floor", "resume"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
	written, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range written.Rows {
		for f, values := range r.Figures {
			if len(values) != 1 || values[0] < 0 {
				t.Errorf("%s, %s: %s is %v", r.Scenario, r.Name, f, values)
			}
		}
	}
	var ratio, resumed []float64
	if r := written.row("throughput", "6 steps, 32 in flight"); r != nil {
		ratio = r.Figures[ofFloor]
	}
	if r := written.row("parked", "200 wait, 20 replies"); r != nil {
		resumed = r.Figures[resume99]
	}
	if len(ratio) != 1 || ratio[0] == 0 || len(resumed) != 1 || resumed[0] == 0 {
		t.Errorf("of the floor %v, resumed %v", ratio, resumed)
	}
	var out bytes.Buffer
	compare(&out, written, written)
	if text := out.String(); !strings.Contains(text, "of floor") || !strings.Contains(text, "~ (p=1.000 n=1)") {
		t.Errorf("compared with itself:\n%s", text)
	}
	left, err := filepath.Glob(filepath.Join(dir, "ratchet-bench-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
}

// What a worker holds is asked for while its runs are in flight, and profiles say of what that is made.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	path, profiles := filepath.Join(dir, "figures.json"), filepath.Join(dir, "profiles")
	program(t, 0, "--form", "tiny", "--scenario", "waiting", "--latency", "1s", "--data", dir, "--json", path, "--memprofile", profiles)
	written, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	row := written.row("waiting", "100 in flight")
	if row == nil {
		t.Fatalf("no such row in %v", written.Rows)
	}
	for _, f := range []figure{perRunHeap, perRunStacks} {
		if values := row.Figures[f]; len(values) != 1 || values[0] < 1 {
			t.Errorf("%s is %v", f, values)
		}
	}
	for _, name := range []string{"waiting-1-w1-heap.prof", "waiting-1-w1-goroutine.prof"} {
		if info, err := os.Stat(filepath.Join(profiles, name)); err != nil || info.Size() == 0 {
			t.Errorf("profile %s: %v", name, err)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--scenario", "nothing"}, `there is no scenario "nothing"; there are throughput, waiting,`},
		{[]string{"--count", "0"}, "--count 0 is not valid"},
		{[]string{"--latency", "fast"}, `"fast" is not a latency such as 20ms or 1s-3s`},
		{[]string{"--latency", "3s-1s"}, `"3s-1s" is not a latency`},
		{[]string{"--form", "huge"}, "--form must be one of"},
	} {
		if _, stderr := program(t, 2, c.args...); !strings.Contains(stderr, c.want) {
			t.Errorf("bench %s says %q, want %q", strings.Join(c.args, " "), stderr, c.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.json")
	if _, stderr := program(t, 1, "--compare", missing); !strings.Contains(stderr, "read what to compare with") {
		t.Errorf("a missing file to compare with: %q", stderr)
	}
}

func TestCompareSaysWhatIsBetter(t *testing.T) {
	sample := func(base float64) (all []float64) {
		for i := range 8 {
			all = append(all, base+float64(i))
		}
		return all
	}
	before, after := &report{}, &report{}
	for i := range 8 {
		before.add("s", "r", figures{runRate: sample(100)[i], overhead50: sample(20)[i], storedBytes: sample(50)[i]})
		after.add("s", "r", figures{runRate: sample(200)[i], overhead50: sample(40)[i], storedBytes: sample(50)[i]})
	}
	after.add("s", "new", figures{runRate: 1})
	var out bytes.Buffer
	compare(&out, before, after)
	var got []string
	for line := range strings.Lines(out.String()) {
		for _, word := range []string{"better", "worse", "~", "not measured before"} {
			if strings.Contains(line, word) {
				got = append(got, strings.Join(strings.Fields(line)[2:4], " ")+": "+word)
			}
		}
	}
	want := []string{"runs/s 104: better", "overhead p50: worse", "stored B/run: ~", "not measured: not measured before"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, out.String())
	}
}

func TestLatency(t *testing.T) {
	var l latency
	if err := l.UnmarshalText([]byte("1s-3s")); err != nil || l != (latency{time.Second, 3 * time.Second}) {
		t.Errorf("got %v, error %v", l, err)
	}
	for range 100 {
		if d := l.draw(); d < l.from || d > l.to {
			t.Errorf("drew %s from %v", d, l)
		}
	}
	if err := l.UnmarshalText([]byte("20ms")); err != nil || l.draw() != 20*time.Millisecond {
		t.Errorf("got %v, error %v", l, err)
	}
}

// Each message of the script is the JSON it looks like, and a run of n steps has as many turns as it takes.
func TestScript(t *testing.T) {
	for _, steps := range []int{6, 12, 200} {
		var types []string
		for turn := range (steps-besides)/2 + 2 {
			var m struct{ Type string }
			if err := json.Unmarshal([]byte(say(steps, turn)), &m); err != nil {
				t.Fatalf("turn %d: %v", turn, err)
			}
			types = append(types, m.Type)
		}
		if first, last := types[0], types[len(types)-1]; first != "create_plan" || last != "final_answer" {
			t.Errorf("%d steps go %s", steps, types)
		}
	}
	if !json.Valid([]byte(sayQuestion)) {
		t.Errorf("no JSON: %s", sayQuestion)
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i))
	}
	if got := fmt.Sprint(percentile(all, 50), percentile(all, 99), percentile(all[:1], 99), percentile(nil, 50)); got != "51ns 100ns 100ns 0s" {
		t.Errorf("percentiles are %s", got)
	}
}

// An append of the floor that the client library sends twice loses to itself.
func TestABareAppendThatIsStoredAlready(t *testing.T) {
	nc := bustest.Connect(t, bustest.Server(t))
	bustest.Open(t, nc, bus.Options{})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{js: js}
	for range 2 {
		for last := range uint64(3) {
			if seq, err := w.bareAppend(t.Context(), "r", []byte("x"), last); err != nil || last == 2 && seq != 3 {
				t.Errorf("after %d it is %d, %v", last, seq, err)
			}
		}
	}
}
