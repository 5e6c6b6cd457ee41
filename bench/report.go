package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// figure names what is measured, with its unit.
type figure string

// The figures. A step is one event after the run's first; the first is counted as one too where rates are made of them, for
// it is an append like the others.
const (
	runRate      figure = "runs/s"
	stepRate     figure = "steps/s"
	ofFloor      figure = "of floor"          // steps/s over appends/s of the floor
	ofBoth       figure = "of floor and HTTP" // time that the appends and requests alone would take, over the time taken
	floorRate    figure = "floor appends/s"
	floorCPU     figure = "floor cpu µs/append" // of the servers
	httpRate     figure = "HTTP requests/s"
	overhead50   figure = "overhead p50 ms" // from a reply of the model to the next request of the run
	overhead99   figure = "overhead p99 ms"
	run50        figure = "run p50 ms" // from the submission, or a person's reply, to the answer
	run99        figure = "run p99 ms"
	resume50     figure = "resume p50 ms" // from a person's reply to the next request of the run
	resume99     figure = "resume p99 ms"
	cpuServer    figure = "server cpu µs/step"
	cpuWorker    figure = "worker cpu µs/step"
	storedBytes  figure = "stored B/run"
	writtenBytes figure = "written B/run" // by the servers, to the file system
	serverPeak   figure = "server MB"
	workerPeak   figure = "worker MB"
	workerGrowth figure = "worker growth MB"
	perRun       figure = "worker KB/run"        // growth of the worker's memory over the runs in flight, or parked
	perRunHeap   figure = "worker heap KB/run"   // of it, what is in use on the heap
	perRunStacks figure = "worker stacks KB/run" // of it, stacks of goroutines
	callsAtOnce  figure = "calls at once"        // requests that the model had in hand, at most
	serverHeld   figure = "server held MB"       // what is not garbage
	heldEach     figure = "server B/kept"        // of it, for each run or schedule that was added, or each tenant
	diskEach     figure = "disk B/kept"          // the same of its files
	restart      figure = "restart s"            // of the server, from its start until it answers
	restartKill  figure = "restart after kill s"
	fillRate     figure = "kept/s" // runs or schedules that were written
	consumers    figure = "consumers"
)

// columns are those of the table. The figures that share one are of one kind; all others are in the JSON.
var columns = []struct {
	heads   [2]string
	figures []figure
}{
	{[2]string{"", "runs/s"}, []figure{runRate}},
	{[2]string{"", "steps/s"}, []figure{stepRate}},
	{[2]string{"of", "floor"}, []figure{ofFloor}},
	{[2]string{"of floor", "and HTTP"}, []figure{ofBoth}},
	{[2]string{"floor, HTTP", "1/s"}, []figure{floorRate, httpRate}},
	{[2]string{"overhead", "p50, p99 ms"}, []figure{overhead50, overhead99}},
	{[2]string{"run", "p50, p99 ms"}, []figure{run50, run99}},
	{[2]string{"resume", "p50, p99 ms"}, []figure{resume50, resume99}},
	{[2]string{"server, worker", "cpu µs/step"}, []figure{cpuServer, cpuWorker}},
	{[2]string{"stored", "B/run"}, []figure{storedBytes}},
	{[2]string{"written", "B/run"}, []figure{writtenBytes}},
	{[2]string{"server, worker", "peak MB"}, []figure{serverPeak, workerPeak}},
	{[2]string{"worker", "KB/run"}, []figure{perRun}},
	{[2]string{"heap, stacks", "KB/run"}, []figure{perRunHeap, perRunStacks}},
	{[2]string{"kept", "1/s"}, []figure{fillRate}},
	{[2]string{"server", "held MB"}, []figure{serverHeld}},
	{[2]string{"memory, disk", "B/kept"}, []figure{heldEach, diskEach}},
	{[2]string{"restart, killed", "s"}, []figure{restart, restartKill}},
}

// moreIsBetter are the figures that are; of all others less is.
var moreIsBetter = map[figure]bool{
	runRate: true, stepRate: true, ofFloor: true, ofBoth: true, floorRate: true, httpRate: true, callsAtOnce: true, fillRate: true,
}

type figures map[figure]float64

// report is all that was measured.
type report struct {
	Machine machine `json:"machine"`
	Form    form    `json:"form"`
	Rows    []*row  `json:"rows"`
}

// row is one line of the table, with a value of each figure for each time that it was measured.
type row struct {
	Scenario string               `json:"scenario"`
	Name     string               `json:"name"`
	Figures  map[figure][]float64 `json:"figures"`
}

// machine says where it was measured.
type machine struct {
	Time time.Time `json:"time"`
	CPU  string    `json:"cpu"`
	CPUs int       `json:"cpus"`
	OS   string    `json:"os"`
	Go   string    `json:"go"`
	Load string    `json:"load"` // averages of the last 1, 5 and 15 minutes, before anything was measured
}

func thisMachine() machine {
	m := machine{
		Time: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	text, _ := os.ReadFile("/proc/cpuinfo") // it is not said elsewhere
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// add adds a row, or values to the row of that name.
func (r *report) add(scenario, name string, f figures) {
	to := r.row(scenario, name)
	if to == nil {
		to = &row{scenario, name, map[figure][]float64{}}
		r.Rows = append(r.Rows, to)
	}
	for name, value := range f {
		to.Figures[name] = append(to.Figures[name], value)
	}
}

// row finds a row; nil where there is none.
func (r *report) row(scenario, name string) *row {
	for _, row := range r.Rows {
		if row.Scenario == scenario && row.Name == name {
			return row
		}
	}
	return nil
}

// print prints the table: medians, and only the columns that some row has.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%d × %s, %s, %s, load before %s, form %s\n\n", r.Machine.CPUs, cmp.Or(r.Machine.CPU, "CPU"), r.Machine.OS, r.Machine.Go,
		cmp.Or(r.Machine.Load, "unknown"), r.Form)
	lines := make([][]string, 2, len(r.Rows)+2)
	lines[0], lines[1] = []string{"", ""}, []string{"scenario", ""}
	for _, row := range r.Rows {
		lines = append(lines, []string{row.Scenario, row.Name})
	}
	for _, c := range columns {
		cells, used := []string{c.heads[0], c.heads[1]}, false
		for _, row := range r.Rows {
			var parts []string
			for _, f := range c.figures {
				parts = append(parts, format(row.Figures[f]))
				used = used || len(row.Figures[f]) > 0
			}
			if !slices.ContainsFunc(parts, func(p string) bool { return p != none }) {
				parts = parts[:1]
			}
			cells = append(cells, strings.Join(parts, ", "))
		}
		if !used {
			continue
		}
		for i := range lines {
			lines[i] = append(lines[i], cells[i])
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	for _, cells := range lines {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
}

// none stands for a figure that was not measured.
const none = "–"

// format writes a median with three digits that mean something.
func format(values []float64) string {
	if len(values) == 0 {
		return none
	}
	switch v := median(values); {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what to compare with: %w", err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s was not written by --json: %w", path, err)
	}
	return &r, nil
}
