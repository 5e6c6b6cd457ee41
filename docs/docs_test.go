// Package docs_test holds the pages to what the code says: links lead somewhere, and the names in the tables of the pages
// are those in the code, all of them and no others.
package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"ratchet/internal/bus"
	"ratchet/internal/contract"
	"ratchet/internal/loop"
)

var linkPattern = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, match := range linkPattern.FindAllStringSubmatch(read(t, page), -1) {
			link := match[1]
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			target, fragment, _ := strings.Cut(link, "#")
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", page, link, err)
				continue
			}
			if fragment != "" && !slices.Contains(anchors(read(t, path)), fragment) {
				t.Errorf("%s links to %s, and %s has no such heading", page, link, path)
			}
		}
	}
}

// pages are all pages of the project's root and of this folder.
func pages(t *testing.T) []string {
	t.Helper()
	root, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"concepts.md", "protocol.md", "strategies.md"} {
		if !slices.Contains(here, want) {
			t.Errorf("there is no %s", want)
		}
	}
	return append(root, here...)
}

// anchors are the fragments under which the headings of a page can be reached.
func anchors(page string) (found []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(page) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			found = append(found, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return found
}

// TestStreamsBucketsAndConsumers compares the tables with what a worker sets up on a server.
func TestStreamsBucketsAndConsumers(t *testing.T) {
	server, err := bus.StartEmbedded(bus.EmbeddedOptions{Dir: t.TempDir(), Port: -1, Sync: "2m"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	nc, err := bus.Connect(t.Context(), bus.ConnectOptions{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	opened, err := bus.Open(t.Context(), nc, bus.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}

	var names, consumers []string
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		name, subjects := info.Config.Name, strings.Join(info.Config.Subjects, " ")
		switch {
		case strings.HasPrefix(name, "KV_"):
			names = append(names, strings.TrimPrefix(name, "KV_")+" bucket")
		case strings.HasPrefix(name, "OBJ_"):
			names = append(names, strings.TrimPrefix(name, "OBJ_")+" object store")
		default:
			names = append(names, name+" stream "+subjects)
		}
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		list := stream.ConsumerNames(t.Context())
		for consumer := range list.Name() {
			consumers = append(consumers, consumer+" "+name)
		}
		if err := list.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}

	var wantNames, wantConsumers []string
	for _, row := range table(t, "protocol.md", "name") {
		entry := code(row[0])[0] + " " + row[1]
		if row[1] == "stream" {
			entry += " " + strings.Join(code(row[2]), " ")
		}
		wantNames = append(wantNames, entry)
	}
	for _, row := range table(t, "protocol.md", "consumer") {
		first, last := code(row[0])[0], code(row[0])[len(code(row[0]))-1]
		wantConsumers = append(wantConsumers, first+" "+code(row[1])[0])
		for name := first; name != last; { // the last character counts
			name = name[:len(name)-1] + string(name[len(name)-1]+1)
			wantConsumers = append(wantConsumers, name+" "+code(row[1])[0])
		}
	}
	same(t, "streams and buckets", wantNames, names)
	same(t, "consumers", wantConsumers, consumers)
}

// events has one event of each type.
var events = func() (all []loop.Data) {
	for _, m := range contract.Events() {
		all = append(all, reflect.Zero(m.Type).Interface().(loop.Data))
	}
	return all
}()

func TestEventTypesAndTheirRoads(t *testing.T) {
	var types, roads []string
	for _, data := range events {
		e := loop.Event{Data: data}
		types = append(types, e.Type())
		roads = append(roads, e.Type()+" "+string(e.Road()))
	}
	same(t, "types of event, in this test and in package loop", types, slices.Collect(maps.Values(returned(t, "../internal/loop", "eventType"))))
	var listed []string
	for _, row := range table(t, "protocol.md", "type") {
		listed = append(listed, code(row[0])[0]+" "+row[1])
	}
	same(t, "types of event and their roads", listed, roads)
}

// TestEventFields finds each field of an event's data in the event's row, or where the page tells of it otherwise.
func TestEventFields(t *testing.T) {
	rows := map[string]string{}
	for _, row := range table(t, "protocol.md", "type") {
		rows[code(row[0])[0]] = row[2]
	}
	elsewhere := map[string]string{"reply": "question text value approve arguments arguments_sha256 remember reason by"}
	made := jsonFields(reflect.TypeFor[loop.Made]())
	for _, data := range events {
		name := loop.Event{Data: data}.Type()
		for _, field := range jsonFields(reflect.TypeOf(data)) {
			known := slices.Contains(code(rows[name]), field) || slices.Contains(strings.Fields(elsewhere[name]), field) || slices.Contains(made, field)
			if !known {
				t.Errorf("the row of %s does not tell of %s", name, field)
			}
		}
	}
}

func TestReasonsOfFailed(t *testing.T) {
	same(t, "reasons of failed", first(t, "protocol.md", "reason of `failed`"), constants(t, "../internal/loop", "Fail"))
}

func TestTaskFieldsAndDefaults(t *testing.T) {
	task, _, err := loop.ParseTask([]byte(`{"goal": "x"}`), "id")
	if err != nil {
		t.Fatal(err)
	}
	defaults := flat(t, task)
	var fields []string
	for _, row := range table(t, "protocol.md", "field") {
		name := code(row[0])[0]
		fields = append(fields, name)
		if name == "goal" || name == "id" {
			continue
		}
		if got, want := defaults[name], strings.Trim(row[1], "`"); got != want {
			t.Errorf("%s: the page says that its default is %q, and it is %q", name, want, got)
		}
	}
	var want []string
	for _, f := range jsonFields(reflect.TypeFor[loop.Task]()) {
		switch f {
		case "limits":
			want = append(want, prefixed("limits.", jsonFields(reflect.TypeFor[loop.Limits]()))...)
		case "ask":
			want = append(want, prefixed("ask.", jsonFields(reflect.TypeFor[loop.Ask]()))...)
		default:
			want = append(want, f)
		}
	}
	same(t, "fields of a task", fields, want)
}

// flat returns the fields of a task as JSON writes them, those of limits and ask with their prefix.
func flat(t *testing.T, task loop.Task) map[string]string {
	t.Helper()
	out := map[string]string{}
	var add func(prefix string, v any)
	add = func(prefix string, v any) {
		if object, ok := v.(map[string]any); ok {
			for name, value := range object {
				add(strings.TrimPrefix(prefix+"."+name, "."), value)
			}
			return
		}
		out[prefix] = fmt.Sprint(v)
	}
	encoded, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(encoded, &v); err != nil {
		t.Fatal(err)
	}
	add("", v)
	return out
}

func TestRefusedTasks(t *testing.T) {
	for _, row := range table(t, "protocol.md", "in the task") {
		body := `{"goal": "x", ` + code(row[0])[0] + `}`
		_, _, err := loop.ParseTask([]byte(body), "id")
		if err == nil {
			t.Errorf("%s is accepted", body)
			continue
		}
		if diff := cmp.Diff(code(row[1])[0], err.Error()); diff != "" {
			t.Errorf("%s (-page +code):\n%s", body, diff)
		}
	}
}

func TestStateFields(t *testing.T) {
	var listed []string
	for _, row := range table(t, "protocol.md", "field", "meaning") {
		listed = append(listed, code(row[0])...)
	}
	same(t, "fields of a state", listed, jsonFields(reflect.TypeFor[loop.Head]()))
}

func TestOperationsOfTheAPI(t *testing.T) {
	var listed, want []string
	for _, subject := range first(t, "protocol.md", "subject") {
		listed = append(listed, strings.Split(subject, ".")[2])
	}
	for field := range reflect.TypeFor[bus.API]().Fields() {
		want = append(want, strings.ToLower(field.Name))
	}
	same(t, "operations of the API", listed, want)
}

func TestFlagsOfWorker(t *testing.T) {
	same(t, "flags of worker", flagRows(t, "flag"), describe(flagsOf(t, "../cmd/worker", "flags")))
}

func TestFlagsOfSubmit(t *testing.T) {
	same(t, "flags of every command", flagRows(t, "flag of every command"), describe(flagsOf(t, "../cmd/submit", "link")))
	same(t, "flags of submit GOAL", flagRows(t, "flag of `submit GOAL`"), describe(flagsOf(t, "../cmd/submit", "runCommand")))
	var listed, want []string
	for _, row := range table(t, "protocol.md", "command") {
		name := strings.Fields(code(row[0])[0])[0]
		flags, _, _ := strings.Cut(row[1], " (")
		listed = append(listed, strings.Join(append([]string{name}, code(strings.ReplaceAll(flags, "(", ""))...), " "))
	}
	for command := range structs(t, "../cmd/submit", "Command") {
		if command == "runCommand" {
			continue
		}
		entry := strings.TrimSuffix(command, "Command")
		for _, f := range flagsOf(t, "../cmd/submit", command) {
			entry += " --" + f.name
		}
		want = append(want, entry)
	}
	same(t, "commands of submit", listed, want)
}

func TestRulesAndMessagesOfPlanReact(t *testing.T) {
	same(t, "rules", first(t, "strategies.md", "rule"), constants(t, "../internal/plan", "Rule"))
	same(t, "types of message", first(t, "strategies.md", "type"), typed(t, "../internal/plan", "Type"))
}

// same compares two sets of names.
func same(t *testing.T, what string, page, inCode []string) {
	t.Helper()
	if len(page) == 0 || len(inCode) == 0 {
		t.Errorf("%s: %d on the page, %d in the code", what, len(page), len(inCode))
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(page)), slices.Sorted(slices.Values(inCode))); diff != "" {
		t.Errorf("%s (-page +code):\n%s", what, diff)
	}
}

func prefixed(prefix string, names []string) (out []string) {
	for _, name := range names {
		out = append(out, prefix+name)
	}
	return out
}

// jsonFields returns the names under which a struct's fields are written.
func jsonFields(s reflect.Type) (names []string) {
	for field := range s.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && field.Type != reflect.TypeFor[time.Time]():
			names = append(names, jsonFields(field.Type)...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}

func describe(flags []flagField) (out []string) {
	for _, f := range flags {
		out = append(out, "--"+f.name+" | "+f.env+" | "+f.standard)
	}
	return out
}
