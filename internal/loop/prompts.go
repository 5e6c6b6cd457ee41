package loop

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

// The texts of prompts are files: prompts/<strategy>/<version>/<name>.tmpl. A run keeps the version that its first event
// names, so a text that was ever used stays as it is; a change is a new version beside it, and the strategy's prompt method
// names the newest.

//go:embed prompts
var promptFiles embed.FS

// prompts holds all texts by path, as plan_react/1/system.tmpl. It is filled at start-up.
var prompts = template.New("").Funcs(template.FuncMap{
	"json": func(v any) (string, error) { b, err := encodeJSON(v); return string(b), err },
})

func init() {
	if err := addPrompts(promptFiles); err != nil {
		panic("loop: prompts: " + err.Error()) // a defect of the files, which every test would show
	}
}

func addPrompts(files fs.FS) error {
	return fs.WalkDir(files, "prompts", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		_, err = prompts.New(strings.TrimPrefix(path, "prompts/")).Parse(string(text))
		return err
	})
}

// promptVersion is that of the run's texts.
func (s *State) promptVersion() string {
	return cmp.Or(s.Prompt, strategies[s.Task.Strategy].prompt())
}

// text is one of the run's texts, in the version with which the run began.
func (s *State) text(name string, data any) string { return render(s.promptVersion()+"/"+name, data) }

// systemText is text for the first message of a prompt. Its data are the tools, the facts, and what the key tells; most runs
// have no facts, and then it is the same as for any other run with these tools.
func (s *State) systemText(name string, tools Toolbox, key string, data any) string {
	if tools.set == "" || len(s.Facts.Facts) > 0 {
		return s.text(name, data)
	}
	return tools.texts.system(s.promptVersion()+"/"+name+" "+tools.set+" "+key, func() string { return s.text(name, data) })
}

// render executes a template. Its errors are defects of the template, which a test would show.
func render(path string, data any) string {
	var b bytes.Buffer
	if err := prompts.ExecuteTemplate(&b, path, data); err != nil {
		panic(fmt.Sprintf("loop: prompt %s: %v", path, err))
	}
	return b.String()
}

// openingTexts are the files that every version of a strategy has, by strategy; a version without them is not here.
var openingTexts = map[string]string{
	StrategyPlanReact: "system.tmpl", StrategyReact: "system.tmpl", StrategyPlanExecute: "system.tmpl",
	StrategyPlanActReflect: "plan.tmpl",
}

// drivable says why a run can't be driven by this program: its strategy or the version of its texts is of a newer one.
func (s *State) drivable() error {
	if s.Task.Strategy == "" {
		return nil // a run that ends before it began
	}
	if _, known := strategies[s.Task.Strategy]; !known {
		return fmt.Errorf("run %s: strategy %q: %w", s.RunID, clip(s.Task.Strategy, 80), ErrNewer)
	}
	if version := s.promptVersion(); prompts.Lookup(version+"/"+openingTexts[s.Task.Strategy]) == nil {
		return fmt.Errorf("run %s: prompt version %q: %w", s.RunID, clip(version, 80), ErrNewer)
	}
	return nil
}
